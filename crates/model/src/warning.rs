//! Warnings: problems that do not stop the work, and what a reader of figures must know.

use std::fmt;
use std::ops::Deref;
use std::path::PathBuf;

use serde::ser::{SerializeMap, Serializer};

use crate::error::Error;

/// A warning. Each kind has a constructor of its own, named like its code ([`code`](crate::code)); an error that does not stop the
/// work becomes one with its own code.
///
/// It is no [`Error`] to a function's caller: `?` does not take it, so no command ends with one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning(Error);

impl Warning {
    /// Adds the file and line that the warning is about.
    #[must_use]
    pub fn at(self, file: impl Into<PathBuf>, line: impl Into<Option<usize>>) -> Self {
        Warning(self.0.at(file, line))
    }

    /// Adds a hint: the next command or the likely fix.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Warning(self.0.hint(hint))
    }
}

impl Error {
    /// Returns a warning of the error, which begins with the words `before` and a colon: the work goes on.
    pub fn warning(&self, before: impl fmt::Display) -> Warning {
        self.clone().reworded(format!("{before}: {self}")).into()
    }
}

impl From<Error> for Warning {
    fn from(error: Error) -> Self {
        Warning(error)
    }
}

/// Message, place, hint and code.
impl Deref for Warning {
    type Target = Error;

    fn deref(&self) -> &Error {
        &self.0
    }
}

/// The place and the message, and the code at the end.
impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}]", self.0, self.code())
    }
}

/// Writes a document's warnings as two of its fields: `warnings` are the messages, `warning_codes` their codes in the same
/// order. For `#[serde(flatten)]`.
///
/// # Errors
/// Those of the serializer.
pub fn fields<S: Serializer>(warnings: &[Warning], serializer: S) -> Result<S::Ok, S::Error> {
    let texts: Vec<&str> = warnings.iter().map(|of| of.message()).collect();
    let codes: Vec<_> = warnings.iter().map(|of| of.code()).collect();
    let mut fields = serializer.serialize_map(Some(2))?;
    fields.serialize_entry("warnings", &texts)?;
    fields.serialize_entry("warning_codes", &codes)?;
    fields.end()
}
