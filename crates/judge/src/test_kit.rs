//! Random numbers that the tests of this crate share.

use rand::RngExt;
use rand::rngs::StdRng;

/// Draws from the standard normal distribution (Box and Muller, Annals of Mathematical Statistics 29, 1958).
pub(crate) fn normal(random: &mut StdRng) -> f64 {
    let radius = (-2.0 * (1.0 - random.random::<f64>()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.random::<f64>()).cos()
}

/// Draws from a nearly normal distribution without far values: the sum of twelve uniform ones.
pub(crate) fn sum_of_twelve(random: &mut StdRng) -> f64 {
    (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0
}
