//! The one error type of the product: cause, place, next command and exit code.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A result whose error is an [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The hint given when the disk is full.
pub const DISK_FULL: &str = "free some space (`perfquilt clean --unused-days 0` empties the caches), then run the same command again";

/// The hint given where this user may not read or write.
const NOT_PERMITTED: &str =
    "another user owns it: run perfquilt as that user, or work on a copy of the workspace";

/// The hint given where nobody can write.
const READ_ONLY: &str =
    "this file system is mounted read-only: work on a copy of the workspace elsewhere";

/// The hint given when a process may open no more files.
const TOO_MANY_FILES: &str = "let more files be open (`ulimit -n 65536`, after `ulimit -Hn`, LimitNOFILE= of systemd or `nofile` in \
     /etc/security/limits.conf if that is refused), then run the same command again";

/// Returns whether a text has the words of EMFILE or ENFILE.
fn says_too_many_files(text: &str) -> bool {
    text.to_lowercase().contains("too many open files")
}

/// The category of an error. Its number is the process's exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Kind {
    /// Internal: a fault of perfquilt or of the machine under it (a full disk, a damaged database).
    Internal = 1,
    /// Usage or configuration: wrong arguments, a wrong `perfquilt.toml`, a missing tool or package.
    Usage = 2,
    /// Series: a patch is malformed, missing, does not apply or became empty; `lint` found errors (with `--strict` or
    /// warnings); a branch cannot be written back; a rebase needs a decision.
    Series = 3,
    /// Build: a point could not be built.
    Build = 4,
    /// Benchmark: a server or a client failed, or the server's own tests could not run.
    Bench = 5,
    /// Regression: a patch is slower, with `--fail-on regression`; one of the server's own tests newly fails with a patch
    /// (`test`, `run --test`, `rebase --test`); a verdict of a bundle does not hold (`bundle run`).
    Regression = 6,
    /// Inconclusive: the result is, with `--fail-on inconclusive`; `calibrate` found a broken promise; `bisect` is
    /// undecided; `bundle run` cannot tell whether verdicts hold.
    Inconclusive = 7,
    /// Forge: the forge refused, could not be reached, or has no such pull request.
    Forge = 8,
    /// Interrupted by a signal; the same command continues.
    Interrupted = 130,
}

impl Kind {
    /// Returns the process's exit code for this kind.
    pub fn exit_code(self) -> u8 {
        self as u8
    }
}

/// A location in a file the user can open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceLocation {
    /// The file, as the user would name it.
    pub file: PathBuf,
    /// The line, counted from 1, where there is one.
    pub line: Option<usize>,
}

impl fmt::Display for SourceLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}", self.file.display()),
            None => write!(f, "{}", self.file.display()),
        }
    }
}

/// An error as the user reads it: `error: LOCATION: MESSAGE`, details, `hint: HINT`.
///
/// Messages are lower-case fragments without a full stop. Details hold output of another program
/// (a compiler's message, the tail of a server's log), one line each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    inner: Box<Inner>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Inner {
    code: u16,
    kind: Kind,
    location: Option<SourceLocation>,
    message: String,
    details: Vec<String>,
    hint: Option<String>,
    transient: bool,
    start_timeout: Option<Duration>,
}

impl Error {
    /// Creates an error with the number of its code; each code has a constructor of its own ([`code`](crate::code)). If a warning
    /// ended a command, that would be a fault of perfquilt.
    pub(crate) fn new(code: u16, kind: Option<Kind>, message: String) -> Self {
        let hint = says_too_many_files(&message).then(|| TOO_MANY_FILES.to_owned());
        Error {
            inner: Box::new(Inner {
                code,
                kind: kind.unwrap_or(Kind::Internal),
                location: None,
                message,
                details: Vec::new(),
                hint,
                transient: false,
                start_timeout: None,
            }),
        }
    }

    /// Creates the error for work stopped by a signal.
    pub fn interrupted() -> Self {
        Self::ended_by_signal("interrupted")
            .hint("finished work is kept; run the same command again to continue")
    }

    /// Creates the error for an input/output failure; `what` is the failed action on `path`, such as `read`.
    pub fn io(what: &str, path: &Path, source: &std::io::Error) -> Self {
        let message = format!("cannot {what} {}: {source}", path.display());
        match source.kind() {
            std::io::ErrorKind::StorageFull => Self::disk_full(message).hint(DISK_FULL),
            std::io::ErrorKind::PermissionDenied => Self::permission(message).hint(NOT_PERMITTED),
            std::io::ErrorKind::ReadOnlyFilesystem => Self::read_only(message).hint(READ_ONLY),
            _ => Self::file(message),
        }
    }

    /// Creates the error for a value that cannot be written as JSON.
    pub fn json(error: serde_json::Error) -> Self {
        Self::internal(format!("cannot write JSON: {error}"))
    }

    /// Creates the error for a `what` called `name` that does not exist. The hint suggests the nearest of the
    /// `known` names, or lists them all.
    pub fn unknown<N: AsRef<str>>(
        what: &str,
        name: &str,
        known: impl IntoIterator<Item = N>,
    ) -> Self {
        let known: Vec<N> = known.into_iter().collect();
        let names: Vec<&str> = known.iter().map(AsRef::as_ref).collect();
        let all = match names.as_slice() {
            [] => format!("no {what} exists yet"),
            names => format!("available: {}", names.join(", ")),
        };
        Self::unknown_name(format!("there is no {what} `{name}`")).near(
            name,
            names.into_iter(),
            all,
        )
    }

    /// Adds a hint: the nearest of the `known` names, if one is like `name`, else `otherwise`.
    #[must_use]
    pub fn near<'a>(
        self,
        name: &str,
        known: impl Iterator<Item = &'a str>,
        otherwise: impl Into<String>,
    ) -> Self {
        let nearest = known
            .map(|candidate| (strsim::jaro_winkler(candidate, name), candidate))
            .filter(|(similarity, _)| *similarity > 0.8)
            .max_by(|a, b| a.0.total_cmp(&b.0));
        match nearest {
            Some((_, candidate)) => self.hint(format!("did you mean `{candidate}`?")),
            None => self.hint(otherwise),
        }
    }

    /// Adds the file and line the message is about.
    #[must_use]
    pub fn at(mut self, file: impl Into<PathBuf>, line: impl Into<Option<usize>>) -> Self {
        self.inner.location = Some(SourceLocation {
            file: file.into(),
            line: line.into(),
        });
        self
    }

    /// Adds a hint: the next command or the likely fix.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.inner.hint = Some(hint.into());
        self
    }

    /// Adds a hint, if there is one.
    #[must_use]
    pub fn hint_if(self, hint: Option<impl Into<String>>) -> Self {
        match hint {
            Some(hint) => self.hint(hint),
            None => self,
        }
    }

    /// Adds a hint unless the error has one.
    #[must_use]
    pub fn hint_or(self, otherwise: impl Into<String>) -> Self {
        let hint = self.inner.hint.clone();
        self.hint(hint.unwrap_or_else(|| otherwise.into()))
    }

    /// Adds a hint before the one that the error has.
    #[must_use]
    pub fn hint_before(self, first: &str) -> Self {
        let own = self.hint_text();
        let hint = own.map_or(first.to_owned(), |own| format!("{first}; {own}"));
        self.hint(hint)
    }

    /// Adds a hint after the one that the error has.
    #[must_use]
    pub fn hint_after(self, last: &str) -> Self {
        let own = self.hint_text();
        let hint = own.map_or(last.to_owned(), |own| format!("{own}; {last}"));
        self.hint(hint)
    }

    /// Replaces message and place; the rest stays.
    #[must_use]
    pub fn reworded(mut self, message: impl Into<String>) -> Self {
        self.inner.message = message.into();
        self.inner.location = None;
        self
    }

    /// Adds lines of another program's output, and the remedy if one says that it may open no more files.
    #[must_use]
    pub fn details<S: Into<String>>(mut self, lines: impl IntoIterator<Item = S>) -> Self {
        let lines: Vec<String> = lines.into_iter().map(Into::into).collect();
        let is_limited = lines.iter().any(|line| says_too_many_files(line));
        self.inner.details.extend(lines);
        let remedy = is_limited.then(|| format!("remedy: {TOO_MANY_FILES}"));
        self.inner.details.extend(remedy);
        self
    }

    /// Marks the error as transient: a retry may succeed, as when the network is down.
    #[must_use]
    pub fn transient(mut self) -> Self {
        self.inner.transient = true;
        self
    }

    /// Whether a retry may succeed.
    pub fn is_transient(&self) -> bool {
        self.inner.transient
    }

    /// Records that a server did not become ready within `timeout`.
    #[must_use]
    pub fn start_timeout(mut self, timeout: Duration) -> Self {
        self.inner.start_timeout = Some(timeout);
        self
    }

    /// The time within which a server did not become ready; `None` for other errors.
    pub fn exceeded_start_timeout(&self) -> Option<Duration> {
        self.inner.start_timeout
    }

    /// Gives the error another category, which the purpose of the command decides.
    #[must_use]
    pub fn of_kind(mut self, kind: Kind) -> Self {
        self.inner.kind = kind;
        self
    }

    /// The number of the error's code.
    pub(crate) fn number(&self) -> u16 {
        self.inner.code
    }

    /// The category, which determines the exit code.
    pub fn kind(&self) -> Kind {
        self.inner.kind
    }

    /// The file and line the message is about, if any.
    pub fn location(&self) -> Option<&SourceLocation> {
        self.inner.location.as_ref()
    }

    /// The cause, as a lower-case fragment.
    pub fn message(&self) -> &str {
        &self.inner.message
    }

    /// Output of another program.
    pub fn detail_lines(&self) -> &[String] {
        &self.inner.details
    }

    /// The hint: the next command or the likely fix.
    pub fn hint_text(&self) -> Option<&str> {
        self.inner.hint.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(location) = &self.inner.location {
            write!(f, "{location}: ")?;
        }
        f.write_str(&self.inner.message)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn failures_of_the_file_system_lead_on() {
        for (kind, words) in [
            (io::ErrorKind::StorageFull, "free some space"),
            (io::ErrorKind::PermissionDenied, "another user owns it"),
            (io::ErrorKind::ReadOnlyFilesystem, "mounted read-only"),
        ] {
            let error = Error::io("write", Path::new("/a"), &kind.into());
            assert!(error.hint_text().unwrap().contains(words), "{kind}");
        }
        let other = Error::io("write", Path::new("/a"), &io::ErrorKind::NotFound.into());
        assert_eq!(other.hint_text(), None);
    }
}
