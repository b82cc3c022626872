//! Opening of databases: tables, schema versions and errors.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};

use perfquilt_model::error::{DISK_FULL, Error, Result};

/// A kind of database and its migrations.
#[derive(Debug)]
pub(super) struct DatabaseKind {
    /// SQLite's `application_id`, which marks a file as ours.
    pub application: i32,
    /// One step per schema version; the database's `user_version` is the number of applied steps.
    pub migrations: &'static [&'static str],
    /// Its name, as in `is not a results database`.
    pub name: &'static str,
    /// The command that creates a new one.
    pub maker: &'static str,
}

/// The database of results ("pquR").
pub(super) const RESULTS: DatabaseKind = DatabaseKind {
    application: 0x7071_7552,
    migrations: MIGRATIONS,
    name: "results",
    maker: "perfquilt run",
};

/// Timeout for the write lock of another process.
const BUSY: Duration = Duration::from_secs(10);

const MIGRATIONS: &[&str] = &[
    "
    CREATE TABLE experiments (
        id      INTEGER PRIMARY KEY,
        key     TEXT NOT NULL UNIQUE,
        name    TEXT NOT NULL UNIQUE,
        header  TEXT NOT NULL,
        touched INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE observations (
        experiment INTEGER NOT NULL REFERENCES experiments (id),
        workload   TEXT NOT NULL,
        meter      TEXT NOT NULL,
        block      INTEGER NOT NULL,
        point      TEXT NOT NULL,
        position   INTEGER NOT NULL,
        layout     INTEGER NOT NULL,
        value      REAL NOT NULL,
        n          INTEGER NOT NULL,
        PRIMARY KEY (experiment, workload, meter, block, point)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE slices (
        experiment   INTEGER NOT NULL REFERENCES experiments (id),
        workload     TEXT NOT NULL,
        block        INTEGER NOT NULL,
        point        TEXT NOT NULL,
        transactions INTEGER NOT NULL,
        nanoseconds  BLOB NOT NULL,
        PRIMARY KEY (experiment, workload, block, point)
    ) STRICT;
    CREATE TABLE plans (
        experiment INTEGER NOT NULL REFERENCES experiments (id),
        workload   TEXT NOT NULL,
        meter      TEXT NOT NULL,
        blocks     INTEGER NOT NULL,
        PRIMARY KEY (experiment, workload, meter)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE builds (
        key       TEXT PRIMARY KEY,
        configure REAL NOT NULL,
        compile   REAL NOT NULL,
        link      REAL NOT NULL,
        overhead  REAL NOT NULL,
        units     INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE experiment_builds (
        experiment INTEGER NOT NULL REFERENCES experiments (id),
        point      TEXT NOT NULL,
        key        TEXT NOT NULL REFERENCES builds (key),
        cached     INTEGER NOT NULL,
        PRIMARY KEY (experiment, point)
    ) STRICT, WITHOUT ROWID;
",
    "
    -- Blocks of the closure check are numbered apart from the others.
    CREATE TABLE observations_2 (
        experiment INTEGER NOT NULL REFERENCES experiments (id),
        workload   TEXT NOT NULL,
        meter      TEXT NOT NULL,
        direct     INTEGER NOT NULL,
        block      INTEGER NOT NULL,
        point      TEXT NOT NULL,
        position   INTEGER NOT NULL,
        layout     INTEGER NOT NULL,
        value      REAL NOT NULL,
        n          INTEGER NOT NULL,
        PRIMARY KEY (experiment, workload, meter, direct, block, point)
    ) STRICT, WITHOUT ROWID;
    INSERT INTO observations_2
        SELECT experiment, workload, meter, 0, block, point, position, layout, value, n
        FROM observations;
    DROP TABLE observations;
    ALTER TABLE observations_2 RENAME TO observations;
    CREATE TABLE slices_2 (
        experiment   INTEGER NOT NULL REFERENCES experiments (id),
        workload     TEXT NOT NULL,
        direct       INTEGER NOT NULL,
        block        INTEGER NOT NULL,
        point        TEXT NOT NULL,
        transactions INTEGER NOT NULL,
        nanoseconds  BLOB NOT NULL,
        PRIMARY KEY (experiment, workload, direct, block, point)
    ) STRICT;
    INSERT INTO slices_2
        SELECT experiment, workload, 0, block, point, transactions, nanoseconds FROM slices;
    DROP TABLE slices;
    ALTER TABLE slices_2 RENAME TO slices;
    -- What decides whether a later experiment may use the observations of an earlier one.
    ALTER TABLE experiments ADD COLUMN protocol TEXT NOT NULL DEFAULT '';
    ALTER TABLE experiments ADD COLUMN finished INTEGER NOT NULL DEFAULT 0;
    CREATE TABLE point_identities (
        experiment INTEGER NOT NULL REFERENCES experiments (id),
        point      TEXT NOT NULL,
        identity   TEXT NOT NULL,
        PRIMARY KEY (experiment, point)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE workload_identities (
        experiment INTEGER NOT NULL REFERENCES experiments (id),
        workload   TEXT NOT NULL,
        identity   TEXT NOT NULL,
        PRIMARY KEY (experiment, workload)
    ) STRICT, WITHOUT ROWID;
",
    "
    ALTER TABLE plans ADD COLUMN min_blocks INTEGER;
    ALTER TABLE plans ADD COLUMN resolution REAL;
    ALTER TABLE plans ADD COLUMN extended INTEGER NOT NULL DEFAULT 0;
",
    "
    -- What else happened on the machine while a block was timed.
    CREATE TABLE moments (
        experiment   INTEGER NOT NULL REFERENCES experiments (id),
        workload     TEXT NOT NULL,
        direct       INTEGER NOT NULL,
        block        INTEGER NOT NULL,
        seconds      REAL NOT NULL,
        steal        REAL NOT NULL,
        idle         REAL NOT NULL,
        preempted    INTEGER NOT NULL,
        major_faults INTEGER NOT NULL,
        minor_faults INTEGER NOT NULL,
        mhz_low      REAL,
        mhz_high     REAL,
        PRIMARY KEY (experiment, workload, direct, block)
    ) STRICT, WITHOUT ROWID;
",
    "
    -- What each function executed in a counted block: compressed JSON, instructions a transaction by name.
    CREATE TABLE functions (
        experiment INTEGER NOT NULL REFERENCES experiments (id),
        workload   TEXT NOT NULL,
        block      INTEGER NOT NULL,
        point      TEXT NOT NULL,
        costs      BLOB NOT NULL,
        PRIMARY KEY (experiment, workload, block, point)
    ) STRICT;
",
    "
    -- The profile a server was compiled with: JSON.
    ALTER TABLE builds ADD COLUMN profile TEXT;
",
    "
    -- Rounds of a timed block that no figure is made from: a transaction of some server was started again.
    CREATE TABLE spoiled (
        experiment INTEGER NOT NULL REFERENCES experiments (id),
        workload   TEXT NOT NULL,
        direct     INTEGER NOT NULL,
        block      INTEGER NOT NULL,
        rounds     INTEGER NOT NULL,
        PRIMARY KEY (experiment, workload, direct, block)
    ) STRICT, WITHOUT ROWID;
",
    "
    -- What the typical time of a block does not show.
    ALTER TABLE observations ADD COLUMN mean REAL;
    ALTER TABLE observations ADD COLUMN slow REAL;
    ALTER TABLE observations ADD COLUMN p99 REAL;
",
    "
    -- The lane that measured a block, where several lanes did so side by side.
    ALTER TABLE observations ADD COLUMN lane INTEGER;
    -- Long series are measured in windows of neighbouring points.
    ALTER TABLE plans ADD COLUMN windows INTEGER;
    -- What pilots found, as JSON.
    CREATE TABLE pilots (
        key    TEXT PRIMARY KEY,
        result TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
",
    "
    -- Whether workloads execute the code that a patch changes, as JSON.
    CREATE TABLE executions (
        key    TEXT PRIMARY KEY,
        result TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    -- The patches that workloads of the experiment do not execute, as JSON; empty if none is known.
    ALTER TABLE experiments ADD COLUMN unexecuted TEXT NOT NULL DEFAULT '';
",
    "
    -- The blocks before those of the windows, which measure the last points of all of them.
    ALTER TABLE plans ADD COLUMN first_look INTEGER;
",
    "
    -- The machine that measured a block, where several did.
    ALTER TABLE observations ADD COLUMN machine TEXT;
    -- The number of blocks of a wave, after which an experiment on several machines may end.
    ALTER TABLE plans ADD COLUMN wave INTEGER;
",
    "
    DROP TABLE pilots;
",
    "
    -- Results of the server's own tests, as JSON, by the key of the server in the cache of builds.
    CREATE TABLE tests (
        key    TEXT PRIMARY KEY,
        record TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
",
    "
    -- Bytes of machine code in the measured executable.
    ALTER TABLE builds ADD COLUMN code_bytes INTEGER;
",
    "
    -- Seconds for which a processor quota stopped processes, and how often the block had to be measured again.
    ALTER TABLE moments ADD COLUMN throttled REAL NOT NULL DEFAULT 0;
    ALTER TABLE moments ADD COLUMN standstills INTEGER NOT NULL DEFAULT 0;
",
    "
    -- The share of slices above twenty times their round's typical time.
    ALTER TABLE observations ADD COLUMN stalled REAL;
",
    "
    -- The SHA-256 of a block's values, and of the slices behind them.
    CREATE TABLE checksums (
        experiment INTEGER NOT NULL REFERENCES experiments (id),
        workload   TEXT NOT NULL,
        meter      TEXT NOT NULL,
        direct     INTEGER NOT NULL,
        block      INTEGER NOT NULL,
        digest     BLOB NOT NULL,
        PRIMARY KEY (experiment, workload, meter, direct, block)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE slice_checksums (
        experiment INTEGER NOT NULL REFERENCES experiments (id),
        workload   TEXT NOT NULL,
        direct     INTEGER NOT NULL,
        block      INTEGER NOT NULL,
        digest     BLOB NOT NULL,
        PRIMARY KEY (experiment, workload, direct, block)
    ) STRICT, WITHOUT ROWID;
",
    "
    -- When the measurement of a workload in a block began and ended, where several lanes measured.
    ALTER TABLE observations ADD COLUMN began REAL;
    ALTER TABLE observations ADD COLUMN ended REAL;
",
    "
    -- How long blocks took, with the start of their servers.
    CREATE TABLE durations (
        experiment INTEGER NOT NULL REFERENCES experiments (id),
        counted    INTEGER NOT NULL,
        direct     INTEGER NOT NULL,
        block      INTEGER NOT NULL,
        servers    INTEGER NOT NULL,
        workloads  INTEGER NOT NULL,
        lanes      INTEGER NOT NULL,
        slices     REAL NOT NULL,
        seconds    REAL NOT NULL,
        PRIMARY KEY (experiment, counted, direct, block)
    ) STRICT, WITHOUT ROWID;
",
    "
    -- Whether the stopping rule of the version that measured has ended the experiment as planned.
    ALTER TABLE plans ADD COLUMN ended INTEGER NOT NULL DEFAULT 0;
    UPDATE plans SET ended = 1
        WHERE extended = 0 AND experiment IN (SELECT id FROM experiments WHERE finished = 1);
",
];

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
    (state.application == kind.application && state.version == kind.migrations.len())
        .then_some(connection)
}

struct FileState {
    application: i32,
    version: usize,
    tables: i64,
}

impl FileState {
    fn read(connection: &Connection) -> rusqlite::Result<Self> {
        let pragma = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
        Ok(FileState {
            application: pragma("application_id")?,
            version: usize::try_from(pragma("user_version")?).unwrap_or(usize::MAX),
            tables: connection
                .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?,
        })
    }

    fn check(&self, kind: &DatabaseKind, path: &Path) -> Result<()> {
        let fresh = self.application == 0 && self.version == 0 && self.tables == 0;
        if self.application != kind.application && !fresh {
            return Err(Error::usage(format!(
                "{} is a database of another program",
                path.display()
            ))
            .hint(anew(kind, path)));
        }
        if self.version > kind.migrations.len() {
            return Err(Error::usage(format!(
                "{} was written by a newer perfquilt (version {} of its tables, this one knows {})",
                path.display(),
                self.version,
                kind.migrations.len()
            ))
            .hint(
                "use that version of perfquilt, or move the file away to start with an empty store",
            ));
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
    if state.version == kind.migrations.len() {
        return Ok(());
    }
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    // Another process may have applied the migrations in the meantime.
    let version = FileState::read(&transaction)?.version;
    for step in kind.migrations.iter().skip(version) {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "application_id", kind.application)?;
    transaction.pragma_update(
        None,
        "user_version",
        i32::try_from(kind.migrations.len()).unwrap_or(i32::MAX),
    )?;
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
        rusqlite::Error::SqliteFailure(failure, _) => Some(failure.code),
        _ => None,
    };
    match code {
        Some(ErrorCode::DiskFull) => Error::internal(format!(
            "cannot {what} {file}: the disk is full"
        ))
        .hint(DISK_FULL),
        Some(ErrorCode::SystemIoFailure) => {
            Error::internal(format!("cannot {what} {file}: {}", cause(error)))
                .hint("is the disk full, or broken? what was finished is kept")
        }
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            Error::usage(format!("cannot {what} {file}: {}", cause(error)))
                .hint("the folder must exist and you must be allowed to write to it")
        }
        Some(ErrorCode::NotADatabase) => {
            Error::usage(format!("{file} is not a {} database", kind.name))
                .hint(anew(kind, path))
        }
        Some(ErrorCode::DatabaseCorrupt) => Error::internal(format!("{file} is damaged"))
            .details([cause(error)])
            .hint(format!(
                "`sqlite3 {file} .recover` saves what can be saved; or move it away and measure again"
            )),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Error::internal(format!(
            "cannot {what} {file}: another perfquilt is writing to it"
        ))
        .hint("wait until it is done, then run the same command again"),
        _ => Error::internal(format!("cannot {what} {file}: {}", cause(error))),
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
