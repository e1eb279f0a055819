-- The ledger in SQLite. Its columns and indexes are the same in every database.
CREATE TABLE IF NOT EXISTS entries (
    number INTEGER PRIMARY KEY,
    at TEXT NOT NULL,
    kind TEXT NOT NULL,
    domain TEXT NOT NULL,
    period TEXT,
    release TEXT,
    level INTEGER,
    draw INTEGER,
    rho TEXT,
    epsilon TEXT,
    delta TEXT,
    content TEXT NOT NULL,
    previous TEXT NOT NULL,
    hash TEXT NOT NULL
) STRICT;
CREATE TRIGGER IF NOT EXISTS entries_are_final BEFORE UPDATE ON entries
BEGIN SELECT RAISE(ABORT, 'ledger entries are never changed'); END;
CREATE TRIGGER IF NOT EXISTS entries_stay BEFORE DELETE ON entries
BEGIN SELECT RAISE(ABORT, 'ledger entries are never removed'); END;
CREATE INDEX IF NOT EXISTS entries_by_release ON entries (kind, release, domain, level, number);
CREATE INDEX IF NOT EXISTS entries_by_period ON entries (domain, kind, period, number);
CREATE INDEX IF NOT EXISTS entries_by_kind ON entries (domain, kind, number);
