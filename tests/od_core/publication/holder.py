"""A reader in a process of its own: it holds a DuckDB file until its standard input ends."""

from __future__ import annotations

import sys

import duckdb

if __name__ == "__main__":
    with duckdb.connect(sys.argv[1], read_only=True) as connection:
        connection.execute("SELECT count(*) FROM releases")
        print("held", flush=True)
        sys.stdin.read()
