//! Storage of raw observations in SQLite; all figures are pure functions of the stored observations.
//!
//! # Example
//!
//! ```
//! use perfquilt_model::observation::ExperimentHeader;
//! use perfquilt_store::{Store, jsonl};
//!
//! let line = r#"{"schema": 1, "experiment": "toy", "block": 0, "order": 0, "point": "0", "layout": 0,
//!     "workload": "requests", "meter": "time", "unit": "ns/txn", "value": 1000.0, "n": 5000}"#.replace('\n', "");
//! let head = serde_json::to_string(&ExperimentHeader::new("toy-1.0", "make")).unwrap().replace("toy-1.0-make", "toy");
//! let file = jsonl::read(format!("{head}\n{line}\n").as_bytes(), "toy.jsonl".as_ref())?;
//!
//! let folder = tempfile::tempdir().unwrap();
//! let store = Store::open(&folder.path().join("results.db"))?;
//! let experiment = store.begin(&file.header, "key")?;
//! store.append(experiment, &file.observations, &[])?;
//! let (_, observations) = store.load(experiment)?;
//! assert_eq!(observations[0].value, 1000.0);
//! # Ok::<(), perfquilt_model::Error>(())
//! ```

mod blob;
mod checksums;
mod columns;
mod database;
mod durations;
mod earlier;
mod facts;
mod file_error;
mod functions;
pub mod import;
mod json;
pub mod jsonl;
pub mod queue;
mod read;
mod schema;
pub mod sql_bench;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::path::Path;

use rusqlite::params;
use serde::{Deserialize, Serialize};

use database::Database;
use facts::PROGRAMS;
use json::{Json, json};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::{
    ExperimentHeader, HostSample, Observation, PlannedBlocks, PointBuild, PointFunctions,
    UnexecutedPatch,
};
use perfquilt_model::point::Point;
use perfquilt_model::server_tests::TestRecord;

pub use durations::BlockDuration;
pub use earlier::EarlierExperiment;
pub use file_error::{require_object, unreadable};

/// An experiment in a [`Store`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExperimentId(i64);

/// The slices of one point in one block of one workload, in round order: round `i` is simultaneous for all
/// points of the block.
#[derive(Debug, Clone, PartialEq)]
pub struct SliceBlob {
    /// The block.
    pub block: u32,
    /// The workload.
    pub workload: String,
    /// The point.
    pub point: Point,
    /// Whether the block belongs to the end-to-end check.
    pub direct: bool,
    /// Transactions in one slice.
    pub transactions_per_slice: u64,
    /// Cost of each slice, in the meter's unit.
    pub values: Vec<f32>,
}

/// The results of a block of one workload.
#[derive(Debug, Clone, Copy, Default)]
pub struct BlockResult<'a> {
    /// The values; their `experiment` fields are ignored.
    pub observations: &'a [Observation],
    /// The raw slices behind the values.
    pub slices: &'a [SliceBlob],
    /// Conditions during the timing of the block.
    pub conditions: Option<&'a BlockConditions>,
    /// Costs of functions in a counted block.
    pub functions: &'a [PointFunctions],
}

/// Conditions during the timing of a block.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BlockConditions {
    /// The workload.
    pub workload: String,
    /// Whether the block belongs to the end-to-end check.
    pub direct: bool,
    /// The block.
    pub block: u32,
    /// Counters of the kernel; `None` without a real machine.
    pub sample: Option<HostSample>,
    /// Rounds discarded for all servers because a transaction on one of them had to be restarted.
    pub discarded_rounds: u64,
}

/// An entry of [`Store::list`].
#[derive(Debug, Clone, PartialEq)]
pub struct ExperimentSummary {
    /// The experiment.
    pub id: ExperimentId,
    /// The experiment's header.
    pub header: ExperimentHeader,
    /// Number of stored observations.
    pub observations: u64,
}

/// The results database. Every change is one transaction, so a killed process leaves only complete blocks.
#[derive(Debug)]
pub struct Store {
    database: Database,
    current: Cell<Option<ExperimentId>>,
}

impl Store {
    /// Opens the database at `path`, creating file and folder if they are missing.
    ///
    /// # Errors
    /// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when the file belongs to another program or a newer
    /// version of this one, or the folder cannot be written to;
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when it is damaged or the disk is full.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_at(path, true)
    }

    /// Opens an existing database at `path` for reading results.
    pub fn open_existing(path: &Path) -> Result<Self> {
        if !path.exists() {
            return Err(Error::no_results("there are no results yet")
                .hint("`perfquilt run` builds, measures and reports"));
        }
        Self::open_at(path, false)
    }

    fn open_at(path: &Path, create: bool) -> Result<Self> {
        Ok(Store {
            database: Database::open(&schema::RESULTS, path, create)?,
            current: Cell::new(None),
        })
    }

    /// Writes everything to a new database at `path`.
    pub fn copy_to(&self, path: &Path) -> Result<()> {
        let target = path.to_string_lossy();
        self.database
            .connection
            .execute("VACUUM INTO ?1", [target.as_ref()])
            .map(drop)
            .map_err(self.database.failed("copy"))
    }

    /// Returns the experiment that was last begun or resumed through this value.
    pub fn current(&self) -> Option<ExperimentId> {
        self.current.get()
    }

    /// Begins an experiment, or resumes the one that has the same `key` (its name and start time stay, the
    /// rest of its header is replaced by `header`). If another experiment has the name already, a number is
    /// appended; [`Store::header`] returns the final name.
    pub fn begin(&self, header: &ExperimentHeader, key: &str) -> Result<ExperimentId> {
        let id = self.database.transaction(|| {
            let known: Option<(i64, Json<ExperimentHeader>)> = self.database.first(
                "SELECT id, header FROM experiments WHERE key = ?1",
                [key],
            )?;
            let mut header = header.clone();
            let id = match known {
                Some((id, Json(old))) => {
                    header.experiment = old.experiment;
                    header.started = old.started;
                    header.bundle = old.bundle;
                    header.check().map_err(Error::store_damaged)?;
                    self.set_header(ExperimentId(id), &header)?;
                    id
                }
                None => {
                    if header.started.is_empty() {
                        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ");
                        header.started = now.to_string();
                    }
                    header.experiment = self.free_name(&header.experiment)?;
                    header.check().map_err(Error::store_damaged)?;
                    self.database.execute(
                        "INSERT INTO experiments (key, name, header, touched) VALUES (?1, ?2, ?3, 0)",
                        params![key, header.experiment, json("the header", &header)?],
                    )?;
                    self.database.connection.last_insert_rowid()
                }
            };
            self.touch(ExperimentId(id))?;
            Ok(ExperimentId(id))
        })?;
        self.current.set(Some(id));
        Ok(id)
    }

    /// Stores the command that measures the bundle of an experiment elsewhere.
    pub fn record_bundle(&self, id: ExperimentId, command: &str) -> Result<()> {
        let header = ExperimentHeader {
            bundle: Some(command.to_owned()),
            ..self.header(id)?
        };
        self.set_header(id, &header)
    }

    fn set_header(&self, id: ExperimentId, header: &ExperimentHeader) -> Result<()> {
        let sql = "UPDATE experiments SET header = ?2 WHERE id = ?1";
        let values = params![id.0, json("the header", header)?];
        self.database.execute(sql, values).map(drop)
    }

    /// Stores the planned number of blocks and the stopping rule, so that a report can show the progress.
    pub fn plan(&self, id: ExperimentId, planned: &[PlannedBlocks]) -> Result<()> {
        self.database.put_fact(id, facts::PLANNED, "", planned)
    }

    /// Stores under `key` whether a workload executes the code that a patch changes.
    pub fn record_execution(&self, key: &str, executed: bool) -> Result<()> {
        let kind = facts::EXECUTION;
        self.database.put_fact(PROGRAMS, kind, key, &executed)
    }

    /// Returns whether the workload executes the code, as stored under `key`.
    pub fn execution(&self, key: &str) -> Result<Option<bool>> {
        self.database.fact(PROGRAMS, facts::EXECUTION, key)
    }

    /// Stores the patches that workloads of an experiment do not execute.
    pub fn record_unexecuted(&self, id: ExperimentId, patches: &[UnexecutedPatch]) -> Result<()> {
        self.database.put_fact(id, facts::UNEXECUTED, "", patches)
    }

    /// Stores the results of the server's own tests for servers with these keys in the cache of builds. They replace
    /// earlier results of the same server.
    pub fn record_tests<'a>(
        &self,
        records: impl IntoIterator<Item = (&'a str, &'a TestRecord)>,
    ) -> Result<()> {
        self.database.transaction(|| {
            let mut records = records.into_iter();
            records.try_for_each(|(key, record)| {
                self.database.put_fact(PROGRAMS, facts::TESTS, key, record)
            })
        })
    }

    /// Stores the build times of points. The seconds of a cached build do not replace those of the original
    /// build.
    pub fn record_builds(&self, id: ExperimentId, builds: &[PointBuild]) -> Result<()> {
        let database = &self.database;
        database.transaction(|| {
            for build in builds {
                let name = build.point.to_string();
                let used = (build.point, &build.key, build.cached);
                database.put_fact(id, facts::BUILD, &name, &used)?;
                let known: Option<PointBuild> =
                    database.fact(PROGRAMS, facts::BUILD, &build.key)?;
                if !build.cached || known.is_none() {
                    database.put_fact(PROGRAMS, facts::BUILD, &build.key, build)?;
                }
            }
            Ok(())
        })
    }

    /// Adds the values of a block and the slices behind them, without further results
    /// ([`Store::append_block`]).
    pub fn append(
        &self,
        id: ExperimentId,
        observations: &[Observation],
        slices: &[SliceBlob],
    ) -> Result<()> {
        let result = BlockResult {
            observations,
            slices,
            ..BlockResult::default()
        };
        self.append_block(id, &result)
    }

    /// Adds a block in one transaction.
    pub fn append_block(&self, id: ExperimentId, result: &BlockResult<'_>) -> Result<()> {
        let header = self.header(id)?;
        self.database.transaction(|| {
            self.insert_observations(id, &header, result.observations)?;
            self.insert_slices(id, result.slices)?;
            self.insert_checksums(id, result.observations, result.slices)?;
            self.insert_functions(id, result.functions)?;
            if let Some(conditions) = result.conditions {
                self.insert_conditions(id, conditions)?;
            }
            self.touch(id)
        })
    }

    fn insert_functions(&self, id: ExperimentId, functions: &[PointFunctions]) -> Result<()> {
        for counted in functions {
            let into = "INSERT OR REPLACE INTO functions";
            self.database
                .write(into, &[("experiment", &id.0)], counted)?;
        }
        Ok(())
    }

    fn insert_conditions(&self, id: ExperimentId, conditions: &BlockConditions) -> Result<()> {
        let BlockConditions {
            workload,
            direct,
            block,
            ..
        } = conditions;
        let name = format!("{workload} {direct} {block:09}");
        self.database
            .put_fact(id, facts::CONDITIONS, &name, conditions)
    }

    fn insert_observations(
        &self,
        id: ExperimentId,
        header: &ExperimentHeader,
        observations: &[Observation],
    ) -> Result<()> {
        let failed = self.database.failed("write");
        for observation in observations {
            let mut checked = observation.clone();
            checked.experiment.clone_from(&header.experiment);
            header.check_observation(&checked).map_err(|fault| {
                Error::store_damaged(format!(
                    "block {} of {}: {fault}",
                    checked.block, checked.workload
                ))
            })?;
            self.database
                .insert(
                    "INSERT INTO observations",
                    &[("experiment", &id.0)],
                    &checked,
                )
                .map_err(|error| match error.sqlite_error_code() {
                    Some(rusqlite::ErrorCode::ConstraintViolation) => {
                        Error::store_damaged(format!(
                            "block {} of {} ({}) already has point {}",
                            checked.block, checked.workload, checked.meter, checked.point
                        ))
                    }
                    _ => failed(error),
                })?;
        }
        Ok(())
    }

    fn insert_slices(&self, id: ExperimentId, slices: &[SliceBlob]) -> Result<()> {
        for blob in slices {
            self.database
                .write("INSERT INTO slices", &[("experiment", &id.0)], blob)?;
        }
        Ok(())
    }

    fn free_name(&self, wanted: &str) -> Result<String> {
        let wanted = if wanted.is_empty() {
            "experiment"
        } else {
            wanted
        };
        let taken = "SELECT count(*) FROM experiments WHERE name = ?1";
        let mut name = wanted.to_owned();
        let mut number = 1;
        while self.database.count(taken, [&name])? > 0 {
            number += 1;
            name = format!("{wanted}-{number}");
        }
        Ok(name)
    }

    /// Makes the experiment the latest one.
    fn touch(&self, id: ExperimentId) -> Result<()> {
        let latest = "UPDATE experiments
             SET touched = (SELECT max(touched) + 1 FROM experiments) WHERE id = ?1";
        self.database.execute(latest, [id.0]).map(drop)
    }
}
