//! Results in the forms of other tools. Pure.

mod bencher;
mod csv;
mod go;
mod openmetrics;

use super::text::is_deceptive;
use perfquilt_judge::attribution::{Attribution, Effect, PatchEffects};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::point::Point;

pub use bencher::{bencher, github_action_benchmark};
pub use csv::csv;
pub use go::go_benchmark;
pub use openmetrics::openmetrics;

/// The patch that makes a point what it is.
fn patch_of(attribution: &Attribution, point: Point) -> Option<&PatchEffects> {
    let place = match point {
        Point::Step(k) | Point::Alone(k) | Point::Without(k) => k.checked_sub(1),
        Point::Control => None,
    };
    attribution.patches.get(place?)
}

/// Every effect of the document, each with its patch where it is one's: the patches' on workloads and on their
/// operations, the total, the control.
fn effects(attribution: &Attribution) -> impl Iterator<Item = (Option<&PatchEffects>, &Effect)> {
    let patches = attribution.patches.iter().flat_map(|patch| {
        let effects = patch.effects.iter();
        effects.map(move |effect| (Some(patch), effect))
    });
    let operations = attribution.operations.iter().flat_map(|of| &of.effects);
    let operations = operations.map(move |effect| (patch_of(attribution, effect.point), effect));
    let total = attribution.total.iter().map(|effect| (None, effect));
    let control = attribution.noise.control.iter();
    let control = control.map(|control| (None, &control.effect));
    patches.chain(operations).chain(total).chain(control)
}

/// A point as other tools show it: its short form, and the patch's name where it has one.
fn point_words(attribution: &Attribution, point: Point) -> String {
    match patch_of(attribution, point) {
        Some(patch) => format!("{point} {}", patch.name),
        None => point.to_string(),
    }
}

/// `text` without anything that could end a line, steer a terminal, or reorder or hide text.
fn one_line(text: &str) -> String {
    let harmless = |c: char| {
        if c.is_control() || is_deceptive(c) {
            '\u{fffd}'
        } else {
            c
        }
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
