-- The ledger in SQLite. The columns and indexes are those of entries.py, as in every database.
CREATE TABLE IF NOT EXISTS entries (
    number INTEGER PRIMARY KEY,
{columns}
) STRICT;
CREATE TRIGGER IF NOT EXISTS entries_are_final BEFORE UPDATE ON entries
BEGIN SELECT RAISE(ABORT, 'ledger entries are never changed'); END;
CREATE TRIGGER IF NOT EXISTS entries_stay BEFORE DELETE ON entries
BEGIN SELECT RAISE(ABORT, 'ledger entries are never removed'); END;
{indexes}