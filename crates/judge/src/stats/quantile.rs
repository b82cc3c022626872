//! Levels and quantiles that intervals and tests share.

use std::sync::OnceLock;

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// The confidence level of every interval.
pub const LEVEL: f64 = 0.95;

/// The power behind the minimum detectable effect.
pub const POWER: f64 = 0.8;

/// The power of Student's test that leaves about [`POWER`] to verdicts on times in blocks, because the tests for slow variation
/// and for runs withhold a tenth of true effects of that size (`ci/calibrate experiments --only detectable`).
pub const POWER_BEFORE_SHAPES: f64 = 0.9;

/// Returns the quantile of the standard normal distribution at probability `p`.
pub fn normal_quantile(p: f64) -> f64 {
    Normal::standard().inverse_cdf(p)
}

/// Returns the quantile of Student's t distribution at probability `p`. Quantiles that every interval needs
/// are computed once.
pub(super) fn student(p: f64, degrees_of_freedom: f64) -> f64 {
    static KNOWN: [OnceLock<Vec<f64>>; 2] = [const { OnceLock::new() }; 2];
    let quantile = |degrees_of_freedom: f64| {
        StudentsT::new(0.0, 1.0, degrees_of_freedom).map_or(f64::INFINITY, |t| t.inverse_cdf(p))
    };
    let cached = [0.5 + LEVEL / 2.0, POWER]
        .iter()
        .position(|&cached| cached == p);
    match cached {
        Some(place)
            if (1.0..=CACHED as f64).contains(&degrees_of_freedom)
                && degrees_of_freedom.fract() == 0.0 =>
        {
            let all = || {
                (1..=CACHED)
                    .map(|degrees_of_freedom| quantile(degrees_of_freedom as f64))
                    .collect()
            };
            KNOWN[place].get_or_init(all)[degrees_of_freedom as usize - 1]
        }
        _ => quantile(degrees_of_freedom),
    }
}

/// The largest number of degrees of freedom whose quantiles are cached.
const CACHED: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (p, degrees_of_freedom, expected) in [
            (0.975, 1.0, 12.7062),
            (0.975, 2.0, 4.302_65),
            (0.975, 5.0, 2.570_58),
            (0.975, 23.0, 2.068_66),
            (0.975, 1e5, 1.959_99),
            (0.8, 1.0, 1.376_38),
            (0.8, 10.0, 0.879_06),
        ] {
            let found = student(p, degrees_of_freedom);
            assert!(
                (found / expected - 1.0).abs() < 1e-5,
                "{p} {degrees_of_freedom}: {found}"
            );
        }
    }
}
