//! The names of machines whose observations are merged.

use std::fmt;

/// The name of a machine. Machines of the same name in different files are numbered: `x86`, `x86 #2`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MachineName<'a> {
    /// The name in the file.
    pub name: &'a str,
    /// The number among the machines of this name, from 1.
    pub number: u32,
}

impl<'a> From<&'a str> for MachineName<'a> {
    fn from(stored: &'a str) -> Self {
        let split = stored.rsplit_once(" #");
        let numbered = split.and_then(|(name, number)| Some((name, number.parse().ok()?)));
        let (name, number) = numbered.unwrap_or((stored, 1));
        MachineName { name, number }
    }
}

impl fmt::Display for MachineName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number {
            1 => f.write_str(self.name),
            number => write!(f, "{} #{number}", self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_part_of_a_name_that_is_taken() {
        for (stored, name, number) in [("x86", "x86", 1), ("x86 #2", "x86", 2), ("a #b", "a #b", 1)]
        {
            let found = MachineName::from(stored);
            assert_eq!((found.name, found.number), (name, number));
            assert_eq!(found.to_string(), stored);
        }
    }
}
