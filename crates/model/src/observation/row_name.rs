//! Names of what an observation is about: a workload, or one of its operations.

use std::fmt;

/// The name of a workload, or of an operation that a client times separately, stored as `workload/operation`.
///
/// A workload's own name may contain a slash too: only beside observations of `workload` itself is the rest an
/// operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowName<'a> {
    /// The workload.
    pub workload: &'a str,
    /// The operation.
    pub operation: Option<&'a str>,
}

impl<'a> RowName<'a> {
    /// Returns the name of an operation.
    pub fn operation(workload: &'a str, operation: &'a str) -> Self {
        RowName {
            workload,
            operation: Some(operation),
        }
    }
}

impl<'a> From<&'a str> for RowName<'a> {
    /// Splits a stored name at its first slash.
    fn from(stored: &'a str) -> Self {
        match stored.split_once('/') {
            Some((workload, operation)) => RowName::operation(workload, operation),
            None => RowName {
                workload: stored,
                operation: None,
            },
        }
    }
}

impl fmt::Display for RowName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.workload)?;
        match self.operation {
            Some(operation) => write!(f, "/{operation}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_written() {
        for stored in ["load", "load/sort", "load/sort/desc"] {
            let name = RowName::from(stored);
            assert_eq!(name.to_string(), stored);
            assert_eq!(name.workload, "load");
        }
        assert_eq!(RowName::from("load").operation, None);
        let nested = RowName::from("load/sort/desc");
        assert_eq!(nested.operation, Some("sort/desc"));
    }
}
