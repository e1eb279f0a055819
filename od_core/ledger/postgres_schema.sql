-- Create the ledger of od-release. Run this once, as a role that the releases do not use. It becomes the owner.
BEGIN;
CREATE SCHEMA od_ledger;
CREATE TABLE od_ledger.entries (
    number BIGINT PRIMARY KEY,
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
);
CREATE FUNCTION od_ledger.refuse() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'ledger entries are never changed or removed'; END $$;
CREATE TRIGGER entries_are_final BEFORE UPDATE OR DELETE OR TRUNCATE ON od_ledger.entries
FOR EACH STATEMENT EXECUTE FUNCTION od_ledger.refuse();
ALTER TABLE od_ledger.entries ENABLE ALWAYS TRIGGER entries_are_final;
CREATE INDEX IF NOT EXISTS entries_by_release ON od_ledger.entries (kind, release, domain, level, number);
CREATE INDEX IF NOT EXISTS entries_by_period ON od_ledger.entries (domain, kind, period, number);
CREATE INDEX IF NOT EXISTS entries_by_kind ON od_ledger.entries (domain, kind, number);
GRANT USAGE ON SCHEMA od_ledger TO "{writer}";
GRANT SELECT, INSERT ON od_ledger.entries TO "{writer}";
COMMIT;
