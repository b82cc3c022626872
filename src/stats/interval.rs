//! A mean over blocks with its interval.

use std::sync::OnceLock;

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

use super::sequential::{Looks, bayes_factor};

/// The confidence level of every interval.
pub const LEVEL: f64 = 0.95;

/// The power behind "the smallest effect that would have been seen".
pub const POWER: f64 = 0.8;

/// Half-widths below this are rounding, not knowledge: no meter resolves a part in a thousand
/// million.
const RESOLUTION: f64 = 1e-9;

/// The mean of one number a block and what is known about it, on the log scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The mean.
    pub estimate: f64,
    /// Half the width of the interval at the level of [`Looks::level`]; infinite with a single block,
    /// and with few blocks of an experiment that goes on.
    pub half_width: f64,
    /// Standard error of the mean; infinite with a single block.
    pub standard_error: f64,
    /// How far the estimate may be off because the meter tells whole steps only; part of the half-width.
    pub rounding: f64,
    /// Blocks: one more than the degrees of freedom.
    pub blocks: usize,
    /// How the number of blocks came about.
    pub looks: Looks,
}

impl Interval {
    /// Student's interval for the mean of `values`, one a block, whose number was fixed beforehand;
    /// `None` without values.
    ///
    /// The block is the unit: its servers were started afresh, so blocks are independent, whatever
    /// happens inside them. `n` blocks leave `n − 1` degrees of freedom.
    pub fn of(values: &[f64]) -> Option<Self> {
        Self::after(values, Looks::Fixed)
    }

    /// The interval for the mean of `values` whose number came about as `looks` says; `None` without
    /// values.
    pub fn after(values: &[f64], looks: Looks) -> Option<Self> {
        if values.is_empty() {
            return None;
        }
        let n = values.len() as f64;
        let estimate = values.iter().sum::<f64>() / n;
        let mut interval = Interval {
            estimate,
            half_width: f64::INFINITY,
            standard_error: f64::INFINITY,
            rounding: 0.0,
            blocks: values.len(),
            looks,
        };
        if values.len() > 1 {
            let squares: f64 = values.iter().map(|v| (v - estimate).powi(2)).sum();
            interval.standard_error = (squares / (n - 1.0) / n).sqrt();
            let reach = looks.reach(values.len());
            if reach.is_finite() {
                interval.half_width = (reach * interval.standard_error).max(RESOLUTION);
            }
        }
        Some(interval)
    }

    /// The interval's lower end.
    pub fn low(&self) -> f64 {
        self.estimate - self.half_width
    }

    /// The interval's upper end.
    pub fn high(&self) -> f64 {
        self.estimate + self.half_width
    }

    /// Whether 0 lies in the interval.
    pub fn contains_zero(&self) -> bool {
        self.low() <= 0.0 && 0.0 <= self.high()
    }

    /// The probability of an estimate as far from 0 or farther, if there is no effect; 1 with a single
    /// block. At most 1 − the level exactly where the interval leaves out 0.
    ///
    /// Student's test, both sides; for [`Looks::Any`] the reciprocal of [`bayes_factor`], which at all
    /// looks together is at most α with probability at most α.
    pub fn p_value(&self) -> f64 {
        if self.blocks < 2 {
            return 1.0;
        }
        let reach = self.looks.reach(self.blocks);
        // As wide as the interval, which never gets narrower than the resolution.
        let error = match reach.is_finite() {
            // Where rounding is all there is, the difference may have no digit left.
            true => (self.half_width - self.rounding).max(RESOLUTION) / reach,
            false => self.standard_error.max(RESOLUTION),
        };
        let statistic = (self.estimate.abs() - self.rounding).max(0.0) / error;
        let freedom = (self.blocks - 1) as f64;
        match self.looks {
            Looks::Any => (1.0 / bayes_factor(statistic, self.blocks)).min(1.0),
            Looks::Fixed | Looks::Widths => {
                let narrower = reach / student(0.5 + LEVEL / 2.0, freedom);
                StudentsT::new(0.0, 1.0, freedom).map_or(1.0, |t| 2.0 * t.sf(statistic / narrower))
            }
        }
    }

    /// Whether the whole interval lies within ± `margin` of speed (a fraction): shown equivalent, by
    /// two one-sided tests at half of 1 − [`LEVEL`] each. Schuirmann, *A comparison of the two
    /// one-sided tests procedure and the power approach for assessing the equivalence of average
    /// bioavailability*, J. Pharmacokinetics and Biopharmaceutics 15 (1987).
    pub fn equivalent(&self, margin: f64) -> bool {
        speed(self.low()) >= -margin && speed(self.high()) <= margin
    }

    /// The smallest effect whose interval would have excluded 0 with probability [`POWER`]:
    /// `(t(0.975) + t(0.8)) · standard error`, with the reach of the interval at hand in the place of
    /// `t(0.975)`. Infinite where the interval is.
    pub fn minimum_detectable(&self) -> f64 {
        if self.half_width.is_infinite() {
            return f64::INFINITY;
        }
        let freedom = (self.blocks - 1) as f64;
        let reach = self.looks.reach(self.blocks) + student(POWER, freedom);
        (reach * self.standard_error).max(RESOLUTION) + self.rounding
    }
}

impl Interval {
    /// The difference `self − other` of two means whose blocks are independent of each other, with the
    /// degrees of freedom of Welch, *The generalization of "Student's" problem when several different
    /// population variances are involved*, Biometrika 34 (1947). Its `blocks` are those of both.
    pub fn less(&self, other: &Interval) -> Interval {
        let of_both = |f: &dyn Fn(&Interval) -> f64| f(self) + f(other);
        let variance = of_both(&|part| part.standard_error.powi(2));
        let estimate = self.estimate - other.estimate;
        let blocks = self.blocks + other.blocks;
        if !variance.is_finite() {
            return Interval {
                estimate,
                half_width: f64::INFINITY,
                standard_error: f64::INFINITY,
                rounding: 0.0,
                blocks,
                looks: Looks::Fixed,
            };
        }
        let parts = of_both(&|part| part.standard_error.powi(4) / (part.blocks.max(2) - 1) as f64);
        let freedom = if parts > 0.0 {
            variance.powi(2) / parts
        } else {
            1.0
        };
        let half_width = student(0.5 + LEVEL / 2.0, freedom) * variance.sqrt();
        Interval {
            estimate,
            half_width: half_width.max(RESOLUTION),
            standard_error: variance.sqrt(),
            rounding: 0.0,
            blocks,
            looks: Looks::Fixed,
        }
    }

    /// The difference of the means of `values` and `others`, two samples that share no block, by Student's
    /// test for two samples with a common variance; `None` when one of them is empty. A single value on one
    /// side is enough: the other side tells how values vary. There are `values + others − 2` degrees of
    /// freedom.
    pub fn of_two_samples(values: &[f64], others: &[f64]) -> Option<Self> {
        let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
        if values.is_empty() || others.is_empty() {
            return None;
        }
        let squares = |of: &[f64]| of.iter().map(|v| (v - mean(of)).powi(2)).sum::<f64>();
        let freedom = values.len() + others.len() - 2;
        let mut interval = Interval {
            estimate: mean(values) - mean(others),
            half_width: f64::INFINITY,
            standard_error: f64::INFINITY,
            rounding: 0.0,
            blocks: freedom + 1,
            looks: Looks::Fixed,
        };
        if freedom > 0 {
            let variance = (squares(values) + squares(others)) / freedom as f64;
            let error = variance * (1.0 / values.len() as f64 + 1.0 / others.len() as f64);
            interval.standard_error = error.sqrt();
            let reach = student(0.5 + LEVEL / 2.0, freedom as f64);
            interval.half_width = (reach * interval.standard_error).max(RESOLUTION);
        }
        Some(interval)
    }

    /// The same where the estimate may be off by up to `rounding` because values are known in whole steps
    /// only. Rounding hits every repeat alike, so that no number of them makes it smaller: the interval gets
    /// wider by all of it.
    #[must_use]
    pub fn rounded(self, rounding: f64) -> Self {
        Interval {
            half_width: self.half_width + rounding,
            rounding: self.rounding + rounding,
            ..self
        }
    }
}

/// A log ratio of costs (before/after) as a fraction of speed: 0.01 is 1 % faster. Never infinite: JSON has no such
/// number.
pub fn speed(log_ratio: f64) -> f64 {
    log_ratio.exp_m1().clamp(-1.0, f64::MAX)
}

/// The quantile of the standard normal distribution at probability `p`.
pub fn normal_quantile(p: f64) -> f64 {
    Normal::standard().inverse_cdf(p)
}

/// The quantile of Student's distribution at probability `p`. Those that every interval needs are
/// computed once.
pub(super) fn student(p: f64, freedom: f64) -> f64 {
    static KNOWN: [OnceLock<Vec<f64>>; 2] = [const { OnceLock::new() }; 2];
    let quantile = |freedom: f64| {
        StudentsT::new(0.0, 1.0, freedom).map_or(f64::INFINITY, |t| t.inverse_cdf(p))
    };
    let kept = [0.5 + LEVEL / 2.0, POWER]
        .iter()
        .position(|&kept| kept == p);
    match kept {
        Some(place) if (1.0..=KEPT as f64).contains(&freedom) && freedom.fract() == 0.0 => {
            let all = || (1..=KEPT).map(|freedom| quantile(freedom as f64)).collect();
            KNOWN[place].get_or_init(all)[freedom as usize - 1]
        }
        _ => quantile(freedom),
    }
}

/// The most degrees of freedom whose quantiles are kept.
const KEPT: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_is_a_number_whatever_the_costs_are() {
        assert_eq!(speed(0.0), 0.0);
        assert_eq!(speed(-1e4), -1.0);
        assert_eq!(speed(1e300_f64.ln() - 1e-300_f64.ln()), f64::MAX);
    }

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (p, freedom, expected) in [
            (0.975, 1.0, 12.7062),
            (0.975, 2.0, 4.302_65),
            (0.975, 5.0, 2.570_58),
            (0.975, 23.0, 2.068_66),
            (0.975, 1e5, 1.959_99),
            (0.8, 1.0, 1.376_38),
            (0.8, 10.0, 0.879_06),
        ] {
            let found = student(p, freedom);
            assert!(
                (found / expected - 1.0).abs() < 1e-5,
                "{p} {freedom}: {found}"
            );
        }
    }

    #[test]
    fn known_example() {
        let interval = Interval::of(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert!((interval.estimate - 3.0).abs() < 1e-12);
        assert!((interval.standard_error - 0.5f64.sqrt()).abs() < 1e-12);
        assert!((interval.half_width - 2.776_445 * 0.5f64.sqrt()).abs() < 1e-5);
    }

    #[test]
    fn the_probability_is_that_of_the_t_test() {
        // t = 3 / sqrt(0.5) with 4 degrees of freedom.
        let interval = Interval::of(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert!((interval.p_value() - 0.013_235).abs() < 1e-5);
        let none = Interval::of(&[-0.01, 0.01]).unwrap();
        assert!((none.p_value() - 1.0).abs() < 1e-12);
        // It reaches 5 % where the interval reaches 0.
        let values = [0.0, 1.0, 2.0, 3.5];
        let half = Interval::of(&values).unwrap().half_width;
        let mean = 6.5 / 4.0;
        let border = Interval::of(&values.map(|v| v - mean + half)).unwrap();
        assert!((border.p_value() - 0.05).abs() < 1e-9);
    }

    #[test]
    fn differences_of_independent_means_are_welchs() {
        let a = Interval::of(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        let b = Interval::of(&[2.0, 2.5, 4.0]).unwrap();
        let difference = a.less(&b);
        assert!((difference.estimate - (3.0 - 8.5 / 3.0)).abs() < 1e-12);
        let variance: f64 = 0.5 + 13.0 / 12.0 / 3.0;
        assert!((difference.standard_error - variance.sqrt()).abs() < 1e-12);
        let freedom = variance.powi(2) / (0.25 / 4.0 + (13.0f64 / 36.0).powi(2) / 2.0);
        let expected = student(0.975, freedom) * variance.sqrt();
        assert!((difference.half_width - expected).abs() < 1e-12);
        let single = Interval::of(&[1.0]).unwrap();
        assert!(a.less(&single).half_width.is_infinite());
        let same = Interval::of(&[1.0; 3]).unwrap();
        assert!(same.less(&same).contains_zero());
    }

    #[test]
    fn two_samples_are_compared_by_students_test() {
        let (a, b) = ([18.0, 20.0, 22.0], [19.0, 22.0, 24.0, 25.0]);
        let found = Interval::of_two_samples(&a, &b).unwrap();
        assert!((found.estimate + 2.5).abs() < 1e-12);
        let pooled: f64 = (8.0 + 21.0) / 5.0;
        let error = (pooled * (1.0 / 3.0 + 1.0 / 4.0)).sqrt();
        assert!((found.standard_error - error).abs() < 1e-12);
        assert!((found.half_width - 2.570_582 * error).abs() < 1e-5);
        // One run against three: the three tell how runs vary.
        let one = Interval::of_two_samples(&[0.0], &[0.01, 0.02, 0.03]).unwrap();
        assert!((one.standard_error - 0.01 * (4.0f64 / 3.0).sqrt()).abs() < 1e-12);
        assert!((one.half_width - 4.302_653 * one.standard_error).abs() < 1e-6);
        assert!(one.contains_zero());
        let alone = Interval::of_two_samples(&[0.0], &[0.01]).unwrap();
        assert!(alone.half_width.is_infinite() && alone.p_value() == 1.0);
        assert_eq!(Interval::of_two_samples(&[], &[0.01]), None);
    }

    #[test]
    fn rounding_widens_and_no_repeat_makes_up_for_it() {
        let same = Interval::of(&[0.01; 6]).unwrap();
        let rounded = same.rounded(0.02);
        assert!(!same.contains_zero() && rounded.contains_zero());
        assert!(rounded.p_value() > 0.99);
        assert!(rounded.minimum_detectable() > 0.02);
        let clear = Interval::of(&[0.05, 0.051, 0.052]).unwrap().rounded(0.02);
        assert!(!clear.contains_zero() && clear.p_value() < 0.05);
        for absurd in [1e300, f64::MAX, f64::INFINITY] {
            assert!((same.rounded(absurd).p_value() - 1.0).abs() < 1e-12);
        }
    }

    #[test]
    fn one_block_says_nothing() {
        let interval = Interval::of(&[0.5]).unwrap();
        assert_eq!(interval.p_value(), 1.0);
        assert!(interval.contains_zero());
        assert!(!interval.equivalent(0.9));
        assert!(interval.minimum_detectable().is_infinite());
        assert_eq!(Interval::of(&[]), None);
    }

    #[test]
    fn two_blocks_give_a_wide_interval() {
        let interval = Interval::of(&[0.01, 0.02]).unwrap();
        assert!((interval.half_width - 12.7062 * 0.005).abs() < 1e-4);
        assert!(interval.contains_zero());
    }

    #[test]
    fn equal_values_are_not_known_better_than_a_meter_resolves() {
        let same = Interval::of(&[0.0; 6]).unwrap();
        assert!(same.contains_zero() && same.equivalent(0.001));
        let dust = Interval::of(&[1e-16, 1e-16, 0.0]).unwrap();
        assert!(dust.contains_zero());
        let shifted = Interval::of(&[0.01; 6]).unwrap();
        assert!(!shifted.contains_zero());
    }

    #[test]
    fn the_minimum_detectable_effect_is_detected_four_times_in_five() {
        // Wider than the half-width, by t(0.8)/t(0.975).
        let interval = Interval::of(&[-0.01, 0.0, 0.01, 0.002, -0.002]).unwrap();
        let ratio = interval.minimum_detectable() / interval.half_width;
        assert!(
            (ratio - (2.776_445 + 0.940_965) / 2.776_445).abs() < 1e-4,
            "{ratio}"
        );
    }
}
