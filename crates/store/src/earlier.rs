//! Finished experiments, so that a later one can reuse their values.

use std::collections::BTreeMap;

use rusqlite::params;

use super::json::Json;
use super::{ExperimentId, Store};
use perfquilt_model::comparable::{Comparable, Part};
use perfquilt_model::error::Result;
use perfquilt_model::observation::{ExperimentHeader, Meter, PlannedBlocks, UnexecutedPatch};
use perfquilt_model::point::Point;

/// Separates the digest of a workload from the seconds of its blocks.
const SECONDS: &str = " seconds ";

/// A finished experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct EarlierExperiment {
    /// Its header.
    pub header: ExperimentHeader,
    /// What its values were observed of.
    pub observed: Comparable,
    /// Its planned blocks, all of which it has.
    pub planned: Vec<PlannedBlocks>,
    /// The points with observations of its own, and their number of blocks by workload and meter, without the
    /// end-to-end check.
    pub measured: BTreeMap<Point, BTreeMap<(String, Meter), u32>>,
    /// The patches that its workloads do not execute, whose points it did not time.
    pub unexecuted: Vec<UnexecutedPatch>,
}

impl Store {
    /// Returns the header of the experiment that was begun with `key`.
    pub fn header_of_key(&self, key: &str) -> Result<Option<ExperimentHeader>> {
        let sql = "SELECT header FROM experiments WHERE key = ?1";
        let found = self.database.first(sql, [key])?;
        Ok(found.map(|Json(header)| header))
    }

    /// Returns the keys that begin with `start`, the most recently begun or resumed experiment first.
    pub fn keys(&self, start: &str) -> Result<Vec<String>> {
        self.database.rows(
            "SELECT key FROM experiments WHERE substr(key, 1, length(?1)) = ?1 ORDER BY touched DESC",
            [start],
        )
    }

    /// Returns whether the experiment with `key` exists and is finished.
    pub fn is_finished(&self, key: &str) -> Result<bool> {
        let sql = "SELECT count(*) FROM experiments WHERE key = ?1 AND finished = 1";
        Ok(self.database.count(sql, [key])? > 0)
    }

    /// Stores the programs and workloads that an experiment's values are observed of; the rest is in its header.
    pub fn record_observed(&self, id: ExperimentId, observed: &Comparable) -> Result<()> {
        let part = |part: &Part| observed.get(part).unwrap_or_default();
        self.database.transaction(|| {
            let sql = "UPDATE experiments SET protocol = ?2 WHERE id = ?1";
            let settings = format!("{} {}", part(&Part::Release), part(&Part::Recipe));
            self.database.execute(sql, params![id.0, settings])?;
            let sql = "INSERT OR REPLACE INTO point_identities VALUES (?1, ?2, ?3)";
            for (point, program) in observed.programs() {
                self.database
                    .execute(sql, params![id.0, point.to_string(), program])?;
            }
            let sql = "INSERT OR REPLACE INTO workload_identities VALUES (?1, ?2, ?3)";
            for (name, digest) in observed.workloads() {
                let seconds = part(&Part::Seconds(name.to_owned()));
                let both = format!("{digest}{SECONDS}{seconds}");
                self.database.execute(sql, params![id.0, name, both])?;
            }
            Ok(())
        })
    }

    /// Marks an experiment as finished and its plans as ended, so that later ones may reuse its values, and other versions
    /// leave it ended.
    pub fn finish(&self, id: ExperimentId) -> Result<()> {
        self.database.transaction(|| {
            let finished = "UPDATE experiments SET finished = 1 WHERE id = ?1";
            self.database.execute(finished, [id.0])?;
            let ended = "UPDATE plans SET ended = 1 WHERE experiment = ?1";
            self.database.execute(ended, [id.0]).map(drop)
        })
    }

    /// Returns what the values of the experiment with this `header` were observed of; without programs and workloads where an
    /// earlier version stored none.
    pub fn observed(&self, id: ExperimentId, header: &ExperimentHeader) -> Result<Comparable> {
        let mut observed = Comparable::of(header);
        let programs: Vec<(Point, String)> = self.database.rows(
            "SELECT point, identity FROM point_identities WHERE experiment = ?1",
            [id.0],
        )?;
        for (point, program) in programs {
            observed = observed.with(Part::Program(point), program);
        }
        let workloads: Vec<(String, String)> = self.database.rows(
            "SELECT workload, identity FROM workload_identities WHERE experiment = ?1",
            [id.0],
        )?;
        for (name, both) in workloads {
            let (digest, seconds) = both.split_once(SECONDS).unwrap_or((&both, ""));
            observed = observed
                .with(Part::Workload(name.clone()), digest)
                .with(Part::Seconds(name), seconds);
        }
        Ok(observed)
    }

    /// Returns the finished experiments on `release`, the latest first.
    pub fn earlier(&self, release: &str) -> Result<Vec<EarlierExperiment>> {
        let all: Vec<(ExperimentId, Json<ExperimentHeader>)> = self.database.rows(
            "SELECT id, header FROM experiments
             WHERE finished = 1 AND protocol <> '' ORDER BY touched DESC",
            [],
        )?;
        let mut earlier = Vec::new();
        for (id, Json(header)) in all {
            if header.release != release {
                continue;
            }
            let blocks: Vec<(Point, String, Meter, u32)> = self.database.rows(
                "SELECT point, workload, meter, count(*) FROM observations
                 WHERE experiment = ?1 AND direct = 0 GROUP BY point, workload, meter",
                [id.0],
            )?;
            let mut measured: BTreeMap<Point, BTreeMap<(String, Meter), u32>> = BTreeMap::new();
            for (point, workload, meter, count) in blocks {
                let blocks = measured.entry(point).or_default();
                blocks.insert((workload, meter), count);
            }
            earlier.push(EarlierExperiment {
                observed: self.observed(id, &header)?,
                header,
                planned: self.planned(id)?,
                measured,
                unexecuted: self.unexecuted(id)?,
            });
        }
        Ok(earlier)
    }
}
