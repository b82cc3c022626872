//! Is a span slower, and by how much: judged at every look.

use super::outcome::Effect;
use super::question::{Direction, Question};
use crate::stats::{self, bayes_factor_above, bayes_factor_above_known};

/// What can be said of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Judgement {
    /// A change of the kind looked for is shown.
    Changed,
    /// It is shown that there is none of the size looked for.
    Unchanged,
    /// Neither, so far.
    Open,
}

/// The mean of one log ratio a block, and how exactly it is known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    mean: f64,
    error: f64,
    n: usize,
    known: bool,
}

/// Degrees of freedom that a deviation known beforehand counts for.
const KNOWN_FREEDOM: f64 = 10.0;

/// Means are not known better than a meter resolves.
const RESOLUTION: f64 = 1e-9;

impl Sample {
    /// Of the log ratios `values`, positive where the later state is faster; `None` without any.
    pub(super) fn of(values: &[f64], known_sd: Option<f64>) -> Option<Self> {
        if values.is_empty() {
            return None;
        }
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let error = match known_sd {
            Some(sd) => {
                let both = (KNOWN_FREEDOM * sd * sd + squares) / (KNOWN_FREEDOM + n - 1.0);
                both.sqrt().max(sd) / n.sqrt()
            }
            None if values.len() < 2 => f64::INFINITY,
            None => (squares / (n - 1.0) / n).sqrt(),
        };
        Some(Sample {
            mean,
            error: error.max(RESOLUTION),
            n: values.len(),
            known: known_sd.is_some(),
        })
    }

    /// Independent blocks.
    pub(super) fn blocks(&self) -> usize {
        self.n
    }

    /// How many times likelier the values are with an effect above `least` than with that one.
    fn above(&self, least: f64) -> f64 {
        self.factor((self.mean - least) / self.error)
    }

    /// The same for an effect below `most`.
    fn below(&self, most: f64) -> f64 {
        self.factor((most - self.mean) / self.error)
    }

    fn factor(&self, statistic: f64) -> f64 {
        if self.known {
            bayes_factor_above_known(statistic, self.n)
        } else {
            bayes_factor_above(statistic, self.n)
        }
    }

    /// Whether a change is shown with an error of at most `alpha` over all looks, or that there is none
    /// of the size with at most `missed`.
    pub(super) fn judge(&self, question: &Question, alpha: f64, missed: f64) -> Judgement {
        let (loss, gain) = ((-question.size).ln_1p().abs(), question.size.ln_1p());
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
        // What is there but smaller than what is looked for is not looked for.
        match (changed, unchanged) {
            (_, true) => Judgement::Unchanged,
            (true, false) => Judgement::Changed,
            (false, false) => Judgement::Open,
        }
    }

    /// Whether a change the other way round than what is looked for is shown, at 5 %.
    pub(super) fn is_opposite(&self, direction: Direction) -> bool {
        match direction {
            Direction::Slower => self.above(0.0) >= 20.0,
            Direction::Faster => self.below(0.0) >= 20.0,
            Direction::Both => false,
        }
    }

    /// The effect with its interval at the level 1 − `error`, at all looks together.
    pub(super) fn effect(&self, error: f64) -> Effect {
        let reach = if self.known {
            known_reach(self.n, error)
        } else {
            stats::critical(self.n, error)
        };
        let half = reach * self.error;
        let end = |log: f64| log.is_finite().then(|| stats::speed(log));
        Effect {
            estimate: stats::speed(self.mean),
            low: end(self.mean - half),
            high: end(self.mean + half),
            blocks: self.n,
        }
    }
}

/// Where the mixture with a known deviation reaches 1/α, both sides.
fn known_reach(n: usize, alpha: f64) -> f64 {
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

    /// `n` values with mean `mean` and standard deviation 1 %.
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
        // Scatter that is larger than it was thought to be is believed.
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
    }
}
