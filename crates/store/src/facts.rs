//! What is known beside the values: how an experiment was planned, what it was observed of, its builds, conditions and durations; and
//! of programs, whichever experiment has them, by the keys of their contents.

use rusqlite::params;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::ExperimentId;
use super::database::Database;
use super::json::{Json, json};
use perfquilt_model::error::Result;

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
/// How many facts of a kind an experiment has.
const NUMBER: &str = "number of facts";

/// A fact with its experiment, kind and name, so that its digest holds for its place, too.
type Placed<T> = (i64, String, String, T);

impl Database {
    /// Stores a fact in place of an earlier one of the same name, and in the same statement how many there are; `kind` is its
    /// noun in an error.
    pub fn put_fact(
        &self,
        of: ExperimentId,
        kind: &str,
        name: &str,
        value: &(impl Serialize + ?Sized),
    ) -> Result<()> {
        let same = "SELECT count(*) FROM facts WHERE experiment = ?1 AND kind = ?2 AND name = ?3";
        let known = self.count(same, params![of.0, kind, name])?;
        let number = self.number_of_facts(of, kind)? + 1 - known;
        self.execute(
            // Facts about programs are looked up by key and may be absent, so they are not counted.
            "INSERT OR REPLACE INTO facts
             SELECT ?1, ?2, ?3, ?4 UNION ALL SELECT ?1, ?5, ?2, ?6 WHERE ?1 <> 0",
            params![
                of.0,
                kind,
                name,
                json(kind, &(of.0, kind, name, value))?,
                NUMBER,
                json(NUMBER, &(of.0, NUMBER, kind, number))?
            ],
        )
        .map(drop)
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
        found
            .map(|found| self.placed((of, kind), found))
            .transpose()
    }

    /// Returns the facts of a kind, ordered by their names. A missing one is an error: a flipped bit in its name hides it.
    pub fn facts<T: DeserializeOwned>(&self, of: ExperimentId, kind: &str) -> Result<Vec<T>> {
        let sql = "SELECT name, value FROM facts WHERE experiment = ?1 AND kind = ?2 ORDER BY name";
        let found: Vec<_> = self.rows(sql, params![of.0, kind])?;
        let (found_number, number) = (found.len() as u64, self.number_of_facts(of, kind)?);
        if found_number != number {
            return Err(self.damaged(&format!("{found_number} of {number} {kind} are there")));
        }
        let found = found.into_iter();
        found.map(|found| self.placed((of, kind), found)).collect()
    }

    /// Returns the only fact of a kind.
    pub fn only_fact<T: DeserializeOwned>(
        &self,
        of: ExperimentId,
        kind: &str,
    ) -> Result<Option<T>> {
        Ok(self.facts(of, kind)?.pop())
    }

    fn number_of_facts(&self, of: ExperimentId, kind: &str) -> Result<u64> {
        Ok(self.fact(of, NUMBER, kind)?.unwrap_or(0))
    }

    fn placed<T>(
        &self,
        (of, kind): (ExperimentId, &str),
        (name, Json((there, said, called, value))): (String, Json<Placed<T>>),
    ) -> Result<T> {
        if (there, &*said, &called) != (of.0, kind, &name) {
            let place = format!("{kind} `{name}` was stored as {said} `{called}`");
            return Err(self.damaged(&place));
        }
        Ok(value)
    }
}
