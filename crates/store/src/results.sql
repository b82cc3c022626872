CREATE TABLE experiments (
    id         INTEGER PRIMARY KEY,
    key        TEXT NOT NULL UNIQUE,
    name       TEXT NOT NULL UNIQUE,
    header     TEXT NOT NULL,
    touched    INTEGER NOT NULL,
    -- Release, recipe and length of a block: with the identities of points and workloads, what decides whether a later
    -- experiment may use the observations.
    protocol   TEXT NOT NULL DEFAULT '',
    finished   INTEGER NOT NULL DEFAULT 0,
    -- The patches that workloads do not execute, as JSON; empty if none is known.
    unexecuted TEXT NOT NULL DEFAULT ''
) STRICT;

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

CREATE TABLE plans (
    experiment INTEGER NOT NULL REFERENCES experiments (id),
    workload   TEXT NOT NULL,
    meter      TEXT NOT NULL,
    blocks     INTEGER NOT NULL,
    min_blocks INTEGER,
    resolution REAL,
    extended   INTEGER NOT NULL DEFAULT 0,
    -- Whether the stopping rule of the version that measured has ended the experiment as planned.
    ended      INTEGER NOT NULL DEFAULT 0,
    -- Long series are measured in windows of neighbouring points.
    windows    INTEGER,
    -- The number of blocks of a wave, after which an experiment on several machines may end.
    wave       INTEGER,
    PRIMARY KEY (experiment, workload, meter)
) STRICT, WITHOUT ROWID;

CREATE TABLE builds (
    key        TEXT PRIMARY KEY,
    configure  REAL NOT NULL,
    compile    REAL NOT NULL,
    link       REAL NOT NULL,
    overhead   REAL NOT NULL,
    units      INTEGER NOT NULL,
    -- The profile that the server was compiled with: JSON.
    profile    TEXT,
    -- Bytes of machine code in the measured executable.
    code_bytes INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE experiment_builds (
    experiment INTEGER NOT NULL REFERENCES experiments (id),
    point      TEXT NOT NULL,
    key        TEXT NOT NULL REFERENCES builds (key),
    cached     INTEGER NOT NULL,
    PRIMARY KEY (experiment, point)
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
    -- Seconds for which a processor quota stopped processes, and how often the block had to be measured again.
    throttled    REAL NOT NULL DEFAULT 0,
    standstills  INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (experiment, workload, direct, block)
) STRICT, WITHOUT ROWID;

-- Rounds of a timed block that no value is made from: a transaction of some server was started again.
CREATE TABLE spoiled (
    experiment INTEGER NOT NULL REFERENCES experiments (id),
    workload   TEXT NOT NULL,
    direct     INTEGER NOT NULL,
    block      INTEGER NOT NULL,
    rounds     INTEGER NOT NULL,
    PRIMARY KEY (experiment, workload, direct, block)
) STRICT, WITHOUT ROWID;

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

-- Whether workloads execute the code that a patch changes, as JSON.
CREATE TABLE executions (
    key    TEXT PRIMARY KEY,
    result TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Results of the server's own tests, as JSON, by the key of the server in the cache of builds.
CREATE TABLE tests (
    key    TEXT PRIMARY KEY,
    record TEXT NOT NULL
) STRICT, WITHOUT ROWID;
