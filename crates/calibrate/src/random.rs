//! Random numbers with the distributions of measurements.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::Deserialize;
use sha2::{Digest, Sha256};

/// A distribution with mean 0 and variance 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Distribution {
    /// The normal one.
    Normal,
    /// Student's with 3 degrees of freedom.
    Heavy,
    /// The log-normal one of σ = 1.
    LogNormal,
}

/// A source of random numbers.
#[derive(Debug)]
pub struct Noise(StdRng);

impl Noise {
    /// Returns the generator of a seed, purpose and index: the same numbers on any thread.
    pub fn of(seed: u64, purpose: &str, index: usize) -> Self {
        let digest = Sha256::digest(format!("{seed} {purpose} {index}"));
        Noise(StdRng::from_seed(digest.into()))
    }

    /// Draws a number between 0 and 1.
    pub fn uniform(&mut self) -> f64 {
        self.0.random::<f64>()
    }

    /// Returns true with probability `share`.
    pub fn chance(&mut self, share: f64) -> bool {
        self.uniform() < share
    }

    /// Draws a whole number below `count`.
    pub fn below(&mut self, count: usize) -> usize {
        self.0.random_range(0..count)
    }

    /// Draws from Poisson's distribution (Knuth).
    pub fn poisson(&mut self, mean: f64) -> u32 {
        let (mut count, mut product) = (0, self.uniform());
        while product > (-mean).exp() {
            count += 1;
            product *= self.uniform();
        }
        count
    }

    /// Draws from a distribution with mean 0 and variance 1.
    pub fn draw(&mut self, distribution: Distribution) -> f64 {
        match distribution {
            Distribution::Normal => self.normal(),
            Distribution::Heavy => self.heavy(),
            Distribution::LogNormal => {
                let e = std::f64::consts::E;
                (self.normal().exp() - e.sqrt()) / (e * (e - 1.0)).sqrt()
            }
        }
    }

    /// Draws one of `values`.
    pub fn one_of(&mut self, values: &[f64]) -> f64 {
        values[self.0.random_range(0..values.len())]
    }

    /// Draws from the standard normal distribution (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// Draws from Student's distribution with 3 degrees of freedom, scaled to variance 1: heavier tails than
    /// normal.
    pub fn heavy(&mut self) -> f64 {
        let squares: f64 = (0..3).map(|_| self.normal().powi(2)).sum();
        self.normal() / squares.sqrt()
    }

    /// Shuffles `values`.
    pub fn shuffle<T>(&mut self, values: &mut [T]) {
        use rand::seq::SliceRandom;
        values.shuffle(&mut self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_have_mean_0_and_variance_1() {
        let mut noise = Noise::of(1, "test", 0);
        let n = 200_000;
        let moments = |draw: &mut dyn FnMut() -> f64| {
            let (mut sum, mut squares) = (0.0, 0.0);
            for _ in 0..n {
                let value = draw();
                sum += value;
                squares += value * value;
            }
            (sum / f64::from(n), squares / f64::from(n))
        };
        let (mean, variance) = moments(&mut || noise.normal());
        assert!(mean.abs() < 0.01 && (variance - 1.0).abs() < 0.02);
        // The fourth moment is infinite, so the sample variance converges slowly.
        let (mean, variance) = moments(&mut || noise.heavy());
        assert!(
            mean.abs() < 0.02 && (0.8..1.3).contains(&variance),
            "{variance}"
        );
        let (mean, variance) = moments(&mut || noise.draw(Distribution::LogNormal));
        assert!(
            mean.abs() < 0.02 && (0.8..1.2).contains(&variance),
            "{variance}"
        );
    }

    #[test]
    fn the_same_index_gives_the_same_numbers() {
        let draw = |index| Noise::of(7, "a", index).normal();
        assert_eq!(draw(3), draw(3));
        assert_ne!(draw(3), draw(4));
    }
}
