//! Every effect as comma-separated values (RFC 4180), for spreadsheets and statistics programs.

use serde::Serialize;

use super::{ExportedReport, Exporter, UniqueNames, effects, failed, one_line};
use perfquilt_judge::attribution::{
    Attribution, Effect, EffectKind, ShownChange, StoppingRule, Verdict,
};
use perfquilt_model::error::Result;
use perfquilt_model::observation::Statistic;

/// Every effect of the document, one per row.
pub(super) const CSV: Exporter =
    Exporter::new("csv", "Every effect as comma-separated values", |data| {
        csv(data.attribution)
    });

/// The header: the names of the fields of a [`CsvRow`].
const HEAD: &str = "\
experiment,release,kind,patch,name,workload,meter,point,against,estimate,low,high,level,interval,verdict,\
standard_error,minimum_detectable,p_value,p_adjusted,blocks,units,from,stale,typical,mean,mean_low,mean_high,\
mean_verdict,slow,slow_low,slow_high,slow_verdict,p99,p99_low,p99_high,p99_verdict,stalled,stalled_low,\
stalled_high,stalled_verdict,executed,change_of,change,change_low,change_high";

/// A data row.
#[derive(Serialize)]
struct CsvRow<'a> {
    experiment: &'a str,
    release: &'a str,
    kind: EffectKind,
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
    interval: StoppingRule,
    verdict: Verdict,
    standard_error: Option<f64>,
    minimum_detectable: Option<f64>,
    p_value: Option<f64>,
    p_adjusted: Option<f64>,
    blocks: usize,
    units: usize,
    from: &'a str,
    stale: bool,
    typical: Verdict,
    tail: [TailCells; 4],
    executed: bool,
    change: ShownChange,
}

/// Estimate, interval ends and verdict of the mean or a tail figure.
type TailCells = (Option<f64>, Option<f64>, Option<f64>, Option<Verdict>);

/// Returns every effect of the document, one per row and unrounded: those of the patches, of operations, the total and
/// the control.
pub(super) fn csv(attribution: &Attribution) -> Result<ExportedReport> {
    let workloads = UniqueNames::of_workloads(attribution, &text);
    // The header is written explicitly, so that it is there even without data rows.
    let mut writer = csv::WriterBuilder::new()
        .has_headers(false)
        .from_writer(Vec::new());
    writer
        .write_record(HEAD.split(','))
        .map_err(|error| failed("CSV", &error))?;
    let experiment = text(&attribution.experiment);
    let release = text(&attribution.release);
    for (patch, effect) in effects(attribution) {
        let name = text(patch.map_or("", |patch| &patch.name));
        let from = text(effect.from().unwrap_or_default());
        let workload = workloads.get(&effect.workload);
        let names = [&*experiment, &*release, &*name, workload, &*from];
        let patch = patch.map(|patch| patch.index);
        let row = row(patch, names, effect);
        writer
            .serialize(row)
            .map_err(|error| failed("CSV", &error))?;
    }
    let bytes = writer
        .into_inner()
        .map_err(|error| failed("CSV", &error.error()))?;
    Ok(workloads.on(String::from_utf8_lossy(&bytes).into_owned()))
}

fn row<'a>(
    patch: Option<usize>,
    [experiment, release, name, workload, from]: [&'a str; 5],
    effect: &'a Effect,
) -> CsvRow<'a> {
    CsvRow {
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
        from,
        stale: effect.is_stale(),
        typical: effect.typical(),
        tail: Statistic::ALL.map(|statistic| {
            let tail = effect.tail.as_deref();
            let figure = tail.and_then(|tail| tail.get(statistic));
            (
                figure.map(|figure| figure.estimate),
                figure.and_then(|figure| figure.low),
                figure.and_then(|figure| figure.high),
                figure.map(|figure| figure.verdict),
            )
        }),
        executed: effect.executed,
        change: effect.shown(),
    }
}

/// Returns a name that no spreadsheet takes for a formula.
fn text(name: &str) -> String {
    let name = one_line(name);
    match name.chars().next() {
        Some('=' | '+' | '-' | '@') => format!("'{name}"),
        _ => name,
    }
}
