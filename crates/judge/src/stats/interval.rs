//! A mean over blocks with its interval.

use std::sync::OnceLock;

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};
use statrs::function::gamma::ln_gamma;

use super::sequential::{Looks, bayes_factor, bayes_factor_above};

/// The confidence level of every interval.
pub const LEVEL: f64 = 0.95;

/// The power behind the minimum detectable effect.
pub const POWER: f64 = 0.8;

/// Half-widths below this are rounding, not knowledge: no meter resolves a part in a thousand
/// million.
const RESOLUTION: f64 = 1e-9;

/// The mean of one number a block and what is known about it, on the log scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The mean.
    pub estimate: f64,
    /// Half the width of the interval at the level of [`Looks::level`]; infinite where nothing can be
    /// said: with a single block, and with few blocks of an experiment that goes on.
    pub half_width: f64,
    /// Standard error of the mean; infinite with a single block.
    pub standard_error: f64,
    /// How far the estimate may be off because the meter tells whole steps only; part of the half-width.
    pub rounding: f64,
    /// Independent blocks.
    pub blocks: usize,
    /// Degrees of freedom of the standard error.
    pub degrees_of_freedom: f64,
    /// How the number of blocks came about.
    pub looks: Looks,
}

/// What the other points of a table tell about how a contrast varies, for meters whose values are
/// counts.
///
/// Counts come in atoms: some starts repeat to 10⁻⁸, others lie 4 · 10⁻⁴ apart. Three blocks that
/// happen to be alike then have next to no variance of their own.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SharedVariance {
    /// Variance of the contrast in one block.
    pub variance: f64,
    /// Its degrees of freedom.
    pub degrees_of_freedom: f64,
    /// The largest distance between two values of one point, what blocks have in common taken out.
    pub range: f64,
}

/// The least number of blocks with counts from which a verdict follows.
const FEWEST_COUNTED: usize = 3;

/// Degrees of freedom below which a side of a difference limits those of the difference.
const FEW: f64 = 5.0;

/// A variance this many times smaller than that of the other points is an accident of counts that come
/// in atoms.
const ATOMS: f64 = 25.0;

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
        let squares: f64 = values.iter().map(|v| (v - estimate).powi(2)).sum();
        let error = (squares / (n - 1.0) / n).sqrt();
        Some(Self::with(estimate, error, values.len(), n - 1.0, looks))
    }

    /// The interval of `estimate` with this standard error on so many degrees of freedom.
    pub fn with(
        estimate: f64,
        standard_error: f64,
        blocks: usize,
        degrees_of_freedom: f64,
        looks: Looks,
    ) -> Self {
        let mut interval = Interval {
            estimate,
            half_width: f64::INFINITY,
            standard_error: f64::INFINITY,
            rounding: 0.0,
            blocks,
            degrees_of_freedom: degrees_of_freedom.max(0.0),
            looks,
        };
        if blocks > 1 && degrees_of_freedom > 0.0 && standard_error.is_finite() {
            interval.standard_error = standard_error;
            let reach = interval.reach(1.0);
            if reach.is_finite() {
                interval.half_width = (reach * standard_error).max(RESOLUTION);
            }
        }
        interval
    }

    /// As [`Interval::after`] for counts, whose variance is never taken to be smaller than that of the
    /// table's other points.
    ///
    /// With `s²` the contrast's own variance over `n` blocks and `s₀²` that of the points together on `ν₀`
    /// degrees of freedom: where `s² ≤ s₀²`, the standard error is `s₀/√n` on `ν₀` degrees of freedom, else
    /// `s/√n` on `min(n, ν₀)`. This is the limit of moderated variances (G. K. Smyth, *Linear models and
    /// empirical Bayes methods for assessing differential expression in microarray experiments*,
    /// Statistical Applications in Genetics and Molecular Biology 3, 2004) in which small variances are
    /// all luck and large ones none. Where `s²` is less than a twenty-fifth of `s₀²`, the interval reaches as
    /// far as two values of one point lie apart. Nothing is said with fewer than three blocks.
    pub fn of_counts(values: &[f64], looks: Looks, shared: Option<SharedVariance>) -> Option<Self> {
        let own = Self::after(values, looks)?;
        if values.len() < FEWEST_COUNTED {
            return Some(Interval {
                half_width: f64::INFINITY,
                standard_error: f64::INFINITY,
                ..own
            });
        }
        let Some(shared) = shared else {
            return Some(own);
        };
        let n = values.len() as f64;
        let variance = own.standard_error.powi(2) * n;
        let (used, freedom) = if variance > shared.variance {
            (variance, n.min(shared.degrees_of_freedom))
        } else {
            (shared.variance, shared.degrees_of_freedom)
        };
        let error = (used / n).sqrt();
        let mut interval = Self::with(own.estimate, error, values.len(), freedom, looks);
        if variance * ATOMS < shared.variance && interval.half_width < shared.range {
            interval.standard_error = shared.range / interval.reach(1.0);
            interval.half_width = shared.range;
        }
        Some(interval)
    }

    /// How many standard errors the interval reaches to each side when it may miss with `share` of the
    /// probability that [`Looks::level`] leaves; infinite where nothing can be said.
    fn reach(&self, share: f64) -> f64 {
        self.looks
            .reach(self.blocks, self.degrees_of_freedom, share)
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

    /// The standard error that the half-width stands for: never below the resolution.
    fn effective_error(&self) -> f64 {
        let reach = self.reach(1.0);
        if reach.is_finite() && self.half_width.is_finite() {
            // Where rounding is all there is, the difference may have no digit left.
            (self.half_width - self.rounding).max(RESOLUTION) / reach
        } else {
            self.standard_error.max(RESOLUTION)
        }
    }

    /// How much wider than Student's the interval is.
    fn widened(&self) -> f64 {
        self.reach(1.0) / student(0.5 + LEVEL / 2.0, self.degrees_of_freedom)
    }

    /// The probability of an estimate as far from 0 or farther, if there is no effect; 1 where nothing can
    /// be said. At most 1 − the level exactly where the interval leaves out 0.
    ///
    /// Student's test, both sides; for [`Looks::Any`] the reciprocal of [`bayes_factor`], which at all
    /// looks together is at most α with probability at most α.
    pub fn p_value(&self) -> f64 {
        if !self.standard_error.is_finite() {
            return 1.0;
        }
        let statistic = (self.estimate.abs() - self.rounding).max(0.0) / self.effective_error();
        match self.looks {
            Looks::Any => (1.0 / bayes_factor(statistic, self.blocks)).min(1.0),
            Looks::Fixed | Looks::Widths => {
                2.0 * upper_tail(
                    statistic * self.widened().recip().max(0.0),
                    self.degrees_of_freedom,
                )
            }
        }
        .min(1.0)
    }

    /// The probability of being as far inside ± `margin` of speed (a fraction) or farther, if the effect
    /// is the margin or more; 1 where nothing can be said. At most 5 % (of an experiment that goes on: 1 %)
    /// is what [`Interval::equivalent`] asks for.
    ///
    /// The larger of two one-sided tests' probabilities: D. J. Schuirmann, *A comparison of the two
    /// one-sided tests procedure and the power approach for assessing the equivalence of average
    /// bioavailability*, J. Pharmacokinetics and Biopharmaceutics 15 (1987). For [`Looks::Any`] the tests
    /// are the reciprocals of [`bayes_factor_above`], which hold at all looks together.
    pub fn equivalence_p_value(&self, margin: f64) -> f64 {
        if !self.standard_error.is_finite() {
            return 1.0;
        }
        let nearer = (margin.ln_1p() - self.estimate).min(self.estimate - (-margin).ln_1p());
        let statistic = (nearer - self.rounding) / self.effective_error();
        match self.looks {
            Looks::Any => (1.0 / bayes_factor_above(statistic, self.blocks)).min(1.0),
            Looks::Fixed | Looks::Widths => {
                upper_tail(statistic / self.widened(), self.degrees_of_freedom)
            }
        }
    }

    /// Whether the effect is shown to lie within ± `margin` of speed (a fraction), by two one-sided tests
    /// at 1 − the level each: the interval at 90 % lies inside.
    pub fn equivalent(&self, margin: f64) -> bool {
        self.equivalence_p_value(margin) <= 1.0 - self.looks.level()
    }

    /// The minimum detectable effect: one of this size would be called with probability [`POWER`] in
    /// another experiment like this one, when `share` of the probability of a false claim is this row's.
    ///
    /// With the critical value `t`, the standard error known on `ν` degrees of freedom in either
    /// experiment and `c` the mean of a standard deviation on so many, it is the `δ` of
    ///
    /// ```text
    /// (δ − t) · c = z(0.8) · √(1 + (δ² + t²)(1 − c²))        c = √(2/ν) · Γ((ν+1)/2) / Γ(ν/2)
    /// ```
    ///
    /// times the standard error: the normal approximation of the non-central t distribution (N. L.
    /// Johnson and B. L. Welch, *Applications of the non-central t-distribution*, Biometrika 31, 1940) with
    /// the uncertainty of the standard error at hand. Infinite where the interval is.
    pub fn minimum_detectable(&self, share: f64) -> f64 {
        if self.half_width.is_infinite() {
            return f64::INFINITY;
        }
        let critical = self.reach(share);
        if !critical.is_finite() {
            return f64::INFINITY;
        }
        let known = mean_of_deviation(self.degrees_of_freedom);
        let (square, rest) = (known * known, 1.0 - known * known);
        let power = normal_quantile(POWER).powi(2);
        let a = square - power * rest;
        let b = square * critical;
        let c = (square - power * rest) * critical.powi(2) - power;
        let root = b * b - a * c;
        let size = if a > 0.0 && root >= 0.0 {
            (b + root.sqrt()) / a
        } else {
            critical + student(POWER, self.degrees_of_freedom)
        };
        // As wide as the interval is, which may be wider than the reach.
        (size * self.effective_error()).max(RESOLUTION) + self.rounding
    }
}

/// The mean of a sample standard deviation on so many degrees of freedom, in units of the true one.
fn mean_of_deviation(freedom: f64) -> f64 {
    let gammas = ln_gamma((freedom + 1.0) / 2.0) - ln_gamma(freedom / 2.0);
    (2.0 / freedom).sqrt() * gammas.exp()
}

/// The probability that Student's statistic exceeds `statistic`.
fn upper_tail(statistic: f64, freedom: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom).map_or(1.0, |t| t.sf(statistic))
}

impl Interval {
    /// The difference `self − other` of two means whose blocks are independent of each other, with the
    /// degrees of freedom of Welch, *The generalization of "Student's" problem when several different
    /// population variances are involved*, Biometrika 34 (1947). Its `blocks` are those of both. Where one side
    /// has fewer than six blocks, Welch's degrees of freedom are too many (11 % false claims with 2 blocks
    /// against 20); those of the smaller side are the limit then: P. L. Hsu, *Contribution to the theory of
    /// "Student's" t-test as applied to the problem of two samples*, Statistical Research Memoirs 2 (1938). What
    /// an interval is wider than Student's for is kept.
    pub fn less(&self, other: &Interval) -> Interval {
        let of_both = |f: &dyn Fn(&Interval) -> f64| f(self) + f(other);
        // What an interval is wider than Student's for is in its error.
        let error = |part: &Interval| part.effective_error() * part.widened();
        let known = self.half_width.is_finite() && other.half_width.is_finite();
        let estimate = self.estimate - other.estimate;
        let blocks = self.blocks + other.blocks;
        if !known {
            return Self::with(estimate, f64::INFINITY, blocks, 0.0, Looks::Fixed);
        }
        let variance = of_both(&|part| error(part).powi(2));
        let parts = of_both(&|part| error(part).powi(4) / part.degrees_of_freedom.max(1.0));
        let welch = if parts > 0.0 {
            variance.powi(2) / parts
        } else {
            1.0
        };
        let smaller = self.degrees_of_freedom.min(other.degrees_of_freedom);
        let freedom = if smaller < FEW {
            welch.min(smaller.max(1.0))
        } else {
            welch
        };
        Self::with(estimate, variance.sqrt(), blocks, freedom, Looks::Fixed)
    }

    /// The difference of the means of `values` and `others`, two samples that share no block and may vary
    /// unlike, by Welch's test ([`Interval::less`]); `None` when one of them is empty. Nothing is said
    /// where one has a single value: how that varies is not known.
    pub fn of_two_samples(values: &[f64], others: &[f64]) -> Option<Self> {
        Some(Self::of(values)?.less(&Self::of(others)?))
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
    fn two_samples_are_compared_by_welchs_test() {
        // scipy.stats.ttest_ind(a, b, equal_var=False)
        let a = [18.0, 20.0, 22.0, 19.0, 21.0, 20.5, 23.0];
        let b = [19.0, 22.0, 24.0, 25.0, 31.0, 17.0];
        let found = Interval::of_two_samples(&a, &b).unwrap();
        assert!((found.estimate + 2.5).abs() < 0.01, "{found:?}");
        assert!(
            (found.degrees_of_freedom - 6.0244).abs() < 1e-3,
            "{found:?}"
        );
        assert!(
            (found.p_value() - 0.2822).abs() < 1e-4,
            "{}",
            found.p_value()
        );
        // Of few blocks on one side, these limit what is known.
        let few = Interval::of_two_samples(&a[..3], &b).unwrap();
        assert_eq!(few.degrees_of_freedom, 2.0);
        // One run says nothing about how runs vary.
        for (a, b) in [(&[0.0][..], &[0.01, 0.02, 0.03][..]), (&[0.0], &[0.01])] {
            let one = Interval::of_two_samples(a, b).unwrap();
            assert!(one.half_width.is_infinite() && one.p_value() == 1.0);
            assert!(one.contains_zero() && !one.equivalent(0.9));
        }
        assert_eq!(Interval::of_two_samples(&[], &[0.01]), None);
        let same = Interval::of(&[1.0; 3]).unwrap();
        assert!(same.less(&same).contains_zero());
    }

    #[test]
    fn counts_that_happen_to_be_alike_are_known_no_better_than_others() {
        let shared = SharedVariance {
            variance: 1e-8,
            degrees_of_freedom: 10.0,
            range: 4e-4,
        };
        let alike = [4e-4, 4.000_001e-4, 3.999_999e-4];
        let own = Interval::of(&alike).unwrap();
        assert!(!own.contains_zero());
        let counts = Interval::of_counts(&alike, Looks::Fixed, Some(shared)).unwrap();
        assert!(
            counts.contains_zero() && counts.p_value() > 0.04,
            "{counts:?}"
        );
        // What is larger than any two starts lie apart is an effect.
        let large = alike.map(|value| value * 3.0);
        let counts = Interval::of_counts(&large, Looks::Fixed, Some(shared)).unwrap();
        assert!(!counts.contains_zero());
        // A patch whose counts vary more than the others' keeps its own variance.
        let wild = [1e-3, -2e-3, 4e-3];
        let counts = Interval::of_counts(&wild, Looks::Fixed, Some(shared)).unwrap();
        assert!(
            (counts.standard_error / Interval::of(&wild).unwrap().standard_error - 1.0).abs()
                < 1e-9
        );
        assert_eq!(counts.degrees_of_freedom, 3.0);
        // Two blocks say nothing.
        let two = Interval::of_counts(&large[..2], Looks::Fixed, Some(shared)).unwrap();
        assert!(two.half_width.is_infinite() && two.p_value() == 1.0);
    }

    #[test]
    fn equivalence_is_the_interval_at_90_per_cent() {
        let values = [-0.01, 0.0, 0.01, 0.002, -0.002];
        let interval = Interval::of(&values).unwrap();
        let reach = student(0.95, 4.0) * interval.standard_error;
        let margin = reach.exp_m1();
        // The lower side is nearer in speed: its log is farther from 0.
        assert!(interval.equivalent(margin * 1.001));
        assert!(!interval.equivalent(margin * 0.98));
        assert!((interval.equivalence_p_value(margin) - 0.05).abs() < 2e-3);
        let goes_on = Interval::after(&values, Looks::Any).unwrap();
        assert!(!goes_on.equivalent(margin * 1.001));
    }

    #[test]
    fn rounding_widens_and_no_repeat_makes_up_for_it() {
        let same = Interval::of(&[0.01; 6]).unwrap();
        let rounded = same.rounded(0.02);
        assert!(!same.contains_zero() && rounded.contains_zero());
        assert!(rounded.p_value() > 0.99);
        assert!(rounded.minimum_detectable(1.0) > 0.02);
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
        assert!(interval.minimum_detectable(1.0).is_infinite());
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
    fn the_minimum_detectable_effect_grows_with_the_family() {
        let values: Vec<f64> = (0..20).map(|i| f64::from(i % 5) - 2.0).collect();
        let interval = Interval::of(&values).unwrap();
        let alone = interval.minimum_detectable(1.0);
        assert!((2.7..3.2).contains(&(alone / interval.standard_error)));
        let of = |rows: f64| interval.minimum_detectable(1.0 / rows) / alone;
        assert!((1.2..1.35).contains(&of(4.0)), "{}", of(4.0));
        assert!((1.6..1.9).contains(&of(60.0)), "{}", of(60.0));
    }
}
