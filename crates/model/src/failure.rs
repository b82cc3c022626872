//! Failures of a run.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Kind};
use crate::point::Point;

/// Characters of one line that are kept.
pub const LONGEST: usize = 1000;
/// Lines of another program's output that are kept.
const MOST_LINES: usize = 40;

/// Why there are no figures, or none of one point.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What it is, for those who sort.
    pub kind: Kind,
    /// The point it is about; `None` when it is about all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub point: Option<Point>,
    /// File and line, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// The cause in one fragment.
    pub message: String,
    /// What another program said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<String>,
    /// The next command or the likely mend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Failure {
    /// The failure that `error` tells of, about `point` if it is about one.
    pub fn new(error: &Error, point: Option<Point>) -> Self {
        Failure {
            kind: error.kind(),
            point,
            place: error.place().map(ToString::to_string),
            message: error.message().to_owned(),
            details: error.detail_lines().to_vec(),
            hint: error.hint_text().map(str::to_owned),
        }
        .cut()
    }

    /// Limits every text to what a person reads.
    #[must_use]
    pub fn cut(mut self) -> Self {
        let cut = |text: &mut String| {
            if let Some((end, _)) = text.char_indices().nth(LONGEST) {
                text.truncate(end);
                text.push('…');
            }
        };
        cut(&mut self.message);
        self.place.as_mut().into_iter().for_each(cut);
        self.hint.as_mut().into_iter().for_each(cut);
        self.details.truncate(MOST_LINES);
        self.details.iter_mut().for_each(cut);
        self
    }
}
