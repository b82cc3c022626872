//! The line after a block: what is known so far.

use crate::attribution::{Attribution, Effect, Kind};
use crate::observation::Meter;

/// `1 +0.45 ± 0.30 %, 2 −1.20 ± 0.33 %, A/A +0.02 ± 0.28 %` of one workload and meter; empty when
/// nothing is known yet.
pub(super) fn effects(attribution: &Attribution, workload: &str, meter: Meter) -> String {
    let wanted = |effect: &&Effect| effect.workload == workload && effect.meter == meter;
    let patches = attribution.patches.iter().filter_map(|patch| {
        let effect = patch
            .effects
            .iter()
            .filter(wanted)
            .find(|effect| effect.kind == Kind::InOrder)?;
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

fn value(effect: &Effect) -> String {
    let percent = 100.0 * effect.estimate;
    // Counts are known much more exactly than times.
    let digits = match effect.meter {
        Meter::Instructions => 3,
        _ => 2,
    };
    let half = match (effect.low, effect.high) {
        (Some(low), Some(high)) if !effect.identical => {
            format!(" ± {:.digits$}", 50.0 * (high - low))
        }
        _ => String::new(),
    };
    // No negative zero.
    let percent = if percent.abs() < 0.5 * 10f64.powi(-(digits as i32)) {
        0.0
    } else {
        percent
    };
    format!("{percent:+.digits$}{half} %").replace('-', "\u{2212}")
}
