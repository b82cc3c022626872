//! Whether an effect that was found before is gone.

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::interval::{Interval, LEVEL};
use super::sequential::Looks;

/// What an effect lost between two experiments, on the log scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Loss {
    /// The old effect less the new one.
    pub estimate: f64,
    /// Its standard error.
    pub standard_error: f64,
    /// The probability of such a loss or a larger one if the effect is what it was, given that the old
    /// experiment called it.
    pub p_value: f64,
}

impl Loss {
    /// The loss from `old` to `new`, where `old` was looked at because it was called faster: its
    /// probability was at most `share` of 1 − the level, and of so many `candidates` that were called it was
    /// the surest. `None` where one of them has no interval.
    ///
    /// An estimate that was selected for being large is too large on average, so that the next one is
    /// smaller without any change. Given the best estimate of a common effect (the mean `m` of both, weighted
    /// by their precision), `D = old − new` is normal with variance `s² = s₁² + s₂²` and independent of `m`;
    /// that the old one lies above its threshold `c` means `D ≥ a = (c − m) s²/s₁²`. So
    ///
    /// ```text
    /// p = P(D ≥ d) / P(D ≥ a)
    /// ```
    ///
    /// exactly, whatever the common effect is, with Student's distribution on Welch's degrees of freedom in
    /// the place of the normal one where errors are estimated. For the choice among candidates it is multiplied
    /// by their number (Bonferroni). W. Fithian, D. Sun and J. Taylor, *Optimal
    /// inference after model selection*, arXiv:1410.2597 (2014), section 3.
    pub fn of(old: &Interval, share: f64, candidates: usize, new: &Interval) -> Option<Self> {
        if !(old.half_width.is_finite() && new.half_width.is_finite()) {
            return None;
        }
        // An effect was also called because its error happened to look small. What the new experiment knows
        // of a block's error was not selected.
        let blocks = |of: &Interval| of.blocks.max(1) as f64;
        let other = error_of(new);
        let own = error_of(old).max(other * (blocks(new) / blocks(old)).sqrt());
        let difference = {
            let part = |of: &Interval, error: f64| {
                Interval::with(
                    of.estimate,
                    error,
                    of.blocks,
                    of.degrees_of_freedom,
                    Looks::Fixed,
                )
            };
            part(old, own).less(&part(new, other))
        };
        let error = difference.standard_error;
        let called = own * student(1.0 - (1.0 - LEVEL) * share / 2.0, old.degrees_of_freedom);
        let threshold = called.min(old.estimate);
        let precision = |error: f64| error.max(1e-12).powi(-2);
        let weights = (precision(own), precision(other));
        let both = (weights.0 * old.estimate + weights.1 * new.estimate) / (weights.0 + weights.1);
        let bound = (threshold - both) * (error / own.max(1e-12)).powi(2);
        let tail = |value: f64| {
            let t = StudentsT::new(0.0, 1.0, difference.degrees_of_freedom.max(1.0));
            t.map_or(1.0, |t| t.sf(value / error.max(1e-12)))
        };
        let condition = tail(bound);
        Some(Loss {
            estimate: difference.estimate,
            standard_error: error,
            p_value: if condition > 0.0 {
                (candidates as f64 * tail(difference.estimate) / condition).clamp(0.0, 1.0)
            } else {
                1.0
            },
        })
    }
}

/// The standard error that an interval stands for, as if it were Student's.
fn error_of(interval: &Interval) -> f64 {
    match interval.looks {
        Looks::Any => interval.standard_error,
        _ => interval.half_width / student(0.5 + LEVEL / 2.0, interval.degrees_of_freedom),
    }
}

fn student(p: f64, freedom: f64) -> f64 {
    super::interval::student(p, freedom.max(1.0))
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    fn normal(random: &mut StdRng) -> f64 {
        let radius = (-2.0 * (1.0 - random.random::<f64>()).ln()).sqrt();
        radius * (std::f64::consts::TAU * random.random::<f64>()).cos()
    }

    /// An experiment of 24 blocks with a block's deviation of 1.
    fn experiment(effect: f64, random: &mut StdRng) -> Interval {
        let values: Vec<f64> = (0..24).map(|_| effect + normal(random)).collect();
        Interval::of(&values).unwrap()
    }

    /// The share of wrong claims among old effects that were called.
    fn claims(before: f64, after: f64, share: f64) -> f64 {
        let mut random = StdRng::seed_from_u64(5);
        let (mut called, mut lost) = (0.0, 0.0);
        while called < 2000.0 {
            let old = experiment(before, &mut random);
            if old.estimate < 0.0 || old.p_value() > 0.05 * share {
                continue;
            }
            called += 1.0;
            let loss = Loss::of(&old, share, 1, &experiment(after, &mut random)).unwrap();
            lost += f64::from(u8::from(loss.p_value <= 0.05));
        }
        lost / called
    }

    #[test]
    fn an_effect_that_is_what_it_was_is_hardly_ever_called_lost() {
        // In standard errors (0.2): from effects that are called by luck to those that always are.
        for effect in [0.0, 0.2, 0.4, 0.6, 0.8, 1.6] {
            for share in [1.0, 0.1] {
                let wrong = claims(effect, effect, share);
                // 2,000 experiments: standard error 0.5 %.
                assert!(wrong < 0.06, "{effect} {share}: {wrong}");
            }
        }
    }

    #[test]
    fn an_effect_that_is_gone_is_found() {
        assert!(claims(1.6, 0.0, 1.0) > 0.95);
        assert!(claims(0.8, 0.0, 1.0) > 0.5);
    }

    #[test]
    fn nothing_is_claimed_without_intervals() {
        let one = Interval::of(&[1.0]).unwrap();
        let two = Interval::of(&[1.0, 1.1]).unwrap();
        assert_eq!(Loss::of(&one, 1.0, 1, &two), None);
        assert_eq!(Loss::of(&two, 1.0, 1, &one), None);
    }
}
