//! Reading of stored results.

use std::collections::BTreeMap;

use rusqlite::params;

use super::columns::{ReadColumns, Record, Word};
use super::json::Json;
use super::{ExperimentId, ExperimentSummary, Store};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::{
    Conditions, ExcludedReadings, ExperimentHeader, HostSample, Meter, Observation, PlannedBlocks,
    PointBuild, PointFunctions, Supplement, UnexecutedPatch,
};
use perfquilt_model::observation::{RowName, Slices};
use perfquilt_model::point::Point;
use perfquilt_model::server_tests::TestRecord;

impl Store {
    /// Returns the stored blocks of a workload and meter, ascending: those over all points, or the `direct`
    /// ones of the end-to-end check.
    pub fn blocks_done(
        &self,
        id: ExperimentId,
        workload: &str,
        meter: Meter,
        direct: bool,
    ) -> Result<Vec<u32>> {
        self.database.rows(
            "SELECT DISTINCT block FROM observations
             WHERE experiment = ?1 AND workload = ?2 AND meter = ?3 AND direct = ?4 ORDER BY block",
            params![id.0, workload, meter.name(), direct],
        )
    }

    /// Returns whether anything was measured for the experiment.
    pub fn has_observations(&self, id: ExperimentId) -> Result<bool> {
        let sql = "SELECT EXISTS (SELECT 1 FROM observations WHERE experiment = ?1)";
        Ok(self.database.count(sql, [id.0])? > 0)
    }

    /// Returns the experiment's header.
    pub fn header(&self, id: ExperimentId) -> Result<ExperimentHeader> {
        let sql = "SELECT header FROM experiments WHERE id = ?1";
        let found = self.database.first(sql, [id.0])?;
        let Json(header) =
            found.ok_or_else(|| Error::store_damaged("there is no such experiment"))?;
        Ok(header)
    }

    /// Returns the experiment's header and observations, ordered by workload, meter, block and position; its
    /// own observations first, then those of the experiments it reuses, translated to its points.
    pub fn load(&self, id: ExperimentId) -> Result<(ExperimentHeader, Vec<Observation>)> {
        let header = self.header(id)?;
        let mut observations = self.observations(id, &header.experiment)?;
        if header.reused.is_empty() {
            return Ok((header, observations));
        }
        let planned = self.planned(id)?;
        for origin in &header.reused {
            let here: BTreeMap<Point, Point> = origin
                .points
                .iter()
                .map(|(&here, &there)| (there, here))
                .collect();
            let other = self.find(&origin.experiment)?;
            for mut observation in self.observations(other, &origin.experiment)? {
                let workload = &observation.workload;
                // An operation belongs to its workload.
                let whole = RowName::from(workload.as_str()).workload;
                let wanted = planned.iter().any(|p| {
                    p.meter == observation.meter && (p.workload == *workload || p.workload == whole)
                });
                if let Some(&point) = here.get(&observation.point).filter(|_| wanted) {
                    observation.point = point;
                    observations.push(observation);
                }
            }
        }
        Ok((header, observations))
    }

    fn observations(&self, id: ExperimentId, name: &str) -> Result<Vec<Observation>> {
        // There may be a million observations, so allocate once.
        let sql = "SELECT count(*) FROM observations WHERE experiment = ?1";
        let count = self.database.count(sql, [id.0])?;
        let mut observations = Vec::with_capacity(usize::try_from(count).unwrap_or(0));
        self.database.map(
            &format!(
                "SELECT {} FROM observations
                 WHERE experiment = ?1 ORDER BY workload, meter, direct, block, point",
                Observation::names()
            ),
            params![id.0],
            |row| {
                observations.push(observation(row, name)?);
                Ok(())
            },
        )?;
        self.check_values(id, &observations)?;
        // The table's primary key gives this order except for the positions; sorting by position here is
        // faster than in SQL.
        let of_one_block = |a: &Observation, b: &Observation| {
            (a.block, a.direct, a.meter) == (b.block, b.direct, b.meter) && a.workload == b.workload
        };
        for block in observations.chunk_by_mut(of_one_block) {
            block.sort_by_key(|observation| observation.order);
        }
        Ok(observations)
    }

    /// Returns the stored supplement: planned blocks, build times, conditions and discarded rounds.
    pub fn supplement(&self, id: ExperimentId) -> Result<Supplement> {
        let planned = self.planned(id)?;
        Ok(Supplement {
            builds: self.builds(id)?,
            left_out: self.discarded(id, &planned)?,
            conditions: self.conditions(id)?,
            unexecuted: self.unexecuted(id)?,
            planned,
            ..Supplement::default()
        })
    }

    /// Returns the patches that workloads of an experiment do not execute.
    pub fn unexecuted(&self, id: ExperimentId) -> Result<Vec<UnexecutedPatch>> {
        let sql = "SELECT unexecuted FROM experiments WHERE id = ?1 AND unexecuted <> ''";
        let found = self.database.first(sql, [id.0])?;
        Ok(found.map_or_else(Vec::new, |Json(patches)| patches))
    }

    /// Returns the number of discarded rounds by workload, assigned to the first meter that is read from
    /// slices.
    fn discarded(
        &self,
        id: ExperimentId,
        planned: &[PlannedBlocks],
    ) -> Result<Vec<ExcludedReadings>> {
        let rounds: Vec<(String, u64)> = self.database.rows(
            "SELECT workload, sum(rounds) FROM spoiled WHERE experiment = ?1 GROUP BY 1 ORDER BY 1",
            [id.0],
        )?;
        let meter = |workload: &str| {
            let plans = planned.iter().filter(|plan| plan.workload == workload);
            plans.map(|plan| plan.meter).min().unwrap_or(Meter::Time)
        };
        Ok(rounds
            .into_iter()
            .map(|(workload, count)| ExcludedReadings {
                meter: meter(&workload),
                workload,
                count,
                reason: "rounds in which a transaction of some server was restarted".to_owned(),
            })
            .collect())
    }

    /// Returns the conditions on the machine, by workload.
    fn conditions(&self, id: ExperimentId) -> Result<Vec<Conditions>> {
        let sql = format!(
            "SELECT workload, {} FROM moments WHERE experiment = ?1 ORDER BY workload, direct, block",
            HostSample::names()
        );
        let samples: Vec<(String, HostSample)> = self.database.rows(&sql, [id.0])?;
        let mut by_workload: BTreeMap<String, Vec<HostSample>> = BTreeMap::new();
        for (workload, sample) in samples {
            by_workload.entry(workload).or_default().push(sample);
        }
        Ok(by_workload
            .iter()
            .filter_map(|(workload, samples)| Conditions::over(workload, samples))
            .collect())
    }

    /// Returns the planned blocks; empty without a plan.
    pub fn planned(&self, id: ExperimentId) -> Result<Vec<PlannedBlocks>> {
        let query = "FROM plans WHERE experiment = ?1";
        self.database.records(query, [id.0])
    }

    /// Returns the build times of points with their cache keys.
    pub fn builds(&self, id: ExperimentId) -> Result<Vec<PointBuild>> {
        let from = "FROM experiment_builds JOIN builds USING (key) WHERE experiment = ?1";
        let mut builds: Vec<PointBuild> = self.database.records(from, [id.0])?;
        builds.sort_by_key(|build| build.point);
        Ok(builds)
    }

    /// Returns the results of the server's own tests at the points of an experiment whose servers were tested, whenever
    /// that was.
    pub fn tests(&self, id: ExperimentId) -> Result<BTreeMap<Point, TestRecord>> {
        let found = self.database.map(
            "SELECT point, record FROM experiment_builds JOIN tests USING (key) WHERE experiment = ?1",
            params![id.0],
            // An unreadable record is treated as absent, because the tests can run again.
            |row| Ok((row.get::<_, Word<_>>(0)?.0, row.get(1).ok())),
        )?;
        let found = found.into_iter();
        let records =
            found.filter_map(|(point, record)| record.map(|Json(record)| (point, record)));
        Ok(records.collect())
    }

    /// Returns the costs of functions in the counted blocks.
    pub fn functions(&self, id: ExperimentId) -> Result<Vec<PointFunctions>> {
        let from = "FROM functions WHERE experiment = ?1 ORDER BY workload, block, point";
        self.database.records(from, [id.0])
    }

    /// Returns the blocks (over all points) whose slices are stored, by workload.
    pub fn slice_blocks(&self, id: ExperimentId) -> Result<Vec<(String, u32)>> {
        self.check_slice_blocks(id)?;
        self.database.rows(
            "SELECT DISTINCT workload, block FROM slices
             WHERE experiment = ?1 AND direct = 0 ORDER BY 1, 2",
            [id.0],
        )
    }

    /// Returns the raw slices of a block (over all points) of a workload.
    pub fn slices(&self, id: ExperimentId, workload: &str, block: u32) -> Result<Vec<Slices>> {
        self.check_slices(id, &(workload.to_owned(), false, block))?;
        self.database.records(
            "FROM slices WHERE experiment = ?1 AND workload = ?2 AND block = ?3 AND direct = 0
             ORDER BY point",
            params![id.0, workload, block],
        )
    }

    /// Returns the most recently begun, resumed or extended experiment.
    pub fn latest(&self) -> Result<Option<ExperimentId>> {
        let sql = "SELECT id FROM experiments ORDER BY touched DESC LIMIT 1";
        self.database.first(sql, [])
    }

    /// Finds the experiment called `name`.
    pub fn find(&self, name: &str) -> Result<ExperimentId> {
        let listed = self.list()?;
        if let Some(found) = listed.iter().find(|l| l.header.experiment == name) {
            return Ok(found.id);
        }
        let names = listed.into_iter().map(|l| l.header.experiment);
        Err(Error::unknown("experiment", name, names))
    }

    /// Returns all experiments, the latest first.
    pub fn list(&self) -> Result<Vec<ExperimentSummary>> {
        let listed = self.database.rows(
            "SELECT id, header, (SELECT count(*) FROM observations WHERE experiment = id)
             FROM experiments ORDER BY touched DESC",
            [],
        )?;
        let summary = |(id, Json(header), observations)| ExperimentSummary {
            id,
            header,
            observations,
        };
        Ok(listed.into_iter().map(summary).collect())
    }
}

/// Reads an observation of the experiment `name` from its columns.
pub(super) fn observation(row: &rusqlite::Row<'_>, name: &str) -> rusqlite::Result<Observation> {
    let mut observation = Observation::read(row, &mut 0)?;
    name.clone_into(&mut observation.experiment);
    observation.meter.unit().clone_into(&mut observation.unit);
    Ok(observation)
}
