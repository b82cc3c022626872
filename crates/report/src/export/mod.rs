//! Results in the formats of other tools.

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

/// Returns the last patch of a point, or the one it is alone with or without.
fn patch_of(attribution: &Attribution, point: Point) -> Option<&PatchEffects> {
    let place = match point {
        Point::Step(k) | Point::Alone(k) | Point::Without(k) => k.checked_sub(1),
        Point::Control => None,
    };
    attribution.patches.get(place?)
}

/// Returns every effect of the document, each with its patch if it has one: those of the patches on workloads and on
/// their operations, the total and the control.
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

/// Returns the display name of a point in other tools: its short form, and the name of its patch if it has one.
fn point_words(attribution: &Attribution, point: Point) -> String {
    match patch_of(attribution, point) {
        Some(patch) => format!("{point} {}", patch.name),
        None => point.to_string(),
    }
}

/// Replaces characters that end a line, control a terminal, or reorder or hide text.
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
