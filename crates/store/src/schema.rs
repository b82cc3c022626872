//! Opening of databases: tables, schema versions and errors.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};

use perfquilt_model::error::{DISK_FULL, Error, Result};

/// A kind of database and its tables.
#[derive(Debug)]
pub(super) struct DatabaseKind {
    /// SQLite's `application_id`, which marks a file as ours.
    pub application: i32,
    /// The statements that make its tables.
    pub tables: &'static str,
    /// The version of the tables, SQLite's `user_version`. A change of the tables increments it.
    pub version: i32,
    /// Its name, as in `is not a results database`.
    pub name: &'static str,
    /// The command that creates a new one.
    pub maker: &'static str,
    /// How to keep the contents of a file of another version, with the program that wrote it.
    pub export: &'static str,
}

/// The database of results ("pquR").
pub(super) const RESULTS: DatabaseKind = DatabaseKind {
    application: 0x7071_7552,
    tables: include_str!("results.sql"),
    version: 24,
    name: "results",
    maker: "perfquilt run",
    export: "`perfquilt report NAME --format jsonl` of that perfquilt exports an experiment, which `perfquilt analyse` \
             reads",
};

/// Timeout for the write lock of another process.
const BUSY: Duration = Duration::from_secs(10);

/// Opens (and, if `create` is set, creates) the database of `kind` at `path` with the current schema.
pub(super) fn open(kind: &DatabaseKind, path: &Path, create: bool) -> Result<Connection> {
    let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    if create {
        flags |= OpenFlags::SQLITE_OPEN_CREATE;
    }
    let opened = Connection::open_with_flags(path, flags)
        .and_then(|connection| {
            connection.busy_timeout(BUSY)?;
            // The first statement is the first access to the file. It runs in a transaction because another
            // process or thread may be creating the tables.
            let transaction =
                Transaction::new_unchecked(&connection, TransactionBehavior::Deferred)?;
            let state = FileState::read(&transaction)?;
            drop(transaction);
            Ok((connection, state))
        })
        .map_err(|error| explain(kind, path, "open", &error));
    let (connection, state) = match opened {
        Ok(opened) => opened,
        Err(error) => return open_frozen(kind, path, create).ok_or(error),
    };
    state.check(kind, path)?;
    match prepare(kind, &connection, &state) {
        Ok(()) => Ok(connection),
        Err(error) => {
            drop(connection);
            open_frozen(kind, path, create).ok_or_else(|| explain(kind, path, "prepare", &error))
        }
    }
}

/// Opens a database in a read-only folder, which is possible if its write-ahead log is empty.
pub(super) fn open_frozen(kind: &DatabaseKind, path: &Path, create: bool) -> Option<Connection> {
    let log = path.with_file_name({
        let mut name = path.file_name()?.to_owned();
        name.push("-wal");
        name
    });
    if create || !path.is_file() || std::fs::metadata(log).is_ok_and(|meta| meta.len() > 0) {
        return None;
    }
    let mut uri = String::from("file:");
    for &byte in std::path::absolute(path).ok()?.as_os_str().as_bytes() {
        match byte {
            b'%' | b'?' | b'#' | 0x80..=0xff => uri.push_str(&format!("%{byte:02x}")),
            _ => uri.push(char::from(byte)),
        }
    }
    uri.push_str("?immutable=1");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(uri, flags).ok()?;
    let state = FileState::read(&connection).ok()?;
    (state.application == kind.application && state.version == kind.version).then_some(connection)
}

struct FileState {
    application: i32,
    version: i32,
    tables: i64,
}

impl FileState {
    fn read(connection: &Connection) -> rusqlite::Result<Self> {
        let pragma = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
        Ok(FileState {
            application: pragma("application_id")?,
            version: pragma("user_version")?,
            tables: connection
                .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?,
        })
    }

    /// Returns whether the file is new.
    fn is_empty(&self) -> bool {
        (self.application, self.version, self.tables) == (0, 0, 0)
    }

    fn check(&self, kind: &DatabaseKind, path: &Path) -> Result<()> {
        let file = path.display();
        if self.is_empty() {
            return Ok(());
        }
        if self.application != kind.application {
            let fault = format!("{file} is a database of another program");
            return Err(Error::store(fault).hint(anew(kind, path)));
        }
        if self.version != kind.version {
            let age = if self.version > kind.version {
                "a newer"
            } else {
                "an older"
            };
            let fault = format!(
                "{file} was written by {age} perfquilt (version {} of its tables; this one has version {})",
                self.version, kind.version
            );
            let hint = format!("{}; {}", kind.export, anew(kind, path));
            return Err(Error::store(fault).hint(hint));
        }
        Ok(())
    }
}

fn prepare(
    kind: &DatabaseKind,
    connection: &Connection,
    state: &FileState,
) -> rusqlite::Result<()> {
    // Finished blocks must survive a crash of the machine, too; one commit per block costs little.
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    write_ahead(connection)?;
    if !state.is_empty() {
        return Ok(());
    }
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    // Another process may have made the tables in the meantime.
    if FileState::read(&transaction)?.is_empty() {
        transaction.execute_batch(kind.tables)?;
        transaction.pragma_update(None, "application_id", kind.application)?;
        transaction.pragma_update(None, "user_version", kind.version)?;
    }
    transaction.commit()
}

/// Enables the write-ahead log. The first process to do so needs exclusive access to the file, and SQLite
/// does not wait for that by itself.
fn write_ahead(connection: &Connection) -> rusqlite::Result<()> {
    let started = Instant::now();
    loop {
        let result = connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()));
        let busy = result
            .as_ref()
            .err()
            .and_then(rusqlite::Error::sqlite_error_code)
            == Some(ErrorCode::DatabaseBusy);
        if !busy || started.elapsed() > BUSY {
            return result;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the error for a failure of SQLite during the operation `what` on the file at `path`.
pub(super) fn explain(
    kind: &DatabaseKind,
    path: &Path,
    what: &str,
    error: &rusqlite::Error,
) -> Error {
    let file = path.display();
    let code = match error {
        // The file beside the database that all its users map could not grow.
        rusqlite::Error::SqliteFailure(failure, _)
            if failure.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE =>
        {
            Some(ErrorCode::DiskFull)
        }
        rusqlite::Error::SqliteFailure(failure, _) => Some(failure.code),
        rusqlite::Error::FromSqlConversionFailure(_, _, fault) => {
            let damaged = Error::store_damaged(format!("{file} is damaged"));
            return damaged.details([fault.to_string()]);
        }
        _ => None,
    };
    match code {
        Some(ErrorCode::DiskFull) => Error::disk_full(format!(
            "cannot {what} {file}: the disk is full"
        ))
        .hint(DISK_FULL),
        Some(ErrorCode::SystemIoFailure) => {
            Error::store_damaged(format!("cannot {what} {file}: {}", cause(error)))
                .hint("check whether the disk is full or broken; finished work is kept")
        }
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            Error::store(format!("cannot {what} {file}: {}", cause(error)))
                .hint("the folder must exist and be writable")
        }
        Some(ErrorCode::NotADatabase) => {
            Error::store(format!("{file} is not a {} database", kind.name))
                .hint(anew(kind, path))
        }
        Some(ErrorCode::DatabaseCorrupt) => Error::store_damaged(format!("{file} is damaged"))
            .details([cause(error)])
            .hint(format!(
                "`sqlite3 {file} .recover` saves what can be saved; or move it away and measure again"
            )),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Error::store_locked(format!(
            "cannot {what} {file}: another perfquilt is writing to it"
        ))
        .hint("wait until it is done, then run the same command again"),
        _ => Error::store_damaged(format!("cannot {what} {file}: {}", cause(error))),
    }
}

/// Returns the hint for replacing a file that is not a database of `kind`.
fn anew(kind: &DatabaseKind, path: &Path) -> String {
    // Bisections keep their observations in a file of their own.
    let maker = if path.ends_with("bisect.db") {
        "perfquilt bisect"
    } else {
        kind.maker
    };
    format!("move it away; the next `{maker}` makes a new one")
}

fn cause(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqliteFailure(_, Some(message)) => message.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_named_that_makes_the_file() {
        for (file, maker) in [
            ("results.db", "`perfquilt run`"),
            ("bisect.db", "`perfquilt bisect`"),
        ] {
            let hint = anew(&RESULTS, &Path::new(".perfquilt").join(file));
            assert!(hint.contains(maker), "{hint}");
        }
    }
}
