//! Results in the forms of other tools. Pure.

mod bencher;
mod csv;
mod go;
mod openmetrics;

use super::text::is_deceptive;
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

/// `text` without anything that could end a line, steer a terminal, or reorder or hide text.
fn one_line(text: &str) -> String {
    let harmless = |c: char| match c.is_control() || is_deceptive(c) {
        true => '\u{fffd}',
        false => c,
    };
    text.chars().map(harmless).collect()
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
