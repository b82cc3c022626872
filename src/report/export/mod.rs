//! Results in the forms of other tools. Pure.

mod bencher;
mod csv;
mod go;
mod openmetrics;

use std::fmt::Write;

use crate::attribution::Attribution;
use crate::error::{Error, Result};
use crate::point::Point;

pub use bencher::{bencher, github_action_benchmark};
pub use csv::csv;
pub use go::go_benchmark;
pub use openmetrics::openmetrics;

/// A point as other tools show it: its short form, and the patch's name where it has one.
fn point_words(attribution: &Attribution, point: Point) -> String {
    let patch = match point {
        Point::Step(k) | Point::Alone(k) | Point::Without(k) => k.checked_sub(1),
        Point::Control => None,
    };
    let patch = patch.and_then(|place| attribution.patches.get(place));
    match patch {
        Some(patch) => format!("{point} {}", patch.name),
        None => point.to_string(),
    }
}

/// `text` without anything that could end a line or steer a terminal.
fn one_line(text: &str) -> String {
    let mut line = String::new();
    for c in text.chars() {
        let _ = match c.is_control() {
            true => write!(line, "\u{fffd}"),
            false => write!(line, "{c}"),
        };
    }
    line
}

fn failed(what: &str, error: &dyn std::fmt::Display) -> Error {
    Error::internal(format!("cannot write {what}: {error}"))
}

fn json(value: &impl serde::Serialize) -> Result<String> {
    let text = serde_json::to_string_pretty(value).map_err(|error| failed("JSON", &error))?;
    Ok(text + "\n")
}

#[cfg(test)]
mod tests;
