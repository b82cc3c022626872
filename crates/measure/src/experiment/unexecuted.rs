//! Finds the patches whose code a workload does not execute: it runs on a server in which this code is a trap.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use super::cluster;
use super::machine::{ExecutionQuestion, Setup};
use super::servers::Servers;
use super::spec::Spec;
use perfquilt_bench::workload;
use perfquilt_build::{ChangedCode, CodeComparison};
use perfquilt_config::Workload;
use perfquilt_model::comparable::{Comparable, Part};
use perfquilt_model::error::Result;
use perfquilt_model::observation::UnexecutedPatch;
use perfquilt_model::point::Point;
use perfquilt_model::progress;
use perfquilt_store::{EarlierExperiment, Store};

/// Version of the check, part of the key of its results.
const CHECK: &str = "traps 1";

/// Inputs of the check.
pub(super) struct ExecutionCheck<'a> {
    pub(super) spec: &'a Spec<'a>,
    pub(super) observed: &'a Comparable,
    /// All servers.
    pub(super) servers: &'a Servers,
}

/// A patch of which it is unknown whether workloads execute it.
struct OpenPatch<'a> {
    point: Point,
    against: Point,
    code: ChangedCode,
    /// The workloads, each with the key of its answer.
    workloads: Vec<(&'a Workload, String)>,
}

impl OpenPatch<'_> {
    /// Returns the record that `workload` does not execute the patch.
    fn unexecuted(&self, workload: &Workload) -> UnexecutedPatch {
        UnexecutedPatch {
            point: self.point,
            against: self.against,
            workload: workload.name.clone(),
            functions: self.code.functions.len() as u64,
        }
    }
}

impl ExecutionCheck<'_> {
    /// Returns the patches that workloads do not execute: the stored answers, and those of servers that are started
    /// for it. A failure, except of the store, leaves the patch among those that are executed.
    pub(super) fn unexecuted(&self, store: &Store) -> Result<Vec<UnexecutedPatch>> {
        let Some(binary) = &self.spec.ws.config.recipe(&self.spec.preset.recipe)?.binary else {
            return Ok(Vec::new());
        };
        let steps: Vec<Point> = self
            .servers
            .iter()
            .filter(|(point, server)| matches!(point, Point::Step(_)) && server.data.is_none())
            .map(|(&point, _)| point)
            .collect();
        // Settings were checked when the workspace was opened.
        let runs_programs = self.spec.readings.workloads.iter().any(|workload| {
            workload::client(workload).map_or(true, |client| client.runs_server_programs())
        });
        let comparison = CodeComparison::default();
        let mut found = Vec::new();
        let mut open = Vec::new();
        for pair in steps.windows(2) {
            let (against, point) = (pair[0], pair[1]);
            let (before, after) = (&self.servers[&against], &self.servers[&point]);
            let Ok(code) = comparison.changed(&before.dir, &after.dir, binary, runs_programs)
            else {
                continue;
            };
            let mut patch = OpenPatch {
                point,
                against,
                code,
                workloads: Vec::new(),
            };
            for workload in &self.spec.readings.workloads {
                let key = self.key(against, point, workload);
                let known = store.execution(&key)?;
                match known.filter(|_| self.spec.ws.answers().counts(&key)) {
                    _ if patch.code.is_empty() => found.push(patch.unexecuted(workload)),
                    Some(true) => {}
                    Some(false) => found.push(patch.unexecuted(workload)),
                    None => patch.workloads.push((workload, key)),
                }
            }
            if !patch.workloads.is_empty() {
                open.push(patch);
            }
        }
        if !open.is_empty() {
            self.answer(&open, store, &mut found)?;
        }
        Ok(found)
    }

    /// Finds out which workloads execute the `open` patches, stores the answers, and adds the patches that they do not
    /// execute to `found`. A patch counts as executed in this experiment where that could not be found out.
    fn answer(
        &self,
        open: &[OpenPatch<'_>],
        store: &Store,
        found: &mut Vec<UnexecutedPatch>,
    ) -> Result<()> {
        let mut questions = Vec::new();
        for patch in open {
            let each = patch.workloads.iter();
            questions.extend(each.map(|(workload, _)| ExecutionQuestion {
                point: patch.against,
                code: patch.code.clone(),
                workload: workload.name.clone(),
                seconds: self.spec.preset.block_seconds,
            }));
        }
        let step = progress::begin("check which code runs", None);
        let spec = self.spec;
        let mut servers = self.servers.clone();
        // They run as they were linked.
        servers.values_mut().for_each(|server| server.relink = None);
        let setup = Setup {
            count_meters: Vec::new(),
            reads_storage: false,
            ..spec.setup(servers, 1, spec.header.clone(), &[])?
        };
        let answers = match &spec.site.scheduler {
            None => spec.this_machine(setup)?.executes(&questions)?,
            Some(scheduler) => {
                let task = spec.task("", setup)?;
                cluster::executes(spec.ws, scheduler.as_ref(), &task, &questions)?
            }
        };
        let mut answers = answers.into_iter();
        let mut unexecuted = 0;
        for patch in open {
            for (workload, key) in &patch.workloads {
                let executed = answers.next().flatten();
                if let Some(executed) = executed {
                    store.record_execution(key, executed)?;
                    spec.ws.answers().add(key);
                }
                if executed == Some(false) {
                    unexecuted += 1;
                    found.push(patch.unexecuted(workload));
                }
            }
        }
        let (patches, pairs) = (open.len(), questions.len());
        step.finish(&format!(
            "{patches} patches checked: in {unexecuted} of {pairs} cases the workload does not execute the patch"
        ));
        Ok(())
    }

    /// Returns the key of the answer for one workload.
    fn key(&self, against: Point, point: Point, workload: &Workload) -> String {
        let of_answer = self.observed.only(|part| match part {
            Part::Harness | Part::Release => true,
            Part::Program(program) => [against, point].contains(program),
            Part::Workload(name) | Part::Seconds(name) => *name == workload.name,
            Part::Machine(_) | Part::Recipe => false,
        });
        hex::encode(Sha256::digest(format!("{CHECK}\n{of_answer}")))
    }
}

/// Counts the points that an experiment left out on a workload as measured there.
pub(super) fn count_as_measured(earlier: &mut EarlierExperiment) {
    let timed = earlier.planned.iter().filter(|plan| plan.meter.is_timed());
    let mut all: BTreeMap<Point, Vec<_>> = BTreeMap::new();
    for plan in timed {
        for patch in &earlier.unexecuted {
            if patch.workload == plan.workload {
                let cell = ((plan.workload.clone(), plan.meter), plan.blocks);
                for point in [patch.point, patch.against, Point::BASE, Point::Control] {
                    all.entry(point).or_default().push(cell.clone());
                }
            }
        }
    }
    for (point, cells) in all {
        let known =
            point == Point::Control || earlier.observed.get(&Part::Program(point)).is_some();
        if known {
            let measured = earlier.measured.entry(point).or_default();
            for (cell, blocks) in cells {
                measured.entry(cell).or_insert(blocks);
            }
        }
    }
}

/// Returns the identity in the key of an experiment that times unexecuted patches, too.
pub(super) fn timed_anyway(identity: String) -> String {
    format!("{identity} unexecuted")
}
