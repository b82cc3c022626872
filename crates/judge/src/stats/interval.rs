//! Confidence intervals for means over blocks.

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, FisherSnedecor, StudentsT};
use statrs::function::gamma::ln_gamma;

use super::moderation::VariancePrior;
use super::quantile::{LEVEL, normal_quantile, student};
use super::robust::deviations;
use super::sequential::{StoppingRule, bayes_factor, bayes_factor_above, least};

/// The least half-width, because no meter resolves a part in 10⁹: a smaller one comes from floating-point
/// rounding.
const RESOLUTION: f64 = 1e-9;

/// The mean of one value per block with its confidence interval, on the log scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The mean.
    pub estimate: f64,
    /// Half-width of the interval at the level [`StoppingRule::level`]; infinite where there is no finite
    /// interval: with a single block, and with few blocks of an experiment that has not ended.
    pub half_width: f64,
    /// Standard error of the mean; infinite with a single block.
    pub standard_error: f64,
    /// Bound of the estimate's error that comes from the meter's step size; part of the half-width.
    pub rounding: f64,
    /// Number of independent blocks.
    pub blocks: usize,
    /// Degrees of freedom of the standard error.
    pub degrees_of_freedom: f64,
    /// The rule that determined the number of blocks.
    pub stopping_rule: StoppingRule,
}

/// The variance of a contrast as estimated from all points of a table, for meters whose values are counts.
///
/// Counts have discrete distributions: some starts repeat to 10⁻⁸, others lie 4 · 10⁻⁴ apart. Three blocks
/// that happen to draw the same values then have almost no variance of their own.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SharedVariance {
    /// Variance of the contrast in one block.
    pub variance: f64,
    /// Its degrees of freedom.
    pub degrees_of_freedom: f64,
    /// The largest distance between two values of one point after subtracting the block effects.
    pub range: f64,
}

/// The least number of equal counts that gives a finite interval. Equal counts show no variance: a server that draws one of
/// two counts at each start, such as one with a hash seed, gives `n` equal ones with probability 2¹⁻ⁿ, which is less than 5 %
/// from six on (the sign test: J. Arbuthnott, Philosophical Transactions 27, 1710).
pub const FEWEST_COUNTED: usize = 6;

/// The least number of counts that gives a finite interval if they differ.
const FEWEST_UNLIKE: usize = 3;

/// The standard deviation of counts, as a fraction, below which they are equal.
const EQUAL: f64 = 1e-5;

/// The probability that an interval of equal counts may omit a state of the server that no start showed.
const UNSEEN: f64 = 0.05;

/// The least number of values of a machine for its own variance.
const FEWEST_IN_STRATUM: usize = 4;

/// If either sample has fewer degrees of freedom, the smaller sample limits those of the difference.
const FEWEST_FOR_WELCH: f64 = 5.0;

/// A contrast's variance that is smaller than the pooled one by more than this factor is an artefact of the
/// discrete distribution of counts.
const ATOMS: f64 = 25.0;

/// A contrast keeps its own variance if the p-value of the F test of its being larger than the prior's is below this.
const UNLIKE: f64 = 0.1;

impl Interval {
    /// Returns Student's interval for the mean of `values`, one per block, when their number was fixed
    /// beforehand; `None` without values.
    ///
    /// The block is the unit of replication: its servers were started afresh, so blocks are independent,
    /// whatever happens inside them. `n` blocks leave `n − 1` degrees of freedom.
    pub fn of(values: &[f64]) -> Option<Self> {
        Self::under(values, StoppingRule::FixedSample)
    }

    /// Returns the interval for the mean of `values`, whose number the given stopping rule determined; `None`
    /// without values.
    pub fn under(values: &[f64], stopping_rule: StoppingRule) -> Option<Self> {
        if values.is_empty() {
            return None;
        }
        let n = values.len() as f64;
        let estimate = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|v| (v - estimate).powi(2)).sum();
        let error = (squares / (n - 1.0) / n).sqrt();
        Some(Self::with(
            estimate,
            error,
            values.len(),
            n - 1.0,
            stopping_rule,
        ))
    }

    /// Returns the interval of `estimate` with the given standard error and degrees of freedom.
    pub fn with(
        estimate: f64,
        standard_error: f64,
        blocks: usize,
        degrees_of_freedom: f64,
        stopping_rule: StoppingRule,
    ) -> Self {
        let mut interval = Interval {
            degrees_of_freedom: degrees_of_freedom.max(0.0),
            ..Self::unknown(estimate, blocks, stopping_rule)
        };
        if blocks > 1 && degrees_of_freedom > 0.0 && standard_error.is_finite() {
            interval.standard_error = standard_error;
            let critical_value = interval.critical_value(1.0);
            if critical_value.is_finite() {
                interval.half_width = (critical_value * standard_error).max(RESOLUTION);
            }
        }
        interval
    }

    /// Returns an estimate whose error nothing tells.
    pub fn unknown(estimate: f64, blocks: usize, stopping_rule: StoppingRule) -> Self {
        Interval {
            estimate,
            half_width: f64::INFINITY,
            standard_error: f64::INFINITY,
            rounding: 0.0,
            blocks,
            degrees_of_freedom: 0.0,
            stopping_rule,
        }
    }

    /// Returns the interval of the same estimate with another standard error and its degrees of freedom.
    pub(super) fn with_error(self, standard_error: f64, degrees_of_freedom: f64) -> Self {
        let (estimate, blocks, rule) = (self.estimate, self.blocks, self.stopping_rule);
        Self::with(estimate, standard_error, blocks, degrees_of_freedom, rule)
    }

    /// Returns the interval for the mean of counts, taking their variance to be no smaller than the pooled
    /// variance of the table's other points; `None` without values.
    ///
    /// With `s²` the contrast's own variance over `n` blocks and `s₀²` that of the points together on `ν₀`
    /// degrees of freedom: the standard error is `s₀/√n` on `ν₀` degrees of freedom if `s² ≤ s₀²`, else
    /// `s/√n` on `min(n, ν₀)`, or `n − 1` with fewer than [`FEWEST_COUNTED`] blocks. This is the limit of moderated variances (G. K. Smyth, *Linear models and
    /// empirical Bayes methods for assessing differential expression in microarray experiments*, Statistical
    /// Applications in Genetics and Molecular Biology 3, 2004) in which small variances are pure chance and
    /// large ones are genuine. If `s²` is less than a twenty-fifth of `s₀²`, the half-width is at least the
    /// largest distance between two values of one point. The half-width is infinite with fewer
    /// than three blocks, and with fewer than [`FEWEST_COUNTED`] if `s` is less than 10⁻⁵.
    ///
    /// Counts of which none lies `states` away do not exclude a state that all starts missed: one of probability `q` is
    /// missing from `n` starts with probability `(1 − q)ⁿ`, which is 5 % at `q = 1 − 0.05^(1/n)` (C. J. Clopper and E. S.
    /// Pearson, Biometrika 26, 1934). Such a state moves the mean by `q · states`, so the half-width is at least that unless
    /// `s` is 10⁻⁵ or more and at least half of what a single start of that state makes it, `states/√n`.
    pub fn of_counts(
        values: &[f64],
        stopping_rule: StoppingRule,
        shared: Option<SharedVariance>,
        states: f64,
    ) -> Option<Self> {
        let own = Self::under(values, stopping_rule)?;
        let few = values.len() < FEWEST_COUNTED;
        let deviation = own.standard_error * (values.len() as f64).sqrt();
        if values.len() < FEWEST_UNLIKE || few && deviation < EQUAL {
            return Some(Interval {
                half_width: f64::INFINITY,
                standard_error: f64::INFINITY,
                ..own
            });
        }
        let n = values.len() as f64;
        let unseen = if deviation < EQUAL.max(states / (2.0 * n.sqrt())) {
            (1.0 - UNSEEN.powf(n.recip())) * states
        } else {
            0.0
        };
        let Some(shared) = shared else {
            return Some(own.at_least(unseen));
        };
        let variance = own.standard_error.powi(2) * n;
        let (used, degrees_of_freedom) = if variance > shared.variance {
            let most = if few { n - 1.0 } else { n };
            (variance, most.min(shared.degrees_of_freedom))
        } else {
            (shared.variance, shared.degrees_of_freedom)
        };
        let error = (used / n).sqrt();
        let interval = own.with_error(error, degrees_of_freedom);
        let range = if variance * ATOMS < shared.variance {
            shared.range
        } else {
            0.0
        };
        Some(interval.at_least(range.max(unseen)))
    }

    /// Returns the interval with its variance moderated by the `prior` of its table, whose values it combines with the sum
    /// `squares` of squared weights. It stays as it is where its variance is not that of a mean of `blocks` values, and
    /// where it must hold at every look.
    ///
    /// With `s²` on `d` degrees of freedom and the prior's `s₀²` on `d₀`, the variance is `(d s² + d₀ s₀²)/(d + d₀)` on
    /// `d + d₀` (G. K. Smyth 2004, see [`VariancePrior`]). A variance that is larger than the prior's (F test at 10 %) stays as it is: a server that varies more than the others must not look as certain as they are (cf. B.
    /// Phipson, S. Lee, I. J. Majewski, W. S. Alexander and G. K. Smyth, *Robust hyperparameter estimation protects against
    /// hypervariable genes*, Annals of Applied Statistics 10, 2016).
    #[must_use]
    pub fn moderated(self, prior: VariancePrior, squares: f64) -> Self {
        let (n, own) = (self.blocks as f64, self.degrees_of_freedom);
        let is_mean = self.blocks > 1 && own == n - 1.0 && self.standard_error.is_finite();
        if !is_mean || self.stopping_rule == StoppingRule::Anytime {
            return self;
        }
        let ratio = self.standard_error.powi(2) * n / (prior.variance * squares);
        let unlike =
            FisherSnedecor::new(own, prior.degrees_of_freedom).map_or(1.0, |f| f.sf(ratio));
        if unlike < UNLIKE {
            return self;
        }
        let both = own + prior.degrees_of_freedom;
        let sum = own * self.standard_error.powi(2) * n
            + prior.degrees_of_freedom * prior.variance * squares;
        let error = (sum / both / n).sqrt();
        self.with_error(error, both)
    }

    /// Returns the interval of the same estimate under another stopping rule.
    #[must_use]
    pub fn under_rule(self, stopping_rule: StoppingRule) -> Self {
        if self.stopping_rule == stopping_rule {
            return self;
        }
        let other = Interval {
            stopping_rule,
            ..self
        };
        other.with_error(self.standard_error, self.degrees_of_freedom)
    }

    /// Returns the half-width if the stopping rule ended the experiment now.
    pub fn ended_half_width(&self) -> f64 {
        self.half_width_of(self.blocks)
    }

    /// Returns the half-width that the stopping rule would see after `blocks` blocks, if the degrees of freedom grow as
    /// their number does.
    fn half_width_of(&self, blocks: usize) -> f64 {
        let (n, own) = (blocks as f64, self.blocks as f64);
        let freedom = self.degrees_of_freedom * (n - 1.0) / (own - 1.0);
        let critical_value = StoppingRule::FixedWidth.critical_value(blocks, freedom, 1.0);
        critical_value * self.standard_error * (own / n).sqrt()
    }

    /// Returns the expected total number of blocks for a half-width of `resolution`, at least 2 and at most `most`; `None`
    /// while nothing is known about the variance.
    pub fn blocks_needed(&self, resolution: f64, most: usize) -> Option<usize> {
        if self.blocks < 2 || !self.standard_error.is_finite() {
            return None;
        }
        // The width falls monotonically in the number of blocks.
        let enough = |blocks: usize| self.half_width_of(blocks) <= resolution;
        Some(least(2, most.max(2), enough))
    }

    /// Returns the interval with at least this half-width, and the standard error that belongs to it.
    fn at_least(self, half_width: f64) -> Self {
        if self.half_width >= half_width {
            return self;
        }
        Interval {
            standard_error: half_width / self.critical_value(1.0),
            half_width,
            ..self
        }
    }

    /// Returns the critical value in standard errors when the error probability is `share` of 1 −
    /// [`StoppingRule::level`]; infinite if there is no finite interval.
    pub(super) fn critical_value(&self, share: f64) -> f64 {
        self.stopping_rule
            .critical_value(self.blocks, self.degrees_of_freedom, share)
    }

    /// Returns the interval of the mean of two independent blocks of the same spread (Student's distribution with one degree of
    /// freedom). It keeps its degrees of freedom for smaller errors.
    #[must_use]
    pub fn as_of_two_blocks(self) -> Self {
        let own = self.degrees_of_freedom;
        let at = |freedom: f64| student(0.5 + LEVEL / 2.0, freedom);
        let error = self.standard_error * (self.blocks as f64 / 2.0).sqrt();
        self.with_error(error * at(1.0) / at(own), own)
    }

    /// Returns the interval that holds for the best of so many estimates (Bonferroni): it is as wide as each of them must be
    /// for all to contain their true values with the probability of [`StoppingRule::level`].
    #[must_use]
    pub fn best_of(self, estimates: usize) -> Self {
        let share = (estimates.max(1) as f64).recip();
        let wider = self.critical_value(share) / self.critical_value(1.0);
        let half_width = (self.half_width - self.rounding) * wider + self.rounding;
        Interval { half_width, ..self }
    }

    /// Returns the lower confidence limit.
    pub fn low(&self) -> f64 {
        self.estimate - self.half_width
    }

    /// Returns the upper confidence limit.
    pub fn high(&self) -> f64 {
        self.estimate + self.half_width
    }

    /// Returns whether the interval contains 0.
    pub fn contains_zero(&self) -> bool {
        self.low() <= 0.0 && 0.0 <= self.high()
    }

    /// Returns the standard error that corresponds to the half-width, at least the resolution.
    fn effective_error(&self) -> f64 {
        let critical_value = self.critical_value(1.0);
        if critical_value.is_finite() && self.half_width.is_finite() {
            // If rounding makes up the whole half-width, the difference may have no significant digit left.
            (self.half_width - self.rounding).max(RESOLUTION) / critical_value
        } else {
            self.standard_error.max(RESOLUTION)
        }
    }

    /// Returns the standard error with which Student's interval would be as wide; that of the mean while the number of
    /// blocks is open.
    pub(super) fn students_error(&self) -> f64 {
        match self.stopping_rule {
            StoppingRule::Anytime => self.standard_error,
            _ => self.effective_error() * self.widening_factor(),
        }
    }

    /// Returns the ratio of the interval's width to that of Student's interval.
    fn widening_factor(&self) -> f64 {
        self.critical_value(1.0) / student(0.5 + LEVEL / 2.0, self.degrees_of_freedom)
    }

    /// Returns the two-sided p-value of the null hypothesis of no effect; 1 where there is no finite
    /// interval. It is at most 1 − the level exactly where the interval excludes 0.
    ///
    /// The test is Student's; for [`StoppingRule::Anytime`] the p-value is the reciprocal of
    /// [`bayes_factor`], which falls to α or below at any look with probability at most α.
    pub fn p_value(&self) -> f64 {
        if !self.standard_error.is_finite() {
            return 1.0;
        }
        let statistic = (self.estimate.abs() - self.rounding).max(0.0) / self.effective_error();
        match self.stopping_rule {
            StoppingRule::Anytime => (1.0 / bayes_factor(statistic, self.blocks)).min(1.0),
            StoppingRule::FixedSample | StoppingRule::FixedWidth => {
                2.0 * upper_tail(
                    statistic * self.widening_factor().recip().max(0.0),
                    self.degrees_of_freedom,
                )
            }
        }
        .min(1.0)
    }

    /// Returns the p-value of the test for equivalence within ± `margin` of speed (a fraction), under the
    /// null hypothesis that the effect is the margin or more; 1 where there is no finite interval.
    /// [`Interval::equivalent`] requires at most 5 % (1 % while the experiment has not ended).
    ///
    /// It is the larger p-value of two one-sided tests: D. J. Schuirmann, *A comparison of the two one-sided
    /// tests procedure and the power approach for assessing the equivalence of average bioavailability*, J.
    /// Pharmacokinetics and Biopharmaceutics 15 (1987). For [`StoppingRule::Anytime`] the p-values are the
    /// reciprocals of [`bayes_factor_above`], which are valid at all looks together.
    pub fn equivalence_p_value(&self, margin: f64) -> f64 {
        if !self.standard_error.is_finite() {
            return 1.0;
        }
        let nearer = (margin.ln_1p() - self.estimate).min(self.estimate - (-margin).ln_1p());
        if nearer < self.half_width {
            return 1.0;
        }
        let statistic = (nearer - self.rounding) / self.effective_error();
        match self.stopping_rule {
            StoppingRule::Anytime => (1.0 / bayes_factor_above(statistic, self.blocks)).min(1.0),
            StoppingRule::FixedSample | StoppingRule::FixedWidth => {
                upper_tail(statistic / self.widening_factor(), self.degrees_of_freedom)
            }
        }
    }

    /// Returns whether the effect lies within ± `margin` of speed (a fraction), by two one-sided tests at 1 −
    /// the level each, and its interval too.
    pub fn equivalent(&self, margin: f64) -> bool {
        self.equivalence_p_value(margin) <= 1.0 - self.stopping_rule.level()
    }

    /// Returns the minimum detectable effect: another experiment like this one detects an effect of this size
    /// with probability `power`, when this row has `share` of the family-wise error.
    ///
    /// With the critical value `t`, `ν` degrees of freedom of the standard error in either experiment and `c`
    /// the expected sample standard deviation in units of the true one, it is the `δ` of
    ///
    /// ```text
    /// (δ − t) · c = z(power) · √(1 + (δ² + t²)(1 − c²))        c = √(2/ν) · Γ((ν+1)/2) / Γ(ν/2)
    /// ```
    ///
    /// times the standard error: the normal approximation of the non-central t distribution (N. L. Johnson
    /// and B. L. Welch, *Applications of the non-central t-distribution*, Biometrika 31, 1940) with the
    /// uncertainty of this experiment's standard error. Infinite if the interval is.
    pub fn minimum_detectable(&self, share: f64, power: f64) -> f64 {
        if self.half_width.is_infinite() {
            return f64::INFINITY;
        }
        let critical = self.critical_value(share);
        if !critical.is_finite() {
            return f64::INFINITY;
        }
        let known = mean_of_deviation(self.degrees_of_freedom);
        let (square, rest) = (known * known, 1.0 - known * known);
        let quantile = normal_quantile(power).powi(2);
        let a = square - quantile * rest;
        let b = square * critical;
        let c = (square - quantile * rest) * critical.powi(2) - quantile;
        let root = b * b - a * c;
        let size = if a > 0.0 && root >= 0.0 {
            (b + root.sqrt()) / a
        } else {
            critical + student(power, self.degrees_of_freedom)
        };
        // The interval may be wider than the critical value times the standard error.
        (size * self.effective_error()).max(RESOLUTION) + self.rounding
    }
}

/// Returns the expected sample standard deviation in units of the true one.
fn mean_of_deviation(degrees_of_freedom: f64) -> f64 {
    let gammas = ln_gamma((degrees_of_freedom + 1.0) / 2.0) - ln_gamma(degrees_of_freedom / 2.0);
    (2.0 / degrees_of_freedom).sqrt() * gammas.exp()
}

/// Returns the probability that Student's t statistic exceeds `statistic`.
pub(super) fn upper_tail(statistic: f64, degrees_of_freedom: f64) -> f64 {
    StudentsT::new(0.0, 1.0, degrees_of_freedom).map_or(1.0, |t| t.sf(statistic))
}

impl Interval {
    /// Returns the difference `self − other` of two means whose blocks are independent of each other, with
    /// the degrees of freedom of Welch, *The generalization of "Student's" problem when several different
    /// population variances are involved*, Biometrika 34 (1947). Its `blocks` are the sum of both. If one
    /// side has fewer than six blocks, Welch's degrees of freedom are too many (11 % false positives with 2
    /// blocks against 20); the degrees of freedom of the smaller sample are the limit then: P. L. Hsu,
    /// *Contribution to the theory of "Student's" t-test as applied to the problem of two samples*,
    /// Statistical Research Memoirs 2 (1938). Each side's standard error includes the factor by which its
    /// interval exceeds Student's, and the bounds of both sides' rounding add up.
    pub fn minus(&self, other: &Interval) -> Interval {
        let of_both = |f: &dyn Fn(&Interval) -> f64| f(self) + f(other);
        // The standard error includes the factor by which the interval exceeds Student's.
        let error = |part: &Interval| part.effective_error() * part.widening_factor();
        let known = self.half_width.is_finite() && other.half_width.is_finite();
        let estimate = self.estimate - other.estimate;
        let blocks = self.blocks + other.blocks;
        if !known {
            return Self::unknown(estimate, blocks, StoppingRule::FixedSample);
        }
        let variance = of_both(&|part| error(part).powi(2));
        let parts = of_both(&|part| error(part).powi(4) / part.degrees_of_freedom.max(1.0));
        let welch = if parts > 0.0 {
            variance.powi(2) / parts
        } else {
            1.0
        };
        let smaller = self.degrees_of_freedom.min(other.degrees_of_freedom);
        let degrees_of_freedom = if smaller < FEWEST_FOR_WELCH {
            welch.min(smaller.max(1.0))
        } else {
            welch
        };
        Self::with(
            estimate,
            variance.sqrt(),
            blocks,
            degrees_of_freedom,
            StoppingRule::FixedSample,
        )
        .rounded(of_both(&|part| part.rounding))
    }

    /// Returns the interval for the mean over strata (machines) of their means, each with the same weight; `values` has one
    /// value per block by stratum. `None` with a single stratum, or one of fewer than `FEWEST_IN_STRATUM` values.
    ///
    /// Differences between strata are no part of the error, which is that of the strata's means on the degrees of freedom of
    /// F. E. Satterthwaite (1946): stratified sampling (W. G. Cochran, *Sampling Techniques*, 1977, chapter 5).
    pub fn stratified(values: &[Vec<f64>], stopping_rule: StoppingRule) -> Option<Self> {
        if values.len() < 2 || values.iter().any(|of| of.len() < FEWEST_IN_STRATUM) {
            return None;
        }
        let strata: Vec<Interval> = values.iter().filter_map(|of| Self::of(of)).collect();
        let count = strata.len() as f64;
        let estimate = strata.iter().map(|of| of.estimate).sum::<f64>() / count;
        let squares = || strata.iter().map(|of| of.standard_error.powi(2));
        let variance: f64 = squares().sum();
        let parts = squares().zip(&strata);
        let parts: f64 = parts
            .map(|(square, of)| square * square / of.degrees_of_freedom)
            .sum();
        let blocks = values.iter().map(Vec::len).sum::<usize>();
        let most = (blocks - values.len()) as f64;
        let freedom = if parts > 0.0 {
            (variance * variance / parts).min(most)
        } else {
            most
        };
        let error = variance.sqrt() / count;
        Some(Self::with(estimate, error, blocks, freedom, stopping_rule))
    }

    /// Returns the interval widened for the skewness of the `values` whose mean it is; without values it stays as it is.
    ///
    /// The quantiles of Student's statistic of a skewed distribution lie farther out on the side of the long tail, by
    /// `γ (2t² + 1)/(6√n)` to the first order (P. Hall, *On the removal of skewness by transformation*, J. Royal Statistical
    /// Society B 54, 1992): values of the tail are seldom drawn. The other end, which could be nearer, stays where it is.
    pub fn skewed(self, values: &[f64]) -> SkewedInterval {
        let n = values.len() as f64;
        let deviations = deviations(values);
        let moment = |power: i32| deviations.iter().map(|d| d.powi(power)).sum::<f64>() / n;
        let variance = moment(2);
        let mut found = SkewedInterval {
            low: self,
            high: self,
        };
        if !(variance > 0.0 && self.standard_error.is_finite() && self.degrees_of_freedom >= 1.0) {
            return found;
        }
        let skewness = moment(3) / variance.powf(1.5);
        let t = student(0.5 + LEVEL / 2.0, self.degrees_of_freedom);
        let farther = skewness.abs() * (2.0 * t * t + 1.0) / (6.0 * n.sqrt() * t);
        let wider = self.standard_error * (1.0 + farther);
        let wide = self.with_error(wider, self.degrees_of_freedom);
        if skewness < 0.0 {
            found.low = wide;
        } else {
            found.high = wide;
        }
        found
    }

    /// Returns the difference of the means of `values` and `others`, two samples that share no block and may
    /// have different variances, by Welch's test ([`Interval::minus`]); `None` if one of them is empty. If
    /// one has a single value, the half-width is infinite, because its variance is unknown.
    pub fn of_two_samples(values: &[f64], others: &[f64]) -> Option<Self> {
        Some(Self::of(values)?.minus(&Self::of(others)?))
    }

    /// Returns the interval widened by `rounding`, the bound of the error that comes from the meter's step
    /// size. Rounding affects every repeat alike, so more repeats do not reduce it.
    #[must_use]
    pub fn rounded(self, rounding: f64) -> Self {
        Interval {
            half_width: self.half_width + rounding,
            rounding: self.rounding + rounding,
            ..self
        }
    }
}

/// An interval with ends at different distances from the estimate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SkewedInterval {
    /// The interval whose lower end counts.
    pub low: Interval,
    /// The interval whose upper end counts.
    pub high: Interval,
}

impl SkewedInterval {
    /// Returns the one whose end lies on the side of 0.
    pub fn towards_zero(&self) -> Interval {
        if self.low.estimate > 0.0 {
            self.low
        } else {
            self.high
        }
    }

    /// Returns the wider one.
    pub fn wider(&self) -> Interval {
        if self.low.half_width > self.high.half_width {
            self.low
        } else {
            self.high
        }
    }
}

/// A change of speed, as a fraction, with its interval: an estimate of −0.01 is 1 % slower.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SpeedChange {
    /// The estimate.
    pub estimate: f64,
    /// The lower confidence limit; `null` if there is no finite interval.
    pub low: Option<f64>,
    /// The upper confidence limit; `null` likewise.
    pub high: Option<f64>,
    /// Blocks behind it.
    pub blocks: usize,
}

impl SpeedChange {
    /// The change between two points with the same server.
    pub(crate) const NONE: SpeedChange = SpeedChange {
        estimate: 0.0,
        low: Some(0.0),
        high: Some(0.0),
        blocks: 0,
    };

    /// Returns the interval's width, as a fraction of speed; infinite if there is no finite interval.
    pub(crate) fn width(&self) -> f64 {
        self.high.unwrap_or(f64::INFINITY) - self.low.unwrap_or(f64::NEG_INFINITY)
    }

    /// Converts the `interval` of a log ratio of costs (before/after) over `blocks`.
    pub(crate) fn of(interval: &Interval, blocks: usize) -> Self {
        let known = interval.half_width.is_finite();
        SpeedChange {
            estimate: speed(interval.estimate),
            low: known.then(|| speed(interval.low())),
            high: known.then(|| speed(interval.high())),
            blocks,
        }
    }

    /// Returns the confidence limits.
    pub fn ends(&self) -> Option<(f64, f64)> {
        self.low.zip(self.high)
    }
}

/// Converts a log ratio of costs (before/after) to a fraction of speed: 0.01 is 1 % faster. Never infinite,
/// because JSON has no infinity.
pub fn speed(log_ratio: f64) -> f64 {
    log_ratio.exp_m1().clamp(-1.0, f64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::POWER;

    #[test]
    fn speed_is_a_number_whatever_the_costs_are() {
        assert_eq!(speed(0.0), 0.0);
        assert_eq!(speed(-1e4), -1.0);
        assert_eq!(speed(1e300_f64.ln() - 1e-300_f64.ln()), f64::MAX);
    }

    #[test]
    fn an_interval_is_longer_on_the_side_of_the_long_tail() {
        let values = [0.0, 0.01, -0.01, 0.0, 0.01, -0.01, 0.0, -0.2];
        let plain = Interval::of(&values).unwrap();
        let skewed = plain.skewed(&values);
        assert_eq!(skewed.high, plain);
        assert!(skewed.low.low() < 1.2 * plain.low(), "{skewed:?}");
        assert_eq!((skewed.wider(), skewed.towards_zero()), (skewed.low, plain));
        let even = [0.01, -0.01, 0.02, -0.02];
        let plain = Interval::of(&even).unwrap();
        assert!((plain.skewed(&even).wider().half_width / plain.half_width - 1.0).abs() < 1e-9);
        assert_eq!(plain.skewed(&[]).low, plain);
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
        // The p-value is 5 % where a confidence limit is 0.
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
        // The smaller sample limits the degrees of freedom.
        let few = Interval::of_two_samples(&a[..3], &b).unwrap();
        assert_eq!(few.degrees_of_freedom, 2.0);
        // One run gives no estimate of the variance between runs.
        for (a, b) in [(&[0.0][..], &[0.01, 0.02, 0.03][..]), (&[0.0], &[0.01])] {
            let one = Interval::of_two_samples(a, b).unwrap();
            assert!(one.half_width.is_infinite() && one.p_value() == 1.0);
            assert!(one.contains_zero() && !one.equivalent(0.9));
        }
        assert_eq!(Interval::of_two_samples(&[], &[0.01]), None);
        let same = Interval::of(&[1.0; 3]).unwrap();
        assert!(same.minus(&same).contains_zero());
    }

    #[test]
    fn counts_that_happen_to_be_alike_are_known_no_better_than_others() {
        let shared = SharedVariance {
            variance: 1e-8,
            degrees_of_freedom: 10.0,
            range: 4e-4,
        };
        let alike = [
            4e-4,
            4.000_001e-4,
            3.999_999e-4,
            4e-4,
            4.000_001e-4,
            3.999_999e-4,
        ];
        let own = Interval::of(&alike).unwrap();
        assert!(!own.contains_zero());
        let counts =
            Interval::of_counts(&alike, StoppingRule::FixedSample, Some(shared), 0.0).unwrap();
        assert!(
            counts.contains_zero() && counts.p_value() > 0.04,
            "{counts:?}"
        );
        // A difference larger than the range of starts is an effect.
        let large = alike.map(|value| value * 3.0);
        let counts =
            Interval::of_counts(&large, StoppingRule::FixedSample, Some(shared), 0.0).unwrap();
        assert!(!counts.contains_zero());
        // A variance larger than the pooled one is kept.
        let wild = [1e-3, -2e-3, 4e-3, 1e-3, -2e-3, 4e-3];
        let counts =
            Interval::of_counts(&wild, StoppingRule::FixedSample, Some(shared), 0.0).unwrap();
        assert!(
            (counts.standard_error / Interval::of(&wild).unwrap().standard_error - 1.0).abs()
                < 1e-9
        );
        assert_eq!(counts.degrees_of_freedom, 6.0);
        // Five equal starts give no finite interval: one of sixteen servers with two counts shows the same five times.
        let five =
            Interval::of_counts(&large[..5], StoppingRule::FixedSample, Some(shared), 0.0).unwrap();
        assert!(five.half_width.is_infinite() && five.p_value() == 1.0);
        let unlike =
            Interval::of_counts(&wild[..3], StoppingRule::FixedSample, Some(shared), 0.0).unwrap();
        assert!(unlike.half_width.is_finite() && unlike.degrees_of_freedom == 2.0);
    }

    #[test]
    fn equal_counts_may_have_missed_a_state() {
        let of = |n: usize, states| {
            let values = vec![1e-4; n];
            Interval::of_counts(&values, StoppingRule::FixedSample, None, states).unwrap()
        };
        assert!(!of(6, 0.0).contains_zero());
        // With 39 %, a state 4 · 10⁻⁴ away would be missing from six starts in one of twenty experiments.
        let six = of(6, 4e-4);
        assert!((six.half_width - 0.393 * 4e-4).abs() < 1e-6, "{six:?}");
        assert!(six.contains_zero() && six.p_value() > 0.05);
        assert!(of(24, 4e-4).half_width < 0.12 * 4e-4);
        // Counts that differ show their variance.
        let values = [1e-4, 3e-4, 2e-4, 1e-4, 3e-4, 2e-4];
        let plain = Interval::of(&values).unwrap();
        let rule = StoppingRule::FixedSample;
        assert_eq!(Interval::of_counts(&values, rule, None, 4e-4), Some(plain));
    }

    #[test]
    fn equivalence_is_the_interval_and_two_tests() {
        let values = [-0.01, 0.0, 0.01, 0.002, -0.002];
        let interval = Interval::of(&values).unwrap();
        let margin = interval.half_width.exp_m1();
        // The lower margin is farther from 0 on the log scale.
        assert!(interval.equivalent(margin * 1.001));
        assert!(!interval.equivalent(margin * 0.98));
        assert!((interval.equivalence_p_value(margin * 1.001) - 0.025).abs() < 1e-3);
        assert_eq!(interval.equivalence_p_value(margin * 0.98), 1.0);
        let goes_on = Interval::under(&values, StoppingRule::Anytime).unwrap();
        assert!(!goes_on.equivalent(margin * 1.001));
    }

    #[test]
    fn rounding_widens_and_no_repeat_makes_up_for_it() {
        let same = Interval::of(&[0.01; 6]).unwrap();
        let rounded = same.rounded(0.02);
        assert!(!same.contains_zero() && rounded.contains_zero());
        assert!(rounded.p_value() > 0.99);
        assert!(rounded.minimum_detectable(1.0, POWER) > 0.02);
        let clear = Interval::of(&[0.05, 0.051, 0.052]).unwrap().rounded(0.02);
        assert!(!clear.contains_zero() && clear.p_value() < 0.05);
        for absurd in [1e300, f64::MAX, f64::INFINITY] {
            assert!((same.rounded(absurd).p_value() - 1.0).abs() < 1e-12);
        }
    }

    #[test]
    fn a_difference_is_as_uncertain_as_both_sides_are_rounded() {
        let one = Interval::of(&[0.05; 6]).unwrap().rounded(0.02);
        let other = Interval::of(&[0.01; 6]).unwrap().rounded(0.03);
        let difference = one.minus(&other);
        assert!(
            (difference.half_width - 0.05).abs() < 1e-6,
            "{difference:?}"
        );
        assert!(difference.contains_zero() && difference.p_value() > 0.99);
        let exact = Interval::of(&[0.01; 6]).unwrap();
        assert!(!one.minus(&exact).contains_zero());
        assert!(one.minus(&exact).p_value() < 0.05);
    }

    #[test]
    fn a_variance_larger_than_the_common_one_stays() {
        let values: Vec<f64> = (0..12).map(|i| f64::from(i * 5 % 12) * 1e-3).collect();
        let own = Interval::of(&values).unwrap();
        let variance = own.standard_error.powi(2) * 12.0;
        let moderated = |times: f64| {
            let prior = VariancePrior {
                variance: variance * times / 2.0,
                degrees_of_freedom: 11.0,
            };
            own.moderated(prior, 2.0)
        };
        // F(11, 11) exceeds 2.23 with a probability of 10 %.
        assert_eq!(moderated(0.4), own);
        let (like, larger) = (moderated(0.8), moderated(4.0));
        assert!((like.standard_error / own.standard_error - 0.9f64.sqrt()).abs() < 1e-9);
        assert!((larger.standard_error / own.standard_error - 2.5f64.sqrt()).abs() < 1e-9);
        let freedom = (like.degrees_of_freedom, larger.degrees_of_freedom);
        assert_eq!(freedom, (22.0, 22.0));
    }

    #[test]
    fn blocks_needed_are_those_of_the_width_that_the_rule_will_see() {
        let values: Vec<f64> = (0..12).map(|i| f64::from(i * 5 % 12) * 1e-3).collect();
        let own = Interval::of(&values).unwrap();
        let width = own.ended_half_width();
        assert_eq!(own.blocks_needed(width * 1.000_001, 100), Some(12));
        let more = own.blocks_needed(width / 2.0, 1000).unwrap();
        assert!((36..48).contains(&more), "{more}");
        // More degrees of freedom than blocks need fewer of them.
        let known = Interval {
            degrees_of_freedom: 22.0,
            ..own
        };
        assert!(known.blocks_needed(width / 2.0, 1000).unwrap() < more);
        assert_eq!(Interval::of(&[1.0]).unwrap().blocks_needed(1.0, 9), None);
        let ended = own.under_rule(StoppingRule::FixedWidth);
        assert!((ended.half_width / width - 1.0).abs() < 1e-12);
    }

    #[test]
    fn one_block_says_nothing() {
        let interval = Interval::of(&[0.5]).unwrap();
        assert_eq!(interval.p_value(), 1.0);
        assert!(interval.contains_zero());
        assert!(!interval.equivalent(0.9));
        assert!(interval.minimum_detectable(1.0, POWER).is_infinite());
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
        let alone = interval.minimum_detectable(1.0, POWER);
        assert!((2.7..3.2).contains(&(alone / interval.standard_error)));
        let of = |rows: f64| interval.minimum_detectable(1.0 / rows, POWER) / alone;
        assert!((1.2..1.35).contains(&of(4.0)), "{}", of(4.0));
        assert!((1.6..1.9).contains(&of(60.0)), "{}", of(60.0));
    }
}
