//! A badge for a README: the JSON that shields.io's endpoint badges read.

use serde_json::json;

use super::{ExportedReport, Exporter, ReportData};
use perfquilt_judge::attribution::{Attribution, Effect, Verdict};
use perfquilt_model::error::{Error, Result};

/// The effect of the whole series as a badge.
pub(super) const BADGE: Exporter = Exporter::new(
    "badge",
    "Effect of the whole series as a badge, for shields.io",
    badge,
);

fn badge(data: &ReportData<'_>) -> Result<ExportedReport> {
    let total = total(data.attribution).ok_or_else(|| {
        Error::arguments("the whole series was not measured").hint("`perfquilt run` measures it")
    })?;
    let color = match total.verdict {
        Verdict::Faster => "brightgreen",
        Verdict::Slower => "red",
        Verdict::Mixed => "orange",
        Verdict::NoEffect | Verdict::NoTypicalEffect | Verdict::Unclear => "lightgrey",
    };
    let badge = json!({
        "schemaVersion": 1,
        "label": "performance series",
        "message": format!("{:+.1} %, {}", 100.0 * total.estimate, total.verdict),
        "color": color,
    });
    Ok(format!("{badge}\n").into())
}

/// Returns the effect of the whole series on the main meter and workload.
fn total(attribution: &Attribution) -> Option<&Effect> {
    let meter = attribution.main_meter()?;
    let workload = attribution.main_workload(meter)?;
    let mut totals = attribution.total.iter();
    totals.find(|total| total.meter == meter && total.workload == workload)
}
