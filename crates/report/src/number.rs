//! Formatting of figures: per cent with a true minus sign, with equal decimals in a column. [`Effect::shown`] decides
//! which quantity a figure is a change of, and so its sign.

use perfquilt_judge::attribution::{Effect, ShownChange};
use perfquilt_judge::stats::median;
use perfquilt_model::observation::Meter;

/// Returns the decimals of a meter's percentages: as many as it can resolve on a quiet machine, more if most half-widths
/// would round to zero.
pub(super) fn decimals<'a>(meter: Meter, effects: impl Iterator<Item = &'a Effect>) -> usize {
    let usual: usize = match meter {
        Meter::Instructions => 3,
        _ => 2,
    };
    let mut half_widths: Vec<f64> = effects
        .filter(|effect| effect.is_measured())
        .filter_map(|effect| effect.shown().ends())
        .map(|(low, high)| 100.0 * (high - low) / 2.0)
        .collect();
    let Some(typical) = median(&mut half_widths) else {
        return usual;
    };
    (usual..6)
        .find(|&places| typical >= 0.5 * 10f64.powi(-i32::try_from(places).unwrap_or(0)))
        .unwrap_or(usual)
}

/// Largest percentage that is shown in digits.
const HUGE: f64 = 1e6;

/// Formats a fraction as signed per cent without the unit: `+0.42`, `−0.42`, `0.00`, `> 10⁶`.
pub(super) fn signed(fraction: f64, places: usize) -> String {
    if fraction.abs() * 100.0 > HUGE {
        let text = if fraction < 0.0 {
            "< −10⁶"
        } else {
            "> 10⁶"
        };
        return text.to_owned();
    }
    let text = format!("{:.places$}", fraction.abs() * 100.0);
    match fraction {
        _ if is_zero(&text) => text,
        f if f < 0.0 => format!("−{text}"),
        _ => format!("+{text}"),
    }
}

/// Formats a fraction as per cent without unit, and without a plus sign: `0.42`, `−0.42`.
pub(super) fn plain(fraction: f64, places: usize) -> String {
    let text = signed(fraction, places);
    match text.strip_prefix('+') {
        Some(rest) => rest.to_owned(),
        None => text,
    }
}

/// Formats a standard deviation or margin as per cent with two significant digits: `0.40 %`, `0.0012 %`.
pub(super) fn spread(fraction: f64) -> String {
    format!("{} %", significant(fraction * 100.0))
}

/// Formats a non-negative value with two significant digits: `12`, `0.40`, `0.0012`; less than a millionth is `0.00`.
pub(super) fn significant(value: f64) -> String {
    let places = (0..8usize)
        .find(|&places| value * 10f64.powi(i32::try_from(places).unwrap_or(0)) >= 10.0)
        .unwrap_or(2);
    format!("{value:.places$}")
}

/// Formats a count without decimals, in groups of three: `1,234,567`; above 10¹⁵ as `> 10¹⁵`.
pub(super) fn grouped(count: f64) -> String {
    if count > 1e15 {
        return "> 10¹⁵".to_owned();
    }
    let digits = format!("{:.0}", count.abs());
    let sign = if count < 0.0 && !is_zero(&digits) {
        "−"
    } else {
        ""
    };
    let mut text = String::from(sign);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns whether all digits are zero, so that the number needs no sign.
pub(super) fn is_zero(digits: &str) -> bool {
    digits.bytes().all(|b| b == b'0' || b == b'.')
}

/// Formats a margin as per cent without trailing zeros: `0.5 %`.
pub(super) fn margin(fraction: f64) -> String {
    let text = format!("{:.4}", fraction * 100.0);
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text} %")
}

/// Largest relative difference between the halves of an interval that is shown as ±.
const LOPSIDED: f64 = 0.05;

/// The words for an effect on a workload that does not execute the patch.
pub(super) const NOT_EXECUTED: &str = "not executed";

/// Formats an effect with its interval: `+0.42 % ± 0.11`, or `+37.12 % [+30.01, +45.28]` if the interval is
/// visibly asymmetric.
pub(super) fn effect(effect: &Effect, places: usize) -> String {
    if !effect.executed {
        return NOT_EXECUTED.to_owned();
    }
    if effect.identical {
        return "0 %".to_owned();
    }
    change(&effect.shown(), places)
}

/// Formats an effect like [`effect`], with the quantity that changes unless it is the speed: `−0.29 % ± 0.01
/// instructions`.
pub(super) fn named(effect: &Effect, places: usize) -> String {
    let figure = self::effect(effect, places);
    if effect.meter.is_shown_as_speed() || !effect.executed {
        figure
    } else {
        format!("{figure} {}", effect.meter.shown_quantity())
    }
}

/// Formats a change with its interval, in the form of [`effect`].
pub(super) fn change(of: &ShownChange, places: usize) -> String {
    interval(of.estimate, of.ends(), places)
}

/// Formats a fraction with the ends of its interval, in the form of [`effect`].
pub(super) fn interval(estimate: f64, ends: Option<(f64, f64)>, places: usize) -> String {
    let shown = signed(estimate, places);
    let Some((low, high)) = ends else {
        return format!("{shown} % ± ?");
    };
    let above = high - estimate;
    let below = estimate - low;
    let half = above.max(below);
    let unit = 0.01 * 10f64.powi(-i32::try_from(places).unwrap_or(0));
    let even = (above - below).abs() <= unit.max(LOPSIDED * half);
    let leaves_out_zero = low > 0.0 || high < 0.0;
    let enough = enough_decimals(ends, places);
    if enough > places {
        return interval(estimate, ends, enough);
    }
    // Zeros behind the point beside digits of the interval would look like a precision that is not there.
    let short = |text: String| {
        if is_zero(&text) && half > 1e-9 {
            "0".to_owned()
        } else {
            text
        }
    };
    let shown = short(shown);
    if even && (!leaves_out_zero || half < estimate.abs()) {
        // Only values that never differed, apart from rounding errors, are shown with ± 0.
        let half = if half > 1e-9 { half.max(unit) } else { half };
        return format!("{shown} % ± {}", plain(half, places));
    }
    format!(
        "{shown} % [{}, {}]",
        short(signed(low, places)),
        short(signed(high, places))
    )
}

/// Returns the decimals, `places` or more, with which an interval that excludes 0 does so after rounding, too.
pub(super) fn enough_decimals(ends: Option<(f64, f64)>, places: usize) -> usize {
    let Some((low, high)) =
        ends.filter(|(low, high)| (*low > 0.0 || *high < 0.0) && high - low > 2e-9)
    else {
        return places;
    };
    let nearer = low.abs().min(high.abs());
    let shows = |places: &usize| !is_zero(&plain(nearer, *places));
    (places..6).find(shows).unwrap_or(places.max(6))
}

/// Formats two shares as per cent, `0.42 → 0.51 %`, with as many decimals as it takes for no share above 0 to become 0.
pub(super) fn shares(before: f64, after: f64, places: usize) -> String {
    let shows = |share: f64, places| share < 1e-9 || !is_zero(&plain(share, places));
    let enough = |places: &usize| shows(before, *places) && shows(after, *places);
    let places = (places..6).find(enough).unwrap_or(6);
    let one = |share: f64| match share {
        share if share < 1e-9 => "0".to_owned(),
        share => plain(share, places),
    };
    format!("{} → {} %", one(before), one(after))
}

/// Formats a duration in seconds: `3.2 s`, `22 min 57 s`, `6 h 12 min`.
pub(super) fn seconds(seconds: f64) -> String {
    if seconds <= 0.0 {
        return "0 s".to_owned();
    }
    if seconds < 10.0 {
        return format!("{seconds:.1} s");
    }
    if seconds < 60.0 {
        return format!("{seconds:.0} s");
    }
    let whole = seconds.round() as u64;
    match whole {
        0..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

/// Says which quantities the figures of `meters` are changes of, and which sign is better, without a full stop: `Per cent
/// of speed (+ is faster) and of instructions (− is fewer, which is better)`.
pub(super) fn units(meters: &[Meter]) -> String {
    let meters: &[Meter] = if meters.is_empty() {
        &[Meter::Time]
    } else {
        meters
    };
    let parts: Vec<String> = meters
        .iter()
        .map(|meter| {
            let quantity = meter.shown_quantity();
            if meter.is_shown_as_speed() {
                format!("{quantity} (+ is {})", meter.better())
            } else {
                format!("{quantity} (− is {}, which is better)", meter.better())
            }
        })
        .collect();
    format!("Per cent of {}", parts.join(" and of "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use perfquilt_judge::attribution::{EffectKind, StoppingRule, Verdict};
    use perfquilt_model::point::Point;

    fn of(estimate: f64, low: f64, high: f64) -> Effect {
        Effect {
            kind: EffectKind::InOrder,
            workload: "w".into(),
            meter: Meter::Time,
            point: Point::Step(1),
            against: Point::BASE,
            estimate,
            low: Some(low),
            high: Some(high),
            level: 0.95,
            interval: StoppingRule::FixedSample,
            standard_error: None,
            verdict: Verdict::Unclear,
            minimum_detectable: None,
            equivalent: false,
            p_value: None,
            p_adjusted: None,
            error_share: None,
            blocks: 5,
            units: 5,
            identical: false,
            executed: true,
            unpaired: false,
            with_control: false,
            tail: None,
            cells: None,
            withheld: None,
            provenance: None,
            basis: None,
            of_blocks: None,
            ended_half_width: None,
            run: None,
        }
    }

    #[test]
    fn signs_and_zero() {
        assert_eq!(signed(0.0042, 2), "+0.42");
        assert_eq!(signed(-0.0042, 2), "−0.42");
        assert_eq!(signed(-0.000_01, 2), "0.00");
        assert_eq!(plain(0.0042, 1), "0.4");
        assert_eq!(plain(-0.0042, 1), "−0.4");
        assert_eq!(signed(f64::MAX, 2), "> 10⁶");
        assert_eq!(signed(-1e9, 2), "< −10⁶");
        assert_eq!(plain(f64::INFINITY, 2), "> 10⁶");
        assert_eq!(signed(1e4, 0), "+1000000");
    }

    #[test]
    fn intervals() {
        assert_eq!(effect(&of(0.0042, 0.0031, 0.0053), 2), "+0.42 % ± 0.11");
        assert_eq!(
            effect(&of(0.3712, 0.3001, 0.4528), 2),
            "+37.12 % [+30.01, +45.28]"
        );
        assert_eq!(effect(&of(-0.0001, -0.006, 0.0058), 2), "−0.01 % ± 0.59");
        assert_eq!(effect(&of(0.01, 0.009_99, 0.010_01), 2), "+1.00 % ± 0.01");
        assert_eq!(effect(&of(0.01, 0.01, 0.01), 2), "+1.00 % ± 0.00");
        assert_eq!(
            effect(&of(30.6, -0.999_999, f64::MAX), 2),
            "+3060.00 % [−100.00, > 10⁶]"
        );
        let mut barely = of(0.024, 0.0002, 0.0485);
        barely.verdict = Verdict::Faster;
        assert_eq!(effect(&barely, 2), "+2.40 % [+0.02, +4.85]");
        // A shown effect is never rounded to 0.
        assert_eq!(
            effect(&of(0.000_04, 0.000_02, 0.000_06), 2),
            "+0.004 % ± 0.002"
        );
        // No zeros behind the point beside other digits.
        assert_eq!(effect(&of(0.000_04, -0.003, 0.0031), 2), "0 % ± 0.31");
        assert_eq!(effect(&of(-0.03, -0.06, 0.000_01), 2), "−3.00 % ± 3.00");
        assert_eq!(effect(&of(0.02, 0.0, 0.09), 2), "+2.00 % [0, +9.00]");
        assert_eq!(effect(&of(0.0, 0.0, 0.0), 2), "0.00 % ± 0.00");
        let mut single = of(0.01, 0.0, 0.0);
        (single.low, single.high) = (None, None);
        assert_eq!(effect(&single, 2), "+1.00 % ± ?");
    }

    #[test]
    fn a_share_above_0_is_not_shown_as_0() {
        assert_eq!(shares(0.0042, 0.0051, 2), "0.42 → 0.51 %");
        assert_eq!(shares(0.000_043, 0.000_37, 2), "0.004 → 0.037 %");
        assert_eq!(shares(0.0, 0.000_37, 2), "0 → 0.04 %");
        assert_eq!(shares(0.0, 0.0, 2), "0 → 0 %");
    }

    #[test]
    fn decimals_grow_when_intervals_are_narrow() {
        assert_eq!(decimals(Meter::Time, [of(0.1, 0.09, 0.11)].iter()), 2);
        assert_eq!(
            decimals(Meter::Time, [of(0.1, 0.099_99, 0.100_01)].iter()),
            3
        );
        assert_eq!(decimals(Meter::Instructions, std::iter::empty()), 3);
        // A figure known beyond what is worth printing keeps the usual places.
        assert_eq!(decimals(Meter::Time, [of(0.1, 0.1, 0.1)].iter()), 2);
    }

    #[test]
    fn spreads_durations_margins() {
        assert_eq!(spread(0.004), "0.40 %");
        assert_eq!(spread(0.0107), "1.1 %");
        assert_eq!(spread(0.000_012_3), "0.0012 %");
        assert_eq!(spread(0.123), "12 %");
        assert_eq!(spread(0.0), "0.00 %");
        assert_eq!(significant(0.0123), "0.012");
        assert_eq!(significant(123.4), "123");
        assert_eq!(grouped(-1_234_567.0), "−1,234,567");
        assert_eq!(grouped(-0.2), "0");
        assert_eq!(grouped(f64::INFINITY), "> 10¹⁵");
        assert_eq!(margin(0.005), "0.5 %");
        assert_eq!(margin(0.01), "1 %");
        assert_eq!(margin(0.0005), "0.05 %");
        assert_eq!(seconds(0.0), "0 s");
        assert_eq!(seconds(3.21), "3.2 s");
        assert_eq!(seconds(59.4), "59 s");
        assert_eq!(seconds(1377.0), "22 min 57 s");
        assert_eq!(seconds(22_320.0), "6 h 12 min");
    }
}
