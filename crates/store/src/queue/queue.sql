CREATE TABLE deliveries (
    id       TEXT PRIMARY KEY,
    received INTEGER NOT NULL,
    -- The SHA-256 of the body.
    body     TEXT NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;
CREATE INDEX deliveries_by_time ON deliveries (received);
CREATE INDEX deliveries_by_body ON deliveries (body);

CREATE TABLE jobs (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    repository TEXT NOT NULL,
    number     INTEGER NOT NULL,
    head       TEXT NOT NULL,
    command    TEXT NOT NULL,
    asked_by   TEXT NOT NULL,
    trusted    INTEGER NOT NULL,
    state      TEXT NOT NULL,
    attempts   INTEGER NOT NULL DEFAULT 0,
    received   INTEGER NOT NULL,
    started    INTEGER,
    ended      INTEGER,
    result     TEXT NOT NULL DEFAULT '',
    -- A job that GitHub's absence kept from ending is tried again, and counts how often that was so.
    not_before INTEGER NOT NULL DEFAULT 0,
    outages    INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX jobs_by_state ON jobs (state, id);
CREATE INDEX jobs_by_pull_request ON jobs (repository, number);

CREATE TABLE replies (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    repository TEXT NOT NULL,
    number     INTEGER NOT NULL,
    comment    INTEGER NOT NULL,
    reaction   TEXT NOT NULL,
    answer     TEXT NOT NULL,
    attempts   INTEGER NOT NULL DEFAULT 0,
    not_before INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE approvals (
    repository TEXT NOT NULL,
    number     INTEGER NOT NULL,
    head       TEXT NOT NULL,
    approver   TEXT NOT NULL,
    given      INTEGER NOT NULL,
    PRIMARY KEY (repository, number, head)
) STRICT, WITHOUT ROWID;

-- The latest acceptance of each patch that is slower.
CREATE TABLE acceptances (
    repository    TEXT NOT NULL,
    number        INTEGER NOT NULL,
    patch         INTEGER NOT NULL,
    head          TEXT NOT NULL,
    configuration TEXT NOT NULL,
    reason        TEXT NOT NULL,
    accepter      TEXT NOT NULL,
    given         INTEGER NOT NULL,
    PRIMARY KEY (repository, number, patch)
) STRICT, WITHOUT ROWID;

-- The pull requests about whose commit or closure deliveries disagree, with the number of doubts before the last.
CREATE TABLE doubts (
    repository TEXT NOT NULL,
    number     INTEGER NOT NULL,
    raised     INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (repository, number)
) STRICT, WITHOUT ROWID;
