//! Finished experiments, so that a later one can reuse their values.

use std::collections::BTreeMap;

use super::json::Json;
use super::{ExperimentId, Store, facts};
use perfquilt_model::comparable::Comparable;
use perfquilt_model::error::Result;
use perfquilt_model::observation::{ExperimentHeader, Meter, PlannedBlocks, UnexecutedPatch};
use perfquilt_model::point::Point;

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

    /// Stores the programs and workloads that an experiment's values are observed of, beside those stored before; the rest is
    /// in its header.
    pub fn record_observed(&self, id: ExperimentId, observed: &Comparable) -> Result<()> {
        self.database.transaction(|| {
            let known = self.database.only_fact(id, facts::OBSERVED)?;
            let known: Comparable = known.unwrap_or_default();
            let all = known.and(observed.only(|part| !part.is_in_header()));
            self.database.put_fact(id, facts::OBSERVED, "", &all)
        })
    }

    /// Marks an experiment as finished and its plans as ended, so that later ones may reuse its values, and other versions
    /// leave it ended.
    pub fn finish(&self, id: ExperimentId) -> Result<()> {
        self.database.transaction(|| {
            let finished = "UPDATE experiments SET finished = 1 WHERE id = ?1";
            self.database.execute(finished, [id.0])?;
            let mut planned = self.planned(id)?;
            planned.iter_mut().for_each(|plan| plan.ended = true);
            self.plan(id, &planned)
        })
    }

    /// Returns what the values of the experiment with this `header` were observed of; without programs and workloads where
    /// none are stored.
    pub fn observed(&self, id: ExperimentId, header: &ExperimentHeader) -> Result<Comparable> {
        let stored: Option<Comparable> = self.database.only_fact(id, facts::OBSERVED)?;
        Ok(Comparable::of(header).and(stored.unwrap_or_default()))
    }

    /// Returns the finished experiments on `release`, the latest first.
    pub fn earlier(&self, release: &str) -> Result<Vec<EarlierExperiment>> {
        let all: Vec<(ExperimentId, Json<ExperimentHeader>)> = self.database.rows(
            "SELECT id, header FROM experiments WHERE finished = 1 ORDER BY touched DESC",
            [],
        )?;
        let mut earlier = Vec::new();
        for (id, Json(header)) in all {
            if header.release != release {
                continue;
            }
            let observed = self.observed(id, &header)?;
            if observed.programs().next().is_none() {
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
                observed,
                header,
                planned: self.planned(id)?,
                measured,
                unexecuted: self.unexecuted(id)?,
            });
        }
        Ok(earlier)
    }
}
