//! Finished experiments, so that a later one can reuse their values.

use std::collections::BTreeMap;

use rusqlite::params;

use super::{ExperimentId, Store};
use perfquilt_model::error::Result;
use perfquilt_model::observation::{ExperimentHeader, Meter, PlannedBlocks, UnexecutedPatch};
use perfquilt_model::point::Point;

/// The conditions under which observations of different experiments are comparable, besides the machine and
/// the harness in the header.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExperimentIdentity {
    /// The protocol: release, recipe, settings. Observations of different protocols are never combined.
    pub protocol: String,
    /// The identity of each point's built server.
    pub points: BTreeMap<Point, String>,
    /// The identity of each workload: a digest of its settings and script.
    pub workloads: BTreeMap<String, String>,
}

/// A finished experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct EarlierExperiment {
    /// Its header.
    pub header: ExperimentHeader,
    /// The identity of its binaries and workloads.
    pub identity: ExperimentIdentity,
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
        let text: Option<String> = self.database.first(sql, [key], |row| row.get(0))?;
        text.map(|text| self.parse_header(&text)).transpose()
    }

    /// Returns the keys that begin with `start`, the most recently begun or resumed experiment first.
    pub fn keys(&self, start: &str) -> Result<Vec<String>> {
        self.database.rows(
            "SELECT key FROM experiments WHERE substr(key, 1, length(?1)) = ?1 ORDER BY touched DESC",
            [start],
            |row| row.get(0),
        )
    }

    /// Returns whether the experiment with `key` exists and is finished.
    pub fn is_finished(&self, key: &str) -> Result<bool> {
        let sql = "SELECT count(*) FROM experiments WHERE key = ?1 AND finished = 1";
        Ok(self.database.count(sql, [key])? > 0)
    }

    /// Stores the identity of an experiment's observations.
    pub fn record_identity(&self, id: ExperimentId, identity: &ExperimentIdentity) -> Result<()> {
        self.database.transaction(|| {
            let sql = "UPDATE experiments SET protocol = ?2 WHERE id = ?1";
            self.database
                .execute(sql, params![id.0, identity.protocol])?;
            let sql = "INSERT OR REPLACE INTO point_identities VALUES (?1, ?2, ?3)";
            for (point, identity) in &identity.points {
                self.database
                    .execute(sql, params![id.0, point.to_string(), identity])?;
            }
            let sql = "INSERT OR REPLACE INTO workload_identities VALUES (?1, ?2, ?3)";
            for (workload, identity) in &identity.workloads {
                self.database
                    .execute(sql, params![id.0, workload, identity])?;
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

    /// Returns the identity of each built server of an experiment; empty where an earlier version stored none.
    pub fn point_identities(&self, id: ExperimentId) -> Result<BTreeMap<Point, String>> {
        let sql = "SELECT point, identity FROM point_identities WHERE experiment = ?1";
        let rows: Vec<(String, String)> = self
            .database
            .rows(sql, [id.0], |row| Ok((row.get(0)?, row.get(1)?)))?;
        rows.into_iter()
            .map(|(point, identity)| Ok((self.known(point.parse())?, identity)))
            .collect()
    }

    /// Returns the finished experiments on `release`, the latest first.
    pub fn earlier(&self, release: &str) -> Result<Vec<EarlierExperiment>> {
        let all = self.database.rows(
            "SELECT id, header, protocol FROM experiments
             WHERE finished = 1 AND protocol <> '' ORDER BY touched DESC",
            [],
            |row| {
                Ok((
                    row.get(0).map(ExperimentId)?,
                    row.get::<_, String>(1)?,
                    row.get::<_, String>(2)?,
                ))
            },
        )?;
        let mut earlier = Vec::new();
        for (id, header, protocol) in all {
            let header = self.parse_header(&header)?;
            if header.release != release {
                continue;
            }
            let pairs = |sql| {
                self.database.rows(sql, params![id.0], |row| {
                    Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
                })
            };
            let workloads =
                pairs("SELECT workload, identity FROM workload_identities WHERE experiment = ?1")?;
            let blocks: Vec<(String, String, String, u32)> = self.database.rows(
                "SELECT point, workload, meter, count(*) FROM observations
                 WHERE experiment = ?1 AND direct = 0 GROUP BY point, workload, meter",
                params![id.0],
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)),
            )?;
            let mut measured: BTreeMap<Point, BTreeMap<(String, Meter), u32>> = BTreeMap::new();
            for (point, workload, meter, count) in blocks {
                let meter: Meter = self.known(meter.parse())?;
                let point: Point = self.known(point.parse())?;
                let of = measured.entry(point).or_default();
                of.insert((workload, meter), count);
            }
            earlier.push(EarlierExperiment {
                header,
                identity: ExperimentIdentity {
                    protocol,
                    points: self.point_identities(id)?,
                    workloads: workloads.into_iter().collect(),
                },
                planned: self.planned(id)?,
                measured,
                unexecuted: self.unexecuted(id)?,
            });
        }
        Ok(earlier)
    }
}
