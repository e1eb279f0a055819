"""A program that has a release database open, for reading or for writing, until its standard input ends."""

import sys

import duckdb

if __name__ == "__main__":
    database, how = sys.argv[1:]
    with duckdb.connect(database, read_only=how == "reading") as connection:
        if how == "writing":
            connection.execute("CREATE TABLE IF NOT EXISTS notes (note VARCHAR); INSERT INTO notes VALUES ('a note')")
        print("held", flush=True)
        sys.stdin.read()
        print(connection.execute("SELECT count(*) FROM releases").fetchall()[0][0])
