//! Tracks the progress of an experiment in expected milliseconds, to forecast its end.

use std::collections::BTreeMap;
use std::time::Duration;

use super::plan::{Block, Reading};
use perfquilt_judge::attribution::Stopping;

/// The expected seconds of a block over all points.
#[derive(Debug, Clone, Copy, Default)]
pub struct BlockTimes {
    /// Of a timed block.
    pub timed: f64,
    /// Of a counted block, on its lane.
    pub counted: f64,
}

/// Expected durations of blocks, corrected by measured ones.
#[derive(Debug)]
pub(super) struct RemainingTime {
    expected: BlockTimes,
    measured: BTreeMap<Reading, (f64, u32)>,
}

impl RemainingTime {
    /// Begins with the `expected` times, which the first block of each kind replaces.
    pub(super) fn new(expected: BlockTimes) -> Self {
        RemainingTime {
            expected,
            measured: BTreeMap::new(),
        }
    }

    /// Records that a block took `time`.
    pub(super) fn learn(&mut self, reading: Reading, time: Duration) {
        let entry = self.measured.entry(reading).or_default();
        entry.0 += time.as_secs_f64();
        entry.1 += 1;
    }

    fn of(&self, reading: Reading) -> f64 {
        match (self.measured.get(&reading), reading) {
            (Some((sum, count)), _) => sum / f64::from(*count),
            (None, Reading::Timed) => self.expected.timed,
            (None, Reading::Counted) => self.expected.counted,
        }
    }

    /// Returns the milliseconds that the remaining `blocks` are expected to take, counting as many timed ones
    /// as `stopping` expects to need.
    pub(super) fn milliseconds(&self, blocks: &[&Block], stopping: Option<&Stopping>) -> u64 {
        let count = |reading| {
            blocks
                .iter()
                .filter(|b| b.kind.reading() == reading)
                .count() as f64
        };
        let expected = stopping.and_then(|stopping| stopping.expected);
        let timed = count(Reading::Timed).min(expected.map_or(f64::INFINITY, f64::from));
        let seconds =
            timed * self.of(Reading::Timed) + count(Reading::Counted) * self.of(Reading::Counted);
        (seconds * 1000.0).round().max(1.0) as u64
    }
}

/// Formats a duration: `2 min 5 s`, `40 s`.
pub(super) fn words(milliseconds: u64) -> String {
    let seconds = milliseconds.div_ceil(1000);
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, s) => format!("{m} min {s} s"),
        (h, m, _) => format!("{h} h {m} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::plan::BlockKind;

    #[test]
    fn forecasts_learn() {
        let block = Block {
            number: 0,
            kind: BlockKind::Timed,
            points: Vec::new(),
            workloads: Vec::new(),
            seed: 0,
            layouts: Default::default(),
            again: false,
            round: 0,
            copies: 1,
        };
        let expected = BlockTimes {
            timed: 4.2,
            counted: 0.0,
        };
        let mut forecast = RemainingTime::new(expected);
        assert_eq!(forecast.milliseconds(&[&block, &block], None), 8400);
        forecast.learn(Reading::Timed, Duration::from_secs(2));
        forecast.learn(Reading::Timed, Duration::from_secs(3));
        assert_eq!(forecast.milliseconds(&[&block, &block], None), 5000);
    }

    #[test]
    fn durations_read_well() {
        assert_eq!(words(1), "1 s");
        assert_eq!(words(125_000), "2 min 5 s");
        assert_eq!(words(3_720_000), "1 h 2 min");
    }
}
