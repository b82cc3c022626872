//! Every effect as comma-separated values (RFC 4180), for spreadsheets and statistics programs.

use serde_json::Value;

use super::{ExportedReport, Exporter, UniqueNames, effects, failed, one_line};
use crate::report::columns::{COLUMNS, EffectLine};
use perfquilt_judge::attribution::Attribution;
use perfquilt_model::error::Result;

/// Every effect of the document, one per row.
pub(super) const CSV: Exporter =
    Exporter::new("csv", "Every effect as comma-separated values", |data| {
        csv(data.attribution)
    });

/// Returns every effect of the document, one per row and unrounded: those of the patches, of operations, the total and
/// the control.
pub(super) fn csv(attribution: &Attribution) -> Result<ExportedReport> {
    let workloads = UniqueNames::of_workloads(attribution, &text);
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer
        .write_record(COLUMNS.iter().map(|column| column.name))
        .map_err(|error| failed("CSV", &error))?;
    let experiment = text(&attribution.experiment);
    let release = text(&attribution.release);
    for (patch, effect) in effects(attribution) {
        let line = EffectLine {
            experiment: &experiment,
            release: &release,
            patch: patch.map(|patch| patch.index),
            name: &text(patch.map_or("", |patch| &patch.name)),
            workload: workloads.get(&effect.workload),
            from: &text(effect.from().unwrap_or_default()),
            effect,
        };
        let values: Vec<Value> = COLUMNS.iter().map(|column| (column.value)(&line)).collect();
        writer
            .serialize(values)
            .map_err(|error| failed("CSV", &error))?;
    }
    let bytes = writer
        .into_inner()
        .map_err(|error| failed("CSV", &error.error()))?;
    Ok(workloads.on(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Returns a name that no spreadsheet takes for a formula.
fn text(name: &str) -> String {
    let name = one_line(name);
    match name.chars().next() {
        Some('=' | '+' | '-' | '@') => format!("'{name}"),
        _ => name,
    }
}
