//! Variances of points moderated by what the table's points have in common.

use statrs::function::gamma::digamma;

use super::robust::deviations;
use super::table::point_variances;

/// The least number of points, the release and its control among them, from which their variances are moderated. Fewer say
/// too little about how unlike servers are.
const FEWEST_POINTS: usize = 6;

/// The least number of independent units. With six, servers whose standard deviations differ by three times are often taken for
/// alike.
const FEWEST_UNITS: usize = 10;

/// The prior weighs at most as much as a contrast's own values, in degrees of freedom: a server that varies more than the
/// others keeps half of what its own values say, however alike the others are.
const MOST_WEIGHT: f64 = 1.0;

/// The common prior of the variances of a table's points: a value's variance, with the degrees of freedom that it is worth
/// beside a point's own.
///
/// The variances of points are taken to follow a scaled inverse χ² distribution, whose scale and degrees of freedom are
/// estimated from the mean and the variance of their logarithms: G. K. Smyth, *Linear models and empirical Bayes methods for
/// assessing differential expression in microarray experiments*, Statistical Applications in Genetics and Molecular Biology 3
/// (2004), section 6.2. The more unlike servers are, the fewer degrees of freedom the prior has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct VariancePrior {
    /// Variance of a value.
    pub variance: f64,
    /// Its degrees of freedom.
    pub degrees_of_freedom: f64,
}

impl VariancePrior {
    /// Estimates the prior from `rows`, one per independent unit, each with the logarithms of the costs of the same points;
    /// `None` with too few points or units.
    pub fn of(rows: &[Vec<f64>]) -> Option<Self> {
        let points = rows.first().map_or(0, Vec::len);
        if points < FEWEST_POINTS || rows.len() < FEWEST_UNITS {
            return None;
        }
        let own = (rows.len() - 1) as f64;
        let variances = point_variances(rows);
        // A server without variance has nothing in common with the others.
        if variances.iter().any(|variance| *variance <= 0.0) {
            return None;
        }
        let shift = |freedom: f64| digamma(freedom / 2.0) - (freedom / 2.0).ln();
        let logs: Vec<f64> = variances.iter().map(|of| of.ln() - shift(own)).collect();
        let count = logs.len() as f64;
        let mean = logs.iter().sum::<f64>() / count;
        let squares: f64 = deviations(&logs).iter().map(|of| of * of).sum();
        let unlike = squares / (count - 1.0) - trigamma(own / 2.0);
        let most = MOST_WEIGHT * own;
        if unlike <= trigamma(most / 2.0) {
            return Some(VariancePrior {
                variance: (mean + shift(most)).exp().max(mean.exp()),
                degrees_of_freedom: most,
            });
        }
        let freedom = 2.0 * inverse_trigamma(unlike);
        Some(VariancePrior {
            variance: (mean + shift(freedom)).exp(),
            degrees_of_freedom: freedom,
        })
    }
}

/// The second derivative of the logarithm of the gamma function, by its recurrence and asymptotic series (Abramowitz and
/// Stegun, *Handbook of Mathematical Functions*, 6.4.6 and 6.4.12).
fn trigamma(x: f64) -> f64 {
    let mut sum = 0.0;
    let mut x = x;
    while x < 8.0 {
        sum += x.powi(-2);
        x += 1.0;
    }
    let square = x.powi(-2);
    sum + 1.0 / x
        + square / 2.0
        + square / x * (1.0 / 6.0 - square * (1.0 / 30.0 - square * (1.0 / 42.0 - square / 30.0)))
}

/// The argument at which [`trigamma`] is `value`, which is above 0. It falls monotonically.
fn inverse_trigamma(value: f64) -> f64 {
    let (mut low, mut high) = (1e-6, 1e6);
    for _ in 0..100 {
        let middle = f64::sqrt(low * high);
        if trigamma(middle) > value {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::sqrt(low * high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trigamma_has_its_known_values_and_an_inverse() {
        let pi = std::f64::consts::PI;
        assert!((trigamma(1.0) - pi * pi / 6.0).abs() < 1e-9);
        assert!((trigamma(0.5) - pi * pi / 2.0).abs() < 1e-9);
        for x in [0.3, 2.0, 11.5, 400.0] {
            assert!(
                (inverse_trigamma(trigamma(x)) / x - 1.0).abs() < 1e-6,
                "{x}"
            );
        }
    }

    /// Rows of six points around 0, of which the third varies `unlike` times as much as the others.
    fn rows(units: usize, unlike: f64) -> Vec<Vec<f64>> {
        let mut state = 1u64;
        let mut uniform = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 11) as f64 / (1u64 << 53) as f64 - 0.5
        };
        let scale = |point: usize| if point == 2 { unlike } else { 1.0 };
        (0..units)
            .map(|_| (0..6).map(|point| scale(point) * uniform()).collect())
            .collect()
    }

    #[test]
    fn like_servers_weigh_as_much_as_own_values_and_unlike_ones_less() {
        let like = VariancePrior::of(&rows(400, 1.0)).unwrap();
        assert_eq!(like.degrees_of_freedom, 399.0);
        assert!((like.variance * 12.0 - 1.0).abs() < 0.1, "{like:?}");
        let unlike = VariancePrior::of(&rows(400, 4.0)).unwrap();
        assert!(unlike.degrees_of_freedom < 10.0, "{unlike:?}");
    }

    #[test]
    fn few_points_and_constant_servers_have_no_prior() {
        let few: Vec<Vec<f64>> = rows(20, 1.0).iter().map(|row| row[..5].to_vec()).collect();
        assert_eq!(VariancePrior::of(&few), None);
        assert_eq!(VariancePrior::of(&rows(9, 1.0)), None);
        assert!(VariancePrior::of(&rows(10, 1.0)).is_some());
        assert_eq!(VariancePrior::of(&rows(20, 0.0)), None);
        assert_eq!(VariancePrior::of(&[]), None);
    }
}
