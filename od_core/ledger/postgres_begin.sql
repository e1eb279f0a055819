-- Begin a transaction. A stricter isolation level would read the entries as they were before the wait for the lock.
-- A host that disappears in a transaction loses it after a while, and a role that does not wait for the disk by default
-- waits here.
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
SET LOCAL search_path = od_ledger;
SET LOCAL lock_timeout = '{seconds}s';
SET LOCAL idle_in_transaction_session_timeout = '{seconds}s';
SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off';
SELECT pg_advisory_xact_lock({lock});
