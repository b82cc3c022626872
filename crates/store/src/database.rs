//! An open database, whose errors name its file.

use std::path::{Path, PathBuf};

use rusqlite::{
    Connection, OptionalExtension, Params, Row, ToSql, Transaction, TransactionBehavior,
};

use super::columns::{ReadColumns, Record, Values};
use super::schema::{self, DatabaseKind};
use perfquilt_model::error::{Error, Result};

#[derive(Debug)]
pub(super) struct Database {
    pub kind: &'static DatabaseKind,
    pub connection: Connection,
    pub path: PathBuf,
}

impl Database {
    /// Opens the database at `path` and, if `create` is set, creates file and folder if they are missing.
    pub fn open(kind: &'static DatabaseKind, path: &Path, create: bool) -> Result<Self> {
        if let Some(folder) = path.parent().filter(|_| create) {
            std::fs::create_dir_all(folder).map_err(|e| Error::io("make", folder, &e))?;
        }
        Ok(Database {
            kind,
            connection: schema::open(kind, path, create)?,
            path: path.to_path_buf(),
        })
    }

    /// Executes a statement that writes; returns the number of changed rows.
    pub fn execute(&self, sql: &str, params: impl Params) -> Result<usize> {
        self.connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.execute(params))
            .map_err(self.failed("write"))
    }

    /// Returns the rows of a query.
    pub fn rows<T: ReadColumns>(&self, sql: &str, params: impl Params) -> Result<Vec<T>> {
        self.map(sql, params, |row| T::read(row, &mut 0))
    }

    /// Returns what `row` makes of each row of a query.
    pub fn map<T>(
        &self,
        sql: &str,
        params: impl Params,
        row: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>> {
        self.connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.query_map(params, row)?.collect())
            .map_err(self.failed("read"))
    }

    /// Inserts a row of the columns in `key` and those of `record`; `into` begins the statement and names the table.
    pub fn insert<R: Record>(
        &self,
        into: &str,
        key: &[(&str, &dyn ToSql)],
        record: &R,
    ) -> rusqlite::Result<usize> {
        let names = key.iter().map(|(name, _)| format!("{name}, "));
        let names = names.collect::<String>() + &R::names();
        let mut fields = Values::new();
        record.write(&mut fields);
        let key = key.iter().map(|(_, value)| *value);
        let values: Vec<&dyn ToSql> = key.chain(fields.iter().map(|field| &**field)).collect();
        let places = vec!["?"; values.len()].join(", ");
        let sql = format!("{into} ({names}) VALUES ({places})");
        self.connection.prepare_cached(&sql)?.execute(&*values)
    }

    /// Writes a row as [`Database::insert`] does.
    pub fn write<R: Record>(
        &self,
        into: &str,
        key: &[(&str, &dyn ToSql)],
        record: &R,
    ) -> Result<()> {
        let written = self.insert(into, key, record);
        written.map(drop).map_err(self.failed("write"))
    }

    /// Returns the records of a query, which begins behind the columns.
    pub fn records<R: Record>(&self, query: &str, params: impl Params) -> Result<Vec<R>> {
        let sql = format!("SELECT {} {query}", R::names());
        self.rows(&sql, params)
    }

    /// Returns the first row of a query.
    pub fn first<T: ReadColumns>(&self, sql: &str, params: impl Params) -> Result<Option<T>> {
        let row = |row: &Row<'_>| T::read(row, &mut 0);
        self.connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.query_row(params, row).optional())
            .map_err(self.failed("read"))
    }

    /// Returns the number that a query counts.
    pub fn count(&self, sql: &str, params: impl Params) -> Result<u64> {
        Ok(self.first(sql, params)?.unwrap_or(0))
    }

    /// Runs `work` in one transaction: if it fails, none of its changes is made.
    pub fn transaction<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let begun = Transaction::new_unchecked(&self.connection, TransactionBehavior::Immediate);
        let transaction = begun.map_err(self.failed("write"))?;
        let done = work()?;
        transaction.commit().map_err(self.failed("write"))?;
        Ok(done)
    }

    /// Returns the error for contents that are not what was stored, as `what` says.
    pub fn damaged(&self, what: &str) -> Error {
        Error::store_damaged(format!("{what}: {} is damaged", self.path.display()))
            .hint("`perfquilt run --fresh`, with the options of that run, measures everything again; check disk and memory of this machine first")
    }

    /// Returns a function that makes the error for a failure to `what` the file.
    pub fn failed(&self, what: &'static str) -> impl Fn(rusqlite::Error) -> Error + '_ {
        move |error| schema::explain(self.kind, &self.path, what, &error)
    }
}
