//! A pilot: some blocks whose values tell how long blocks should be, and how long an experiment takes. They are part
//! of no interval.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::executor::{Event, Executor};
use super::plan::Block;
use perfquilt_judge::stats::{BlockTable, BlockValue, reduce_block};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::Meter;

/// Blocks of a pilot. Six servers in six blocks give the variance of a value 25 degrees of freedom.
pub(super) const BLOCKS: u32 = 6;
/// The shortest block in seconds: less leaves some workloads too few rounds for a value.
const SHORTEST: f64 = 0.25;
/// The largest factor by which a pilot lengthens blocks.
const LONGEST: f64 = 4.0;

/// The variance of one workload's values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct WorkloadNoise {
    /// Seconds of the blocks that it was estimated from.
    pub seconds: f64,
    /// The variance of a value's logarithm around block and point that slices leave, in blocks of so many seconds.
    pub within: f64,
    /// The rest of this variance: what restarts and layouts change, however long a block is.
    pub between: f64,
}

impl WorkloadNoise {
    /// Returns the variance of a value in a block of `seconds`.
    pub(super) fn variance(&self, seconds: f64) -> f64 {
        self.between + self.within * self.seconds / seconds
    }
}

/// The result of a pilot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Pilot {
    /// Seconds of a block besides its timed slices: links, starts, connections and warm-ups.
    pub overhead: f64,
    /// The noise by workload.
    pub workloads: BTreeMap<String, WorkloadNoise>,
}

impl Pilot {
    /// Returns the seconds of a block by workload with which a given width takes the least time.
    ///
    /// A block of `T` seconds costs `a + T`, with the workload's share `a` of the overhead, and its values have the
    /// variance `b + w/T`. The time for a given width is proportional to `(a + T)(b + w/T)`, which is least at
    /// `T = √(a w / b)`: the optimal allocation of two-stage sampling (W. G. Cochran, *Sampling Techniques*, 1977,
    /// section 10.6). The optimum is flat, so the result is rounded to two digits, and blocks are not made more than
    /// four times as long.
    pub(super) fn seconds(&self) -> BTreeMap<String, f64> {
        let share = self.overhead / self.workloads.len().max(1) as f64;
        let best = |noise: &WorkloadNoise| {
            let best = (share * noise.within * noise.seconds / noise.between).sqrt();
            // Without any variance left between blocks, the longest.
            let best = if best.is_nan() { noise.seconds } else { best };
            let most = LONGEST * noise.seconds;
            (best.clamp(SHORTEST.min(most), most) * 20.0).round() / 20.0
        };
        let workloads = self.workloads.iter();
        workloads
            .map(|(name, noise)| (name.clone(), best(noise)))
            .collect()
    }
}

impl fmt::Display for Pilot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.seconds();
        for (place, (name, noise)) in self.workloads.iter().enumerate() {
            let (within, between) = (noise.within.sqrt(), noise.between.sqrt());
            let comma = if place > 0 { ", " } else { "" };
            write!(
                f,
                "{comma}{name} {:.2} % from start to start and {:.2} % in blocks of {} s: blocks of {} s",
                100.0 * between,
                100.0 * within,
                noise.seconds,
                seconds[name],
            )?;
        }
        Ok(())
    }
}

/// A measured block: its duration in seconds, and its values by workload.
type PilotBlock = (f64, BTreeMap<String, Vec<BlockValue>>);

/// Measures `blocks` on all lanes and estimates the noise of every workload. `seconds` are the configured ones of a
/// workload's slices, `share` how much longer the blocks were because of their many servers.
///
/// # Errors
/// Errors that end a block.
pub(super) fn run(
    executor: &dyn Executor,
    blocks: &[Block],
    seconds: &dyn Fn(&str) -> f64,
    share: f64,
) -> Result<Pilot> {
    let next = Mutex::new(blocks.iter());
    let done: Mutex<Vec<Result<PilotBlock>>> = Mutex::default();
    std::thread::scope(|scope| {
        for lane in 0..executor.lanes().max(1) {
            let (next, done) = (&next, &done);
            scope.spawn(move || {
                let result = lane_blocks(executor, lane, next, done);
                if let (Err(error), Ok(mut done)) = (result, done.lock()) {
                    done.push(Err(error));
                }
            });
        }
    });
    let done = done.into_inner().unwrap_or_default();
    let done: Vec<PilotBlock> = done.into_iter().collect::<Result<_>>()?;
    estimate(&done, seconds, share).ok_or_else(|| {
        Error::bench("the pilot's blocks have no values").hint("`pilot = false` measures without")
    })
}

/// Measures blocks of the queue `next` on one lane.
fn lane_blocks<'b>(
    executor: &dyn Executor,
    lane: u32,
    next: &Mutex<impl Iterator<Item = &'b Block>>,
    done: &Mutex<Vec<Result<PilotBlock>>>,
) -> Result<()> {
    let mut open = executor.open(lane)?;
    loop {
        // Only a panic poisons the lock, and a panic ends the scope anyway.
        let Some(block) = next.lock().ok().and_then(|mut next| next.next()) else {
            return Ok(());
        };
        let began = Instant::now();
        let mut values = BTreeMap::new();
        open.run(block, &BTreeMap::new(), &mut |event| {
            if let Event::Timed {
                workload, measured, ..
            } = event
            {
                values.insert(workload, reduce_block(measured.of(Meter::Time)));
            }
            Ok(())
        })?;
        if let Ok(mut done) = done.lock() {
            done.push(Ok((began.elapsed().as_secs_f64(), values)));
        }
    }
}

fn estimate(blocks: &[PilotBlock], seconds: &dyn Fn(&str) -> f64, share: f64) -> Option<Pilot> {
    let mut tables: BTreeMap<&str, (BlockTable, Vec<f64>)> = BTreeMap::new();
    for (number, (_, values)) in (0..).zip(blocks) {
        for (workload, values) in values {
            let (table, within) = tables.entry(workload).or_default();
            for value in values {
                table.insert(number, value.point, value.value, 1);
                within.extend(value.standard_error.map(|error| error * error));
            }
        }
    }
    let noise = |(name, (table, within)): (&&str, &(BlockTable, Vec<f64>))| {
        let all = table.spread()?.sd.powi(2);
        let slices = within.iter().sum::<f64>() / within.len().max(1) as f64;
        let noise = WorkloadNoise {
            seconds: seconds(name),
            within: slices.min(all),
            between: (all - slices).max(0.0),
        };
        Some(((*name).to_owned(), noise))
    };
    let workloads: BTreeMap<String, WorkloadNoise> = tables.iter().filter_map(noise).collect();
    let elapsed = blocks.iter().map(|(elapsed, _)| elapsed).sum::<f64>();
    let timed: f64 = workloads.keys().map(|name| share * seconds(name)).sum();
    let overhead = elapsed / blocks.len().max(1) as f64 - timed;
    (!workloads.is_empty()).then(|| Pilot {
        overhead: overhead.max(0.0),
        workloads,
    })
}

#[cfg(test)]
mod tests {
    use perfquilt_model::point::Point;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    fn pilot(overhead: f64, within: f64, between: f64) -> Pilot {
        let noise = WorkloadNoise {
            seconds: 2.0,
            within,
            between,
        };
        Pilot {
            overhead,
            workloads: BTreeMap::from([("w".to_owned(), noise)]),
        }
    }

    #[test]
    fn restless_restarts_make_blocks_short_and_noisy_slices_long() {
        let seconds = |overhead, within: f64, between: f64| {
            pilot(overhead, within * within, between * between).seconds()["w"]
        };
        // Restarts differ by 2 %, slices by 0.16 %: the slices of 0.25 s know all there is to know.
        assert_eq!(seconds(1.0, 0.0016, 0.02), 0.25);
        // √(3 · 2 · 0.8² / 1) = 1.96
        assert_eq!(seconds(3.0, 0.008, 0.01), 1.95);
        assert_eq!(seconds(3.0, 0.008, 0.0), 8.0);
        assert_eq!(seconds(3.0, 0.0, 0.0), 2.0);
    }

    #[test]
    fn no_other_length_takes_less_time_for_a_width() {
        let time = |pilot: &Pilot, seconds: f64| {
            (pilot.overhead + seconds) * pilot.workloads["w"].variance(seconds)
        };
        for (overhead, within, between) in [(3.0, 6e-5, 1e-4), (1.0, 2e-4, 1e-4)] {
            let pilot = pilot(overhead, within, between);
            let best = time(&pilot, pilot.seconds()["w"]);
            for other in [0.3, 0.6, 1.0, 1.5, 2.0, 3.0, 6.0, 8.0] {
                assert!(time(&pilot, other) >= 0.999 * best, "{other}");
            }
        }
    }

    #[test]
    fn the_variances_of_blocks_are_estimated() {
        let mut random = StdRng::seed_from_u64(1);
        let mut noise = |sd: f64| sd * 3f64.sqrt() * random.random_range(-1.0..1.0);
        let blocks: Vec<PilotBlock> = (0..400)
            .map(|_| {
                let shared = noise(0.05);
                let values = (0..6).map(|k| BlockValue {
                    point: Point::Step(k),
                    value: 1e5 * (shared + noise(0.01)).exp(),
                    tail: None,
                    standard_error: Some(0.006),
                    slices: 100,
                    left_out: 0,
                });
                (5.0, BTreeMap::from([("w".to_owned(), values.collect())]))
            })
            .collect();
        let found = estimate(&blocks, &|_| 2.0, 1.0).unwrap();
        assert_eq!(found.overhead, 3.0);
        let noise = found.workloads["w"];
        assert!((noise.within - 3.6e-5).abs() < 1e-9);
        assert!((noise.between / 6.4e-5 - 1.0).abs() < 0.1, "{noise:?}");
        assert_eq!(estimate(&[], &|_| 2.0, 1.0), None);
    }
}
