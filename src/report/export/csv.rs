//! Every effect as comma-separated values (RFC 4180), for spreadsheets and statistics programs.

use serde::Serialize;

use super::{failed, one_line};
use crate::attribution::{Attribution, Effect, Interval, Kind, Verdict};
use crate::error::Result;

/// A line; the names of the fields are the first one.
#[derive(Serialize)]
struct Line<'a> {
    experiment: &'a str,
    release: &'a str,
    kind: Kind,
    patch: Option<usize>,
    name: &'a str,
    workload: &'a str,
    meter: &'a str,
    point: String,
    against: String,
    estimate: f64,
    low: Option<f64>,
    high: Option<f64>,
    level: f64,
    interval: Interval,
    verdict: Verdict,
    standard_error: Option<f64>,
    minimum_detectable: Option<f64>,
    p_value: Option<f64>,
    p_adjusted: Option<f64>,
    blocks: usize,
    units: usize,
    from: &'a str,
}

/// Every effect of the document, one a line, unrounded: the patches', the total, the control.
///
/// # Errors
/// [`Kind::Internal`](crate::error::Kind::Internal) when it cannot be written.
pub fn csv(attribution: &Attribution) -> Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let patches = attribution.patches.iter().flat_map(|patch| {
        let effects = patch.effects.iter();
        effects.map(move |effect| (Some(patch.index), patch.name.as_str(), effect))
    });
    let total = attribution.total.iter().map(|effect| (None, "", effect));
    let control = attribution.noise.control.iter();
    let control = control.map(|control| (None, "", &control.effect));
    let experiment = text(&attribution.experiment);
    let release = text(&attribution.release);
    for (patch, name, effect) in patches.chain(total).chain(control) {
        let (name, workload) = (text(name), text(&effect.workload));
        let line = line(patch, [&experiment, &release, &name, &workload], effect);
        writer
            .serialize(line)
            .map_err(|error| failed("CSV", &error))?;
    }
    let bytes = writer
        .into_inner()
        .map_err(|error| failed("CSV", &error.error()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn line<'a>(
    patch: Option<usize>,
    [experiment, release, name, workload]: [&'a str; 4],
    effect: &'a Effect,
) -> Line<'a> {
    Line {
        experiment,
        release,
        kind: effect.kind,
        patch,
        name,
        workload,
        meter: effect.meter.name(),
        point: effect.point.to_string(),
        against: effect.against.to_string(),
        estimate: effect.estimate,
        low: effect.low,
        high: effect.high,
        level: effect.level,
        interval: effect.interval,
        verdict: effect.verdict,
        standard_error: effect.standard_error,
        minimum_detectable: effect.minimum_detectable,
        p_value: effect.p_value,
        p_adjusted: effect.p_adjusted,
        blocks: effect.blocks,
        units: effect.units,
        from: effect.from().unwrap_or_default(),
    }
}

/// A name that no spreadsheet takes for a formula.
fn text(name: &str) -> String {
    let name = one_line(name);
    match name.chars().next() {
        Some('=' | '+' | '-' | '@') => format!("'{name}"),
        _ => name,
    }
}
