#!/bin/sh
# Create the databases and the roles of Dagster and of the ledger. PostgreSQL's image runs this once, on an empty volume.
# The ledger has two roles: od_owner, who owns the table and whom no container uses, and od_writer, who adds entries.
set -eu
psql --set ON_ERROR_STOP=1 --username "${POSTGRES_USER:-postgres}" --dbname postgres \
    --set dagster="$DAGSTER_PG_PASSWORD" --set owner="$OD_OWNER_PASSWORD" --set writer="$OD_WRITER_PASSWORD" <<'SQL'
CREATE ROLE dagster LOGIN PASSWORD :'dagster';
CREATE ROLE od_owner LOGIN PASSWORD :'owner';
CREATE ROLE od_writer LOGIN PASSWORD :'writer';
CREATE DATABASE dagster OWNER dagster;
CREATE DATABASE od_ledger OWNER od_owner;
REVOKE ALL ON DATABASE dagster, od_ledger FROM PUBLIC;
GRANT CONNECT ON DATABASE od_ledger TO od_writer;
SQL
