CREATE TABLE experiments (
    id         INTEGER PRIMARY KEY,
    key        TEXT NOT NULL UNIQUE,
    name       TEXT NOT NULL UNIQUE,
    header     TEXT NOT NULL,
    touched    INTEGER NOT NULL,
    finished   INTEGER NOT NULL DEFAULT 0
) STRICT;

-- What is known beside the values, as JSON with a digest: of an experiment, or, as experiment 0, of programs by the keys of
-- their contents.
CREATE TABLE facts (
    experiment INTEGER NOT NULL,
    kind       TEXT NOT NULL,
    name       TEXT NOT NULL,
    value      TEXT NOT NULL,
    PRIMARY KEY (experiment, kind, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE observations (
    experiment INTEGER NOT NULL REFERENCES experiments (id),
    workload   TEXT NOT NULL,
    meter      TEXT NOT NULL,
    -- Blocks of the end-to-end check are numbered apart from the others.
    direct     INTEGER NOT NULL,
    block      INTEGER NOT NULL,
    point      TEXT NOT NULL,
    position   INTEGER NOT NULL,
    layout     INTEGER NOT NULL,
    value      REAL NOT NULL,
    n          INTEGER NOT NULL,
    -- What the typical time of a block does not show.
    mean       REAL,
    slow       REAL,
    p99        REAL,
    -- The lane and the machine that measured the block, where there are several.
    lane       INTEGER,
    machine    TEXT,
    -- The share of slices above twenty times their round's typical time.
    stalled    REAL,
    -- When the measurement of the workload in the block began and ended, where several lanes measured.
    began      REAL,
    ended      REAL,
    PRIMARY KEY (experiment, workload, meter, direct, block, point)
) STRICT, WITHOUT ROWID;

CREATE TABLE slices (
    experiment   INTEGER NOT NULL REFERENCES experiments (id),
    workload     TEXT NOT NULL,
    direct       INTEGER NOT NULL,
    block        INTEGER NOT NULL,
    point        TEXT NOT NULL,
    transactions INTEGER NOT NULL,
    slice_values BLOB NOT NULL,
    PRIMARY KEY (experiment, workload, direct, block, point)
) STRICT;

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

-- What each function executed in a counted block: compressed JSON, instructions a transaction by name.
CREATE TABLE functions (
    experiment INTEGER NOT NULL REFERENCES experiments (id),
    workload   TEXT NOT NULL,
    block      INTEGER NOT NULL,
    point      TEXT NOT NULL,
    costs      BLOB NOT NULL,
    PRIMARY KEY (experiment, workload, block, point)
) STRICT;
