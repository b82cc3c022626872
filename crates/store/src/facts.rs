//! What is known beside the values: how an experiment was planned, what it was observed of, its builds, conditions and durations; and
//! of programs, whichever experiment has them, by the keys of their contents.

use rusqlite::params;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::ExperimentId;
use super::database::Database;
use super::json::{Json, json};
use perfquilt_model::error::{Error, Result};

/// What facts of programs are stored under in place of an experiment.
pub(super) const PROGRAMS: ExperimentId = ExperimentId(0);

// The kinds of facts.
pub(super) const PLANNED: &str = "planned blocks";
pub(super) const OBSERVED: &str = "observed programs";
pub(super) const UNEXECUTED: &str = "unexecuted patches";
pub(super) const BUILD: &str = "build";
pub(super) const CONDITIONS: &str = "conditions";
pub(super) const DURATION: &str = "duration";
pub(super) const EXECUTION: &str = "execution";
pub(super) const TESTS: &str = "results of tests";

/// A fact with its experiment, kind and name, so that its digest holds for its place, too.
type Placed<T> = (i64, String, String, T);

impl Database {
    /// Stores a fact in place of an earlier one of the same name; `kind` is its noun in an error.
    pub fn put_fact(
        &self,
        of: ExperimentId,
        kind: &str,
        name: &str,
        value: &(impl Serialize + ?Sized),
    ) -> Result<()> {
        let text = json(kind, &(of.0, kind, name, value))?;
        let sql = "INSERT OR REPLACE INTO facts VALUES (?1, ?2, ?3, ?4)";
        self.execute(sql, params![of.0, kind, name, text]).map(drop)
    }

    /// Returns the fact called `name`.
    pub fn fact<T: DeserializeOwned>(
        &self,
        of: ExperimentId,
        kind: &str,
        name: &str,
    ) -> Result<Option<T>> {
        let sql = "SELECT name, value FROM facts WHERE experiment = ?1 AND kind = ?2 AND name = ?3";
        let found = self.first(sql, params![of.0, kind, name])?;
        let placed = found.map(|found| self.placed((of, kind), found));
        Ok(placed.transpose()?.map(|(_, value)| value))
    }

    /// Returns the facts of a kind with their names, by which they are ordered.
    pub fn facts<T: DeserializeOwned>(
        &self,
        of: ExperimentId,
        kind: &str,
    ) -> Result<Vec<(String, T)>> {
        let sql = "SELECT name, value FROM facts WHERE experiment = ?1 AND kind = ?2 ORDER BY name";
        let found = self.rows(sql, params![of.0, kind])?.into_iter();
        found.map(|found| self.placed((of, kind), found)).collect()
    }

    fn placed<T>(
        &self,
        (of, kind): (ExperimentId, &str),
        (name, Json((there, said, called, value))): (String, Json<Placed<T>>),
    ) -> Result<(String, T)> {
        if (there, &*said, &called) != (of.0, kind, &name) {
            return Err(Error::store_damaged(format!(
                "{} is damaged: {kind} `{name}` was stored as {said} `{called}`",
                self.path.display()
            )));
        }
        Ok((name, value))
    }
}
