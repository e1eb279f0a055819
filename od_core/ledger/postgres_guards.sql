-- Whether the role may change entries, and whether the trigger is enabled; no row without a table.
SELECT pg_has_role(relowner, 'USAGE') OR has_table_privilege(oid, 'UPDATE, DELETE, TRUNCATE, TRIGGER') AS may_change,
    EXISTS (SELECT FROM pg_trigger WHERE tgrelid = pg_class.oid AND tgname = 'entries_are_final' AND tgenabled = 'A')
    AS refuses
FROM pg_class WHERE oid = to_regclass('od_ledger.entries')
