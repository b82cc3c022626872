//! A test for the loss of an effect between two experiments.

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::interval::Interval;
use super::quantile::{self, LEVEL};
use super::sequential::StoppingRule;

/// The loss of an effect between two experiments, on the log scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Loss {
    /// The old effect minus the new one.
    pub estimate: f64,
    /// Its standard error.
    pub standard_error: f64,
    /// P-value of the null hypothesis that the effect is unchanged, conditional on the old experiment having
    /// called it.
    pub p_value: f64,
}

impl Loss {
    /// Estimates the loss from `old` to `new`, where `old` was selected because it was called faster: its
    /// p-value was at most `share` of 1 − the level, and it had the smallest one of `candidates` called
    /// effects. `None` if either effect has no finite interval.
    ///
    /// An estimate that was selected for being large is biased upwards, so the next one is smaller on average
    /// without any change. Given the best estimate of a common effect (the mean `m` of both, weighted by
    /// their precision), `D = old − new` is normal with variance `s² = s₁² + s₂²` and independent of `m`; the
    /// old effect lies above its threshold `c` if and only if `D ≥ a = (c − m) s²/s₁²`. So
    ///
    /// ```text
    /// p = P(D ≥ d) / P(D ≥ a)
    /// ```
    ///
    /// exactly, whatever the common effect is. Where standard errors are estimated, Student's distribution on
    /// Welch's degrees of freedom replaces the normal one. The p-value is multiplied by the number of
    /// candidates (Bonferroni). W. Fithian, D. Sun and J. Taylor, *Optimal inference after model selection*,
    /// arXiv:1410.2597 (2014), section 3.
    pub fn of(old: &Interval, share: f64, candidates: usize, new: &Interval) -> Option<Self> {
        if !(old.half_width.is_finite() && new.half_width.is_finite()) {
            return None;
        }
        // Selection also favours effects whose standard error happened to be small. The new experiment's
        // estimate of a block's standard deviation was not selected.
        let blocks = |of: &Interval| of.blocks.max(1) as f64;
        let other = error_of(new);
        let own = error_of(old).max(other * (blocks(new) / blocks(old)).sqrt());
        let difference = {
            let part = |of: &Interval, error: f64| {
                let stopping_rule = StoppingRule::FixedSample;
                let fixed = Interval {
                    stopping_rule,
                    ..*of
                };
                fixed.with_error(error, of.degrees_of_freedom)
            };
            part(old, own).minus(&part(new, other))
        };
        let error = difference.standard_error;
        let threshold = (own * threshold(old, share)).min(old.estimate);
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

/// Returns the standard error of Student's interval with the same half-width.
fn error_of(interval: &Interval) -> f64 {
    match interval.stopping_rule {
        StoppingRule::Anytime => interval.standard_error,
        _ => interval.half_width / student(0.5 + LEVEL / 2.0, interval.degrees_of_freedom),
    }
}

/// Returns the least effect that is called in the experiment of `interval`, in units of [`error_of`], when its p-value is
/// at most `share` of 1 − the level.
fn threshold(interval: &Interval, share: f64) -> f64 {
    match interval.stopping_rule {
        StoppingRule::Anytime => interval.critical_value(share),
        _ => student(
            1.0 - (1.0 - LEVEL) * share / 2.0,
            interval.degrees_of_freedom,
        ),
    }
}

fn student(p: f64, degrees_of_freedom: f64) -> f64 {
    quantile::student(p, degrees_of_freedom.max(1.0))
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;
    use crate::test_kit::normal;

    /// Simulates an experiment of 24 blocks with a standard deviation of 1 per block, whose number `rule` determined.
    fn experiment(effect: f64, rule: StoppingRule, random: &mut StdRng) -> Interval {
        let values: Vec<f64> = (0..24).map(|_| effect + normal(random)).collect();
        Interval::under(&values, rule).unwrap()
    }

    /// Returns the share of claimed losses among old effects that were called.
    fn claims(before: f64, after: f64, share: f64) -> f64 {
        claims_under(StoppingRule::FixedSample, before, after, share)
    }

    /// Returns [`claims`] where `rule` determined the blocks of the old experiment.
    fn claims_under(rule: StoppingRule, before: f64, after: f64, share: f64) -> f64 {
        let mut random = StdRng::seed_from_u64(5);
        let (mut called, mut lost) = (0.0, 0.0);
        while called < 2000.0 {
            let old = experiment(before, rule, &mut random);
            if old.estimate < 0.0 || old.p_value() > (1.0 - rule.level()) * share {
                continue;
            }
            called += 1.0;
            let new = experiment(after, StoppingRule::FixedSample, &mut random);
            let loss = Loss::of(&old, share, 1, &new).unwrap();
            lost += f64::from(u8::from(loss.p_value <= 0.05));
        }
        lost / called
    }

    #[test]
    fn an_effect_that_is_what_it_was_is_hardly_ever_called_lost() {
        // In standard errors (0.2): from effects that are called by chance to effects that are always called.
        for effect in [0.0, 0.2, 0.4, 0.6, 0.8, 1.6] {
            for share in [1.0, 0.1] {
                let wrong = claims(effect, effect, share);
                // 2,000 experiments: standard error 0.5 %.
                assert!(wrong < 0.06, "{effect} {share}: {wrong}");
            }
        }
    }

    #[test]
    fn an_effect_of_an_unfinished_experiment_is_hardly_ever_called_lost() {
        // Effects are called from 4.2 standard errors on, or from 5.1 on.
        for effect in [0.6, 0.7, 0.8, 1.6] {
            for share in [1.0, 0.1] {
                let wrong = claims_under(StoppingRule::Anytime, effect, effect, share);
                assert!(wrong < 0.06, "{effect} {share}: {wrong}");
            }
        }
        assert!(claims_under(StoppingRule::Anytime, 1.6, 0.0, 1.0) > 0.95);
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
