//! Reading of stored results.

use std::collections::BTreeMap;

use rusqlite::params;

use super::columns::{ReadColumns, Record};
use super::facts::{self, PROGRAMS};
use super::json::Json;
use super::{BlockConditions, ExperimentId, ExperimentSummary, Store};
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
        let mut blocks: BTreeMap<String, Vec<BlockConditions>> = BTreeMap::new();
        let stored: Vec<BlockConditions> = self.database.facts(id, facts::CONDITIONS)?;
        for block in stored {
            let blocks = blocks.entry(block.workload.clone()).or_default();
            blocks.push(block);
        }
        let conditions = blocks.iter().filter_map(|(workload, blocks)| {
            let samples: Vec<HostSample> = blocks.iter().filter_map(|block| block.sample).collect();
            Conditions::over(workload, &samples)
        });
        let left_out = blocks.iter().map(|(workload, blocks)| {
            let plans = planned.iter().filter(|plan| plan.workload == *workload);
            ExcludedReadings {
                // The first meter that is read from slices.
                meter: plans.map(|plan| plan.meter).min().unwrap_or(Meter::Time),
                workload: workload.clone(),
                count: blocks.iter().map(|block| block.discarded_rounds).sum(),
                reason: "rounds in which a transaction of some server was restarted".to_owned(),
            }
        });
        Ok(Supplement {
            builds: self.builds(id)?,
            left_out: left_out.filter(|left_out| left_out.count > 0).collect(),
            conditions: conditions.collect(),
            unexecuted: self.unexecuted(id)?,
            planned,
            ..Supplement::default()
        })
    }

    /// Returns the patches that workloads of an experiment do not execute.
    pub fn unexecuted(&self, id: ExperimentId) -> Result<Vec<UnexecutedPatch>> {
        let found = self.database.only_fact(id, facts::UNEXECUTED)?;
        Ok(found.unwrap_or_default())
    }

    /// Returns the planned blocks; empty without a plan.
    pub fn planned(&self, id: ExperimentId) -> Result<Vec<PlannedBlocks>> {
        let found = self.database.only_fact(id, facts::PLANNED)?;
        Ok(found.unwrap_or_default())
    }

    /// Returns the build times of points with their cache keys.
    pub fn builds(&self, id: ExperimentId) -> Result<Vec<PointBuild>> {
        let builds = self.built(id)?.into_iter().map(|(point, key, cached)| {
            let build = self.database.fact(PROGRAMS, facts::BUILD, &key)?;
            let lost = || {
                self.database
                    .damaged(&format!("the build of point {point} is not there"))
            };
            let build: PointBuild = build.ok_or_else(lost)?;
            Ok(PointBuild {
                point,
                cached,
                ..build
            })
        });
        builds.collect()
    }

    /// Returns the points of an experiment with the keys of their servers in the cache of builds, and whether it found them there.
    fn built(&self, id: ExperimentId) -> Result<Vec<(Point, String, bool)>> {
        let mut built: Vec<(Point, String, bool)> = self.database.facts(id, facts::BUILD)?;
        built.sort();
        Ok(built)
    }

    /// Returns the results of the server's own tests at the points of an experiment whose servers were tested, whenever
    /// that was.
    pub fn tests(&self, id: ExperimentId) -> Result<BTreeMap<Point, TestRecord>> {
        let records = self.built(id)?.into_iter().map(|(point, key, _)| {
            let record = self.database.fact(PROGRAMS, facts::TESTS, &key)?;
            Ok(record.map(|record| (point, record)))
        });
        records.filter_map(Result::transpose).collect()
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
