//! Failures of a run.

use serde::{Deserialize, Serialize};

use crate::code::Code;
use crate::error::{Error, Kind};
use crate::point::Point;

/// Maximum length of a line, in characters.
pub const LONGEST: usize = 1000;
/// Maximum number of lines kept of another program's output.
const MOST_LINES: usize = 40;

/// Why a run, or one of its points, has no figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The category.
    pub kind: Kind,
    /// The error's code; the default in a file of an older program.
    #[serde(default)]
    pub code: Code,
    /// The affected point; `None` if all points are affected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub point: Option<Point>,
    /// File and line, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// The cause, as a lower-case fragment.
    pub message: String,
    /// Output of another program.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<String>,
    /// The next command or the likely fix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        let place = failure.place.map(|place| format!("in {place}"));
        Error::new(failure.code.number, Some(failure.kind), failure.message)
            .details(place.into_iter().chain(failure.details))
            .hint_if(failure.hint)
    }
}

impl Failure {
    /// Creates a failure from `error`, for `point` if only one point is affected.
    pub fn new(error: &Error, point: Option<Point>) -> Self {
        Failure {
            kind: error.kind(),
            code: error.code(),
            point,
            place: error.location().map(ToString::to_string),
            message: error.message().to_owned(),
            details: error.detail_lines().to_vec(),
            hint: error.hint_text().map(str::to_owned),
        }
        .cut()
    }

    /// Replaces the folders `hidden` in every text by `…`: readers elsewhere have no use for paths of the machine that
    /// measured.
    #[must_use]
    pub fn hiding(mut self, hidden: &[String]) -> Self {
        for text in self.texts() {
            for folder in hidden {
                *text = text.replace(folder.as_str(), "…");
            }
        }
        self
    }

    /// Truncates every text to [`LONGEST`] characters and the details to a readable number of lines.
    #[must_use]
    pub fn cut(mut self) -> Self {
        self.details.truncate(MOST_LINES);
        for text in self.texts() {
            if let Some((end, _)) = text.char_indices().nth(LONGEST) {
                text.truncate(end);
                text.push('…');
            }
        }
        self
    }

    /// Whether it is no fault, but that somebody stopped the run.
    pub fn is_interruption(&self) -> bool {
        self.kind == Kind::Interrupted
    }

    fn texts(&mut self) -> impl Iterator<Item = &mut String> {
        let own = [&mut self.message].into_iter();
        own.chain(&mut self.place)
            .chain(&mut self.hint)
            .chain(&mut self.details)
    }
}
