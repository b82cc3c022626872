//! An experiment in the store, open for more blocks.

use std::collections::BTreeMap;

use super::attempt::Attempt;
use super::failed::Failed;
use super::lock::ExperimentLock;
use super::readings::Readings;
use super::spec::Spec;
use perfquilt_model::comparable::Comparable;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::{ExperimentHeader, UnexecutedPatch};
use perfquilt_model::point::Point;
use perfquilt_store::{ExperimentId, Store};

/// The result of an experiment.
#[derive(Debug)]
pub struct MeasuredExperiment {
    /// The stored experiment with the observations.
    pub id: ExperimentId,
    /// Points and workloads whose measurement failed, with the whole error. The stored header keeps the reason in one line;
    /// where everything was measured before, only that line is left.
    pub failed: Failed,
}

/// An experiment that no other process measures as long as this value exists.
pub(super) struct OpenExperiment<'a> {
    pub(super) store: &'a Store,
    pub(super) id: ExperimentId,
    /// The key under which it is stored.
    pub(super) key: String,
    /// As stored.
    pub(super) header: ExperimentHeader,
    /// The points whose measurement failed before.
    pub(super) failed_before: BTreeMap<Point, Error>,
    _lock: ExperimentLock,
}

impl<'a> OpenExperiment<'a> {
    /// Begins the `attempt` to measure the points `measured`, or continues it: then the points that failed stay failed, unless
    /// the question is a fresh one.
    pub(super) fn begin(
        spec: &Spec<'_>,
        attempt: Attempt,
        measured: &[Point],
        observed: &Comparable,
        unexecuted: &[UnexecutedPatch],
        store: &'a Store,
    ) -> Result<Self> {
        let key = attempt.key;
        let lock = ExperimentLock::of(&spec.ws.state(), &key)?;
        let (mut failed, mut start_timeouts, failed_workloads) = store
            .header_of_key(&key)?
            .filter(|_| !spec.ws.answers().is_fresh())
            .map(|begun| (begun.failed, begun.start_timeouts, begun.failed_workloads))
            .unwrap_or_default();
        failed.retain(|point, _| measured.contains(point));
        start_timeouts.retain(|point, _| failed.contains_key(point));
        let mut header = spec.header.clone();
        header.reused = attempt.reused;
        header.failed.extend(failed.clone());
        header.start_timeouts = start_timeouts;
        header.failed_workloads = failed_workloads;
        let id = store.begin(&header, &key)?;
        store.record_observed(id, observed)?;
        store.record_unexecuted(id, unexecuted)?;
        let failed_before = failed.into_iter().map(|(point, reason)| {
            let hint = "failed in an earlier run; retry with `--fresh`";
            (point, Error::no_block(reason).hint(hint))
        });
        Ok(OpenExperiment {
            store,
            id,
            key,
            header,
            failed_before: failed_before.collect(),
            _lock: lock,
        })
    }

    /// Returns whether points or workloads failed in an earlier run.
    pub(super) fn has_failures(&self) -> bool {
        !self.failed_before.is_empty() || !self.header.failed_workloads.is_empty()
    }

    /// Forgets the failures of an earlier run, so that their points and workloads are retried.
    pub(super) fn forget_failures(&mut self) -> Result<()> {
        let before = std::mem::take(&mut self.failed_before);
        self.header
            .failed
            .retain(|point, _| !before.contains_key(point));
        self.header.start_timeouts.clear();
        self.header.failed_workloads.clear();
        self.rewrite()
    }

    /// Records the points and workloads whose measurement failed.
    pub(super) fn record_failures(&mut self, failed: &Failed, readings: &Readings) -> Result<()> {
        if failed.count() == 0 {
            return Ok(());
        }
        self.header.failed_workloads = failed.recorded_workloads(readings);
        for (point, error) in &failed.points {
            self.header.failed.insert(*point, error.to_string());
            if let Some(timeout) = error.exceeded_start_timeout() {
                let seconds = timeout.as_secs_f64();
                self.header.start_timeouts.insert(*point, seconds);
            }
        }
        self.rewrite()
    }

    /// Records how it is measured, if that has changed since it was begun.
    pub(super) fn record_harness(&mut self, harness: &str) -> Result<()> {
        harness.clone_into(&mut self.header.harness);
        self.rewrite()
    }

    /// Records facts of the machine.
    pub(super) fn record_facts(&mut self, facts: BTreeMap<String, String>) -> Result<()> {
        self.header.machine.extend(facts);
        self.rewrite()
    }

    /// Closes the experiment. Measuring the points and workloads `failed` did not succeed.
    pub(super) fn into_outcome(self, failed: Failed) -> MeasuredExperiment {
        MeasuredExperiment {
            id: self.id,
            failed,
        }
    }

    fn rewrite(&self) -> Result<()> {
        self.store.begin(&self.header, &self.key).map(|_| ())
    }
}
