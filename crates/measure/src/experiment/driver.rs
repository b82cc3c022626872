//! Measures the blocks that a strategy chooses, and stores each.

use std::collections::BTreeMap;
use std::time::Instant;

use super::collected::Collected;
use super::executor::Executor;
use super::plan::{Block, Reading};
use super::progress::words;
use super::recorder::{Readings, Recorded, Recorder};
use super::strategy::{SoFar, Strategy};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::Meter;
use perfquilt_model::point::Point;
use perfquilt_model::progress::{Progress, Step};
use perfquilt_store::{ExperimentId, Store};
use perfquilt_system::process::check_interrupted;

/// Measures one experiment.
pub struct Driver<'a> {
    recorder: Recorder<'a>,
    collected: Collected,
    margin: &'a dyn Fn(Meter) -> f64,
}

impl<'a> Driver<'a> {
    /// Continues experiment `id` of `store`, whose observations are `collected`. `margin` gives the equivalence
    /// margins as fractions of speed.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when the store cannot be read.
    pub fn new(
        store: &'a Store,
        id: ExperimentId,
        readings: Readings<'a>,
        collected: Collected,
        margin: &'a dyn Fn(Meter) -> f64,
    ) -> Result<Self> {
        Ok(Driver {
            recorder: Recorder::new(store, id, readings)?,
            collected,
            margin,
        })
    }

    /// Returns the observations, those of the measured blocks included.
    pub fn into_collected(self) -> Collected {
        self.collected
    }

    /// Returns whether `strategy` has no block left without the `failed` points.
    ///
    /// # Errors
    /// The errors of [`Strategy::next`].
    pub fn is_complete(
        &mut self,
        strategy: &mut dyn Strategy,
        failed: &BTreeMap<Point, Error>,
    ) -> Result<bool> {
        let mut so_far = SoFar {
            recorder: &self.recorder,
            collected: &mut self.collected,
            failed,
        };
        Ok(strategy.next(&mut so_far)?.is_none())
    }

    /// Measures and stores the blocks of `strategy`. Returns the points that failed, and how it ended.
    pub fn drive(
        &mut self,
        strategy: &mut dyn Strategy,
        executor: &mut dyn Executor,
        progress: &dyn Progress,
    ) -> (BTreeMap<Point, Error>, Result<()>) {
        let mut failed = BTreeMap::new();
        let end = self.drive_into(&mut failed, strategy, executor, progress);
        (failed, end)
    }

    fn drive_into(
        &mut self,
        failed: &mut BTreeMap<Point, Error>,
        strategy: &mut dyn Strategy,
        executor: &mut dyn Executor,
        progress: &dyn Progress,
    ) -> Result<()> {
        let mut step: Option<Box<dyn Step>> = None;
        let started = Instant::now();
        loop {
            check_interrupted()?;
            let mut so_far = SoFar {
                recorder: &self.recorder,
                collected: &mut self.collected,
                failed,
            };
            let Some(next) = strategy.next(&mut so_far)? else {
                break;
            };
            if let Some(announcement) = &next.announcement {
                let step = step.get_or_insert_with(|| progress.begin("measure", None));
                step.estimate(announcement.share, &announcement.line);
            }
            let began = Instant::now();
            let name = next.announcement.as_ref().map(|of| of.name.as_str());
            self.measure(&next.block, name, failed, executor, progress)?;
            strategy.finished(next.block.reading, began.elapsed());
        }
        if let Some(step) = step {
            let elapsed = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
            step.finish(&format!("measured in {}", words(elapsed)));
        }
        Ok(())
    }

    /// Measures one block; reports its effects when it has a `name`.
    fn measure(
        &mut self,
        block: &Block,
        name: Option<&str>,
        failed: &mut BTreeMap<Point, Error>,
        executor: &mut dyn Executor,
        progress: &dyn Progress,
    ) -> Result<()> {
        let transactions = self.transactions(block);
        executor.run(block, &transactions, &mut |event| {
            match self.recorder.record(block, event)? {
                Recorded::Stored {
                    workload,
                    observations,
                } => {
                    for observation in observations {
                        self.collected.add(observation)?;
                    }
                    if let Some(name) = name {
                        self.note(name, &workload, block, progress);
                    }
                }
                Recorded::Failed(point, error) => {
                    warn_of_failure(point, &error, progress);
                    failed.insert(point, error);
                }
            }
            Ok(())
        })
    }

    /// Returns how many transactions a counted block counts, by workload.
    fn transactions(&self, block: &Block) -> BTreeMap<String, u64> {
        if block.reading == Reading::Timed {
            return BTreeMap::new();
        }
        let readings = self.recorder.readings();
        let workloads = block.workloads.iter();
        workloads
            .filter_map(|name| {
                let workload = readings.workload(name)?;
                Some((name.clone(), self.collected.transactions(workload)))
            })
            .collect()
    }

    fn note(&self, name: &str, workload: &str, block: &Block, progress: &dyn Progress) {
        let readings = self.recorder.readings();
        if let Some(&meter) = readings.meters(block.reading).first() {
            let effects = self
                .collected
                .note(workload, meter, block.direct, self.margin);
            progress.note(&format!("{name} · {workload} · {meter}: {effects}"));
        }
    }
}

fn warn_of_failure(point: Point, error: &Error, progress: &dyn Progress) {
    let lines: Vec<&str> = std::iter::once(error.message())
        .chain(error.detail_lines().iter().map(String::as_str))
        .collect();
    progress.warn(&format!(
        "point {point} is left out from here on: {}",
        lines.join("\n  ")
    ));
}
