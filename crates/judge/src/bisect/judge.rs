//! Sequential tests and interval estimates for spans.

use super::question::{Direction, Question};
use crate::stats::{
    self, SpeedChange, UnitCorrelation, bayes_factor_above, bayes_factor_above_known,
};

/// The result of the test of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Judgement {
    /// There is a change in the requested direction.
    Changed,
    /// There is no change of the requested size.
    Unchanged,
    /// Not decided yet.
    Open,
}

/// The mean of one log ratio per block and its standard error.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    mean: f64,
    error: f64,
    n: usize,
    /// The number of independent values that these are worth.
    independent: usize,
    known: bool,
}

/// The weight of a prior standard deviation, in degrees of freedom.
pub(super) const KNOWN_DEGREES_OF_FREEDOM: f64 = 10.0;

/// The least standard error, which is the resolution of a meter.
const RESOLUTION: f64 = 1e-9;

impl Sample {
    /// Creates a sample of the log ratios `values` in their order, positive if the later state is faster; `None` without
    /// values. The error is widened by the correlation of each value with the preceding one.
    pub(super) fn of(values: &[f64], known_sd: Option<f64>) -> Option<Self> {
        if values.is_empty() {
            return None;
        }
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let error = match known_sd {
            Some(sd) => {
                let both = (KNOWN_DEGREES_OF_FREEDOM * sd * sd + squares)
                    / (KNOWN_DEGREES_OF_FREEDOM + n - 1.0);
                both.sqrt().max(sd) / n.sqrt()
            }
            None if values.len() < 2 => f64::INFINITY,
            None => (squares / (n - 1.0) / n).sqrt(),
        };
        // Equal values, as those of one server at two states, show none.
        let correlation = UnitCorrelation::of_values(values).filter(|_| squares > 0.0);
        let factor = correlation.map_or(1.0, |of| of.variance_factor(values.len()));
        let independent = if factor > 1.0 {
            ((n / factor).floor() as usize).max(2)
        } else {
            values.len()
        };
        Some(Sample {
            mean,
            error: (error * factor.sqrt()).max(RESOLUTION),
            n: values.len(),
            independent,
            known: known_sd.is_some(),
        })
    }

    /// Returns the number of independent blocks.
    pub(super) fn blocks(&self) -> usize {
        self.n
    }

    /// Returns the Bayes factor of an effect above `least` against an effect equal to it.
    fn above(&self, least: f64) -> f64 {
        self.factor((self.mean - least) / self.error)
    }

    /// Returns the Bayes factor of an effect below `most` against an effect equal to it.
    fn below(&self, most: f64) -> f64 {
        self.factor((most - self.mean) / self.error)
    }

    fn factor(&self, statistic: f64) -> f64 {
        if self.known {
            bayes_factor_above_known(statistic, self.independent)
        } else {
            bayes_factor_above(statistic, self.independent)
        }
    }

    /// Tests for a change with an error rate of at most `alpha` over all looks, and for the absence of a
    /// change of the size with at most `missed`.
    pub(super) fn judge(&self, question: &Question, alpha: f64, missed: f64) -> Judgement {
        let (loss, gain) = (question.loss(), question.gain());
        let slower = |alpha: f64| self.below(0.0) * alpha >= 1.0;
        let faster = |alpha: f64| self.above(0.0) * alpha >= 1.0;
        let not_slower = || self.above(-loss) * missed >= 1.0;
        let not_faster = || self.below(gain) * missed >= 1.0;
        let (changed, unchanged) = match question.direction {
            Direction::Slower => (slower(alpha), not_slower()),
            Direction::Faster => (faster(alpha), not_faster()),
            Direction::Both => (
                slower(alpha / 2.0) || faster(alpha / 2.0),
                not_slower() && not_faster(),
            ),
        };
        // A change smaller than the requested size counts as unchanged.
        match (changed, unchanged) {
            (_, true) => Judgement::Unchanged,
            (true, false) => Judgement::Changed,
            (false, false) => Judgement::Open,
        }
    }

    /// Returns whether there is a change in the opposite direction, at the 5 % level.
    pub(super) fn is_opposite(&self, direction: Direction) -> bool {
        match direction {
            Direction::Slower => self.above(0.0) >= 20.0,
            Direction::Faster => self.below(0.0) >= 20.0,
            Direction::Both => false,
        }
    }

    /// Returns the effect with its interval at the level 1 − `error`, valid at all looks together.
    pub(super) fn effect(&self, error: f64) -> SpeedChange {
        let critical_value = if self.known {
            known_critical_value(self.independent, error)
        } else {
            stats::anytime_critical_value(self.independent, error)
        };
        let half = critical_value * self.error;
        let end = |log: f64| log.is_finite().then(|| stats::speed(log));
        SpeedChange {
            estimate: stats::speed(self.mean),
            low: end(self.mean - half),
            high: end(self.mean + half),
            blocks: self.n,
        }
    }
}

/// Returns the two-sided critical value, at which the mixture with a known standard deviation reaches 1/α.
fn known_critical_value(n: usize, alpha: f64) -> f64 {
    let spread = 1.0 + n as f64;
    let share = 1.0 - 1.0 / spread;
    ((2.0 * (1.0 / alpha).ln() + spread.ln()) / share).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bisect::tests::question;

    fn judged(values: &[f64], direction: Direction) -> Judgement {
        let mut question = question(2);
        question.direction = direction;
        let sample = Sample::of(values, None).unwrap();
        sample.judge(&question, 0.005, 0.01)
    }

    /// Returns `n` values with mean `mean` and standard deviation 1 %.
    fn values(mean: f64, n: usize) -> Vec<f64> {
        (0..n)
            .map(|i| mean + if i % 2 == 0 { 0.01 } else { -0.01 })
            .collect()
    }

    #[test]
    fn clear_cases_are_decided_and_others_left_open() {
        use Direction::{Both, Faster, Slower};
        use Judgement::{Changed, Open, Unchanged};
        for (mean, n, direction, expected) in [
            (-0.01, 40, Slower, Changed),
            (-0.01, 40, Faster, Unchanged),
            (-0.01, 40, Both, Changed),
            (0.01, 40, Slower, Unchanged),
            (0.01, 40, Both, Changed),
            (0.0, 20, Slower, Open),
            (0.0, 120, Slower, Unchanged),
            (0.0, 120, Both, Unchanged),
            (-0.01, 4, Slower, Open),
        ] {
            let found = judged(&values(mean, n), direction);
            assert_eq!(found, expected, "{mean} {n} {direction:?}");
        }
    }

    #[test]
    fn a_single_value_says_nothing_unless_the_deviation_is_known() {
        assert_eq!(judged(&[-0.5], Direction::Slower), Judgement::Open);
        let question = question(2);
        let known = |value: f64| {
            let sample = Sample::of(&[value], Some(0.0005)).unwrap();
            sample.judge(&question, 0.005, 0.01)
        };
        assert_eq!(known(-0.006), Judgement::Changed);
        assert_eq!(known(0.0002), Judgement::Unchanged);
        assert_eq!(known(-0.0025), Judgement::Unchanged, "there, and too small");
        // An observed standard deviation larger than the prior one takes precedence.
        let wild = Sample::of(&[-0.02, 0.03, -0.015], Some(0.0005)).unwrap();
        assert_eq!(wild.judge(&question, 0.005, 0.01), Judgement::Open);
    }

    #[test]
    fn the_effect_is_shown_with_its_interval() {
        let effect = Sample::of(&values(-0.01, 40), None).unwrap().effect(0.01);
        assert!((effect.estimate + 0.00995).abs() < 1e-4, "{effect:?}");
        assert!(effect.low.unwrap() < effect.estimate && effect.high.unwrap() < 0.0);
        let one = Sample::of(&[0.01], None).unwrap().effect(0.01);
        assert_eq!((one.low, one.high), (None, None));
        let same = Sample::of(&[0.0; 5], None).unwrap().effect(0.05);
        assert!(same.high.is_some_and(|high| high < 1e-6), "{same:?}");
    }

    /// The shares of sessions that call a change where there is none, and the mean number of blocks until a decision.
    fn sessions(correlation: f64) -> (f64, f64) {
        use rand::SeedableRng;
        use rand::rngs::StdRng;
        const SESSIONS: u32 = 400;
        let mut random = StdRng::seed_from_u64(8);
        let mut normal = || crate::test_kit::sum_of_twelve(&mut random);
        let question = question(2);
        let (mut wrong, mut blocks) = (0, 0);
        for _ in 0..SESSIONS {
            let mut at = normal();
            let mut values = Vec::new();
            let judgement = loop {
                values.push(0.012 * at);
                at = correlation * at + (1.0 - correlation * correlation).sqrt() * normal();
                let sample = Sample::of(&values, None).unwrap();
                let judgement = sample.judge(&question, 0.05, 0.05);
                if judgement != Judgement::Open || values.len() == 200 {
                    break judgement;
                }
            };
            wrong += u32::from(judgement == Judgement::Changed);
            blocks += values.len();
        }
        let share = |count: f64| count / f64::from(SESSIONS);
        (share(f64::from(wrong)), share(blocks as f64))
    }

    #[test]
    fn blocks_that_follow_each_other_name_no_change() {
        // A tenth of them would without the widening.
        let (wrong, _) = sessions(0.3);
        assert!(wrong < 0.08, "{wrong}");
        let (wrong, blocks) = sessions(0.0);
        assert!(wrong < 0.05 && blocks < 70.0, "{wrong} {blocks}");
    }
}
