-- Create the ledger of od-release. Run this once, as a role that the releases do not use. It becomes the owner.
BEGIN;
CREATE SCHEMA od_ledger;
CREATE TABLE od_ledger.entries (
    number BIGINT PRIMARY KEY,
{columns}
);
CREATE FUNCTION od_ledger.refuse() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'ledger entries are never changed or removed'; END $$;
CREATE TRIGGER entries_are_final BEFORE UPDATE OR DELETE OR TRUNCATE ON od_ledger.entries
FOR EACH STATEMENT EXECUTE FUNCTION od_ledger.refuse();
ALTER TABLE od_ledger.entries ENABLE ALWAYS TRIGGER entries_are_final;
{indexes}GRANT USAGE ON SCHEMA od_ledger TO "{writer}";
GRANT SELECT, INSERT ON od_ledger.entries TO "{writer}";
COMMIT;
