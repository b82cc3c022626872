//! Formats the line after a block: the effects so far.

use perfquilt_judge::attribution::{Attribution, Closure, ClosureSide, Effect, EffectKind};
use perfquilt_model::observation::Meter;

/// Formats the effects of one workload and meter: `1 +0.45 ± 0.30 %, 2 −1.20 ± 0.33 %, A/A +0.02 ± 0.28 %`;
/// empty when there is none yet.
pub(super) fn effects(attribution: &Attribution, workload: &str, meter: Meter) -> String {
    let wanted = |effect: &&Effect| effect.workload == workload && effect.meter == meter;
    let patches = attribution.patches.iter().filter_map(|patch| {
        let effect = patch
            .effects
            .iter()
            .filter(wanted)
            .find(|effect| effect.kind == EffectKind::InOrder)?;
        Some(format!("{} {}", patch.index, value(effect)))
    });
    let control = attribution
        .noise
        .control
        .iter()
        .map(|control| &control.effect)
        .filter(wanted)
        .map(|effect| format!("A/A {}", value(effect)));
    patches.chain(control).collect::<Vec<_>>().join(", ")
}

/// Formats the closure check of one workload and meter: `total +1.84 ± 0.21 %, directly +1.79 ± 0.25 %`; empty
/// when there is none yet.
pub(super) fn closure(attribution: &Attribution, workload: &str, meter: Meter) -> String {
    let wanted = |check: &&Closure| check.workload == workload && check.meter == meter;
    let part = |part: &ClosureSide| figure(meter, part.estimate, part.low.zip(part.high));
    attribution
        .closure
        .iter()
        .find(wanted)
        .map(|check| {
            let (total, direct) = (part(&check.total), part(&check.direct));
            format!("total {total}, directly {direct}")
        })
        .unwrap_or_default()
}

fn value(effect: &Effect) -> String {
    let ends = effect.low.zip(effect.high).filter(|_| !effect.identical);
    figure(effect.meter, effect.estimate, ends)
}

fn figure(meter: Meter, estimate: f64, ends: Option<(f64, f64)>) -> String {
    let percent = 100.0 * estimate;
    // Counts are far more precise than times.
    let digits = match meter {
        Meter::Instructions => 3,
        _ => 2,
    };
    let half = match ends {
        Some((low, high)) => format!(" ± {:.digits$}", 50.0 * (high - low)),
        None => String::new(),
    };
    // Avoids a negative zero.
    let percent = if percent.abs() < 0.5 * 10f64.powi(-(digits as i32)) {
        0.0
    } else {
        percent
    };
    format!("{percent:+.digits$}{half} %").replace('-', "\u{2212}")
}
