//! What disturbs the starts of servers, in simulated experiments and in measured ones.

use serde::Deserialize;

use crate::random::Noise;

/// What happens to a server's starts.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Disturbance {
    /// The standard deviation of what a block adds to all servers alike.
    pub drift: f64,
    /// The standard deviation of what it adds to this block and all that follow.
    pub walk: f64,
    /// What each block costs more than the one before.
    pub trend: f64,
    /// The correlation of a value with that of the block before, or of the lanes' round before.
    pub serial: f64,
    /// The probability of a state that costs `size`; the mean over all starts stays 0.
    pub share: f64,
    /// The largest cost of such a state, where they are not alike.
    pub up_to: f64,
    /// What states cost that were seen, all equally probable.
    pub seen: Vec<f64>,
    /// The number of consecutive blocks that cost `size`, at a random place.
    pub during: u32,
    /// The number of first blocks that cost `size`.
    pub first: u32,
    /// Every so many blocks, one costs `size`; 0 for none.
    pub period: u32,
    /// What such a state or block costs more, as a fraction.
    pub size: f64,
}

/// Returns what follows `before` with the correlation `serial`, and varies as much as `fresh`, which is independent of it.
pub fn following(before: f64, serial: f64, fresh: f64) -> f64 {
    serial * before + (1.0 - serial * serial).sqrt() * fresh
}

impl Disturbance {
    /// Draws what a block adds to all servers alike, as a log; `walk` is the sum of what stays from block to block.
    pub fn shift(&self, walk: &mut f64, noise: &mut Noise) -> f64 {
        *walk += self.walk * noise.normal();
        *walk + self.drift * noise.normal()
    }

    /// Draws the first of the consecutive blocks.
    pub fn begins(&self, blocks: u32, noise: &mut Noise) -> u32 {
        let places = blocks - self.during.min(blocks) + 1;
        u32::try_from(noise.below(places as usize)).unwrap_or(0)
    }

    /// Draws what a start costs in a block, as a log.
    pub fn cost(&self, block: u32, begins: u32, noise: &mut Noise) -> f64 {
        let is_hit = (begins..begins + self.during).contains(&block)
            || block < self.first
            || self.period > 0 && block.is_multiple_of(self.period);
        let of_block = f64::from(block) * self.trend + if is_hit { self.size } else { 0.0 };
        of_block + self.state(noise)
    }

    /// Draws what a start's state costs, as a log.
    fn state(&self, noise: &mut Noise) -> f64 {
        let mut log = if self.seen.is_empty() {
            0.0
        } else {
            noise.one_of(&self.seen)
        };
        if self.share > 0.0 {
            let more = (self.up_to - self.size).max(0.0);
            log -= (self.share * (self.size + more / 2.0)).ln_1p();
            if noise.chance(self.share) {
                log += (self.size + more * noise.uniform()).ln_1p();
            }
        }
        log
    }
}
