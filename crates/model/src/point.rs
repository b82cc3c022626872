//! Points: the states of a patch stack that are built and measured.

use std::fmt;
use std::str::FromStr;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize};

use crate::counted::counted;
use crate::error::Error;

/// One state of the stack. Patches are counted from 1, as in `series`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(into = "String")]
pub enum Point {
    /// The release with the first `k` patches applied; `0` is the bare release.
    Step(usize),
    /// The release with patch `k` only.
    Alone(usize),
    /// The whole series except patch `k`.
    Without(usize),
    /// The bare release measured a second time as a separate point (A/A control): any apparent effect is
    /// noise.
    Control,
}

impl Point {
    /// Returns the error for `asked` (`patch 7`, `point alone:7`) of a series with fewer patches.
    pub fn beyond(asked: &str, patches: usize) -> Error {
        let error = Error::point(format!(
            "there is no {asked}: the series has {}",
            counted(patches, "patch", "patches")
        ));
        if patches == 0 {
            error.hint("`perfquilt import SOURCE` imports patches")
        } else {
            error.hint("`perfquilt status` lists them")
        }
    }

    /// The bare release.
    pub const BASE: Point = Point::Step(0);

    /// Returns whether this is the bare release or its control, which are the same program.
    pub fn is_unpatched(&self) -> bool {
        matches!(self, Point::Step(0) | Point::Control)
    }

    /// Returns the number of the patch that the point is about, from 1; `None` for the bare release and its control.
    pub fn patch(&self) -> Option<usize> {
        match *self {
            Point::Step(k) | Point::Alone(k) | Point::Without(k) => Some(k).filter(|k| *k > 0),
            Point::Control => None,
        }
    }

    /// Returns the number of patches applied if these are the first ones of the series; `None` for the bare release
    /// and for all other points.
    pub fn step(&self) -> Option<usize> {
        match *self {
            Point::Step(step) if step > 0 => Some(step),
            _ => None,
        }
    }
}

/// The bare release.
impl Default for Point {
    fn default() -> Self {
        Point::BASE
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Point::Step(k) => write!(f, "{k}"),
            Point::Alone(k) => write!(f, "alone:{k}"),
            Point::Without(k) => write!(f, "without:{k}"),
            Point::Control => f.write_str("control"),
        }
    }
}

impl FromStr for Point {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let number = |digits: &str| digits.parse::<usize>().ok();
        let point = match text.split_once(':') {
            Some(("alone", k)) => number(k).filter(|&k| k > 0).map(Point::Alone),
            Some(("without", k)) => number(k).filter(|&k| k > 0).map(Point::Without),
            Some(_) => None,
            None if text == "control" => Some(Point::Control),
            None => number(text).map(Point::Step),
        };
        point.ok_or_else(|| {
            Error::point(format!(
                "`{text}` is not a point: points are 0, 3, alone:3, without:3 and control"
            ))
            .hint("0 is the bare release, 3 the release with the first three patches")
        })
    }
}

impl From<Point> for String {
    fn from(point: Point) -> String {
        point.to_string()
    }
}

impl<'de> Deserialize<'de> for Point {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Point;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a point")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Point, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_round_trips() {
        for text in ["0", "17", "alone:3", "without:2", "control"] {
            assert_eq!(text.parse::<Point>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "x", "alone:0", "without:", "-1", "alone:1:2"] {
            let error = text.parse::<Point>().unwrap_err().to_string();
            assert!(error.contains("0, 3, alone:3, without:3"), "{error}");
        }
    }
}
