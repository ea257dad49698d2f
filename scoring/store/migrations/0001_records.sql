-- SPDX-License-Identifier: MIT
-- One row per record. `json` is the whole of it and the truth; the other columns exist to select and order by.
CREATE TABLE records (
    seq       INTEGER PRIMARY KEY,      -- order of arrival
    id        TEXT NOT NULL UNIQUE,
    created   TEXT NOT NULL,            -- ISO 8601, UTC
    problem   TEXT NOT NULL,
    kernel    TEXT NOT NULL,
    backend   TEXT NOT NULL,
    target    TEXT NOT NULL,
    gpu       TEXT NOT NULL,
    mode      TEXT NOT NULL,
    status    TEXT NOT NULL,
    evidence  TEXT NOT NULL,
    protocol  TEXT NOT NULL,
    workload  TEXT NOT NULL,            -- digest of the ranking rule and the timed cases: only equal ones compare
    score     REAL,                     -- seconds, NULL unless the record passed and was timed
    json      TEXT NOT NULL
) STRICT;

CREATE INDEX records_by_age ON records (created, seq);
CREATE INDEX records_by_board ON records (problem, gpu, kernel, created);
