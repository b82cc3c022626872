//! OpenMetrics 1.0 text, for a textfile collector or a push gateway.

use std::fmt::Write;

use super::{ExportedReport, Exporter, UniqueNames, effects, one_line};
use crate::nouns::Nouns;
use perfquilt_judge::attribution::{Attribution, Effect};

/// Every effect with its interval, and the cost of every point, as gauges.
pub(super) const OPEN_METRICS: Exporter = Exporter::new(
    "openmetrics",
    "Effects and costs as OpenMetrics text",
    |data| Ok(openmetrics(data.attribution)),
);

/// A family of gauges: its name, its help text, and its value for an effect.
type Family = (&'static str, &'static str, fn(&Effect) -> Option<f64>);

const EFFECTS: [Family; 3] = [
    (
        "perfquilt_effect_ratio",
        "Effect as a fraction of speed, 0.01 is 1 % faster.",
        |effect| Some(effect.estimate),
    ),
    (
        "perfquilt_effect_low_ratio",
        "Lower end of the effect's interval.",
        |effect| effect.low,
    ),
    (
        "perfquilt_effect_high_ratio",
        "Upper end of the effect's interval.",
        |effect| effect.high,
    ),
];

/// Returns every effect with its interval, the cost of every point, and whether the experiment is complete.
pub(super) fn openmetrics(attribution: &Attribution) -> ExportedReport {
    let workloads = UniqueNames::of_workloads(attribution, &one_line);
    let noun = Nouns::of(attribution).one;
    let mut text = String::new();
    let common = labels(&[
        ("experiment", &attribution.experiment),
        ("release", &attribution.release),
        ("recipe", &attribution.recipe),
    ]);
    head(
        &mut text,
        "perfquilt_complete",
        "",
        "Whether no block is missing.",
    );
    let complete = i32::from(attribution.is_complete());
    let _ = writeln!(text, "perfquilt_complete{{{common}}} {complete}");
    let effects: Vec<(&str, &Effect)> = effects(attribution)
        .map(|(patch, effect)| (patch.map_or("", |patch| patch.name.as_str()), effect))
        .collect();
    for (family, help, value) in EFFECTS {
        head(&mut text, family, "ratio", help);
        for (patch, effect) in &effects {
            let Some(value) = value(effect).filter(|value| value.is_finite()) else {
                continue;
            };
            let kind = serde_json::to_value(effect.kind).unwrap_or_default();
            let own = labels(&[
                ("kind", kind.as_str().unwrap_or_default()),
                (noun, patch),
                ("point", &effect.point.to_string()),
                ("workload", workloads.get(&effect.workload)),
                ("meter", effect.meter.name()),
                ("verdict", &effect.verdict.to_string()),
                ("stale", if effect.is_stale() { "true" } else { "false" }),
            ]);
            let _ = writeln!(text, "{family}{{{common},{own}}} {value}");
        }
    }
    let cost = "perfquilt_transaction_cost";
    head(
        &mut text,
        cost,
        "",
        "Cost of a transaction in the meter's unit.",
    );
    for of in &attribution.costs {
        let own = labels(&[
            ("point", &of.point.to_string()),
            ("workload", workloads.get(&of.workload)),
            ("meter", of.meter.name()),
            ("unit", of.meter.unit()),
        ]);
        let _ = writeln!(text, "{cost}{{{common},{own}}} {}", of.estimate);
    }
    text.push_str("# EOF\n");
    workloads.on(text)
}

fn head(text: &mut String, family: &str, unit: &str, help: &str) {
    let _ = writeln!(text, "# TYPE {family} gauge");
    if !unit.is_empty() {
        let _ = writeln!(text, "# UNIT {family} {unit}");
    }
    let _ = writeln!(text, "# HELP {family} {help}");
}

fn labels(labels: &[(&str, &str)]) -> String {
    let label = |(name, value): &(&str, &str)| {
        let value = value
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n");
        format!("{name}=\"{}\"", one_line(&value))
    };
    labels.iter().map(label).collect::<Vec<_>>().join(",")
}
