//! Formats the line after a block: the effects so far.

use perfquilt_judge::attribution::{Attribution, Effect, EffectKind, EndToEnd, ShownChange};
use perfquilt_judge::stats::SpeedChange;
use perfquilt_model::observation::Meter;
use perfquilt_model::point::Point;

/// The most patches whose effects are all on one line.
const FEW_PATCHES: usize = 8;

/// Formats the effects of patches on one workload and meter: `1 +0.45 % ± 0.30, 2 −1.20 % ± 0.33, A/A +0.02 % ± 0.28`;
/// empty when there is none yet. Of a long series, they are those between `points`.
pub(super) fn patches(attribution: &Attribution, row: (&str, Meter), points: &[Point]) -> String {
    let steps = points.iter().filter_map(Point::step);
    let (low, high) = (steps.clone().min(), steps.max());
    let is_near = |index: usize| {
        // The first point of a window is the last one of the window before.
        let behind = low.is_some_and(|low| index > low || low == 1 && index == 1);
        let all = attribution.patches.len() <= FEW_PATCHES;
        all || behind && high.is_some_and(|high| index <= high)
    };
    let patches = attribution.patches.iter().filter_map(|patch| {
        let in_order = |effect: &&Effect| effect.kind == EffectKind::InOrder;
        let mut effects = patch.effects.iter().filter(in_order);
        let effect = effects.find(|effect| is_wanted(effect, row))?;
        is_near(patch.index).then(|| format!("{} {}", patch.index, value(effect)))
    });
    let control = attribution.noise.control.iter();
    let control = control.map(|control| &control.effect);
    let control = control.filter(|effect| is_wanted(effect, row));
    let control = control.map(|effect| format!("A/A {}", value(effect)));
    patches.chain(control).collect::<Vec<_>>().join(", ")
}

fn is_wanted(effect: &Effect, (workload, meter): (&str, Meter)) -> bool {
    effect.workload == workload && effect.meter == meter && effect.is_measured()
}

/// Formats the end-to-end check of one workload and meter: `total +1.84 % ± 0.21, directly +1.79 % ± 0.25`; empty
/// when there is none yet.
pub(super) fn end_to_end(attribution: &Attribution, workload: &str, meter: Meter) -> String {
    let wanted = |check: &&EndToEnd| check.workload == workload && check.meter == meter;
    let part = |part: &SpeedChange| figure(meter, part.estimate, part.ends());
    attribution
        .end_to_end
        .iter()
        .find(wanted)
        .map(|check| {
            let (total, direct) = (part(&check.total), part(&check.direct));
            format!("total {total}, directly {direct}")
        })
        .unwrap_or_default()
}

/// Formats an effect with the width of its interval if the experiment ended now, from the second unit on. The report of a
/// running experiment has intervals that hold at every look, which are wider, and infinite before some blocks.
fn value(effect: &Effect) -> String {
    let width = effect
        .ended_half_width
        .filter(|width| *width > 0.0 && !effect.identical);
    // The width is that of the logarithm.
    let end = |distance: f64| (effect.estimate.ln_1p() + distance).exp_m1();
    let ends = width.map(|width| (end(-width), end(width)));
    figure(effect.meter, effect.estimate, ends)
}

fn figure(meter: Meter, estimate: f64, ends: Option<(f64, f64)>) -> String {
    let shown = ShownChange::of(meter, estimate, ends);
    let percent = 100.0 * shown.estimate;
    // Counts are far more precise than times.
    let digits = match meter {
        Meter::Instructions => 3,
        _ => 2,
    };
    let half = match shown.ends().map(|(low, high)| (100.0 * low, 100.0 * high)) {
        Some((low, high)) if (high - percent) > 1.05 * (percent - low) => {
            format!(" [{low:+.digits$}, {high:+.digits$}]")
        }
        Some((low, high)) => format!(" ± {:.digits$}", (high - percent).max(percent - low)),
        None => String::new(),
    };
    // Avoids a negative zero.
    let percent = if percent.abs() < 0.5 * 10f64.powi(-(digits as i32)) {
        0.0
    } else {
        percent
    };
    format!("{percent:+.digits$} %{half}").replace('-', "\u{2212}")
}
