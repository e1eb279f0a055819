"""Copies of a published release in which something is changed, which its verification is to find."""

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from od_core.published.publishing import Published

PARTS = {
    "files": ("bundle", "files"),
    "measurements": ("database", "measurements"),
    "certificate": ("ledger",),
}
"""What is changed, and the parts of a verification that are to find it."""


def damaged(published: Published, folder: Path, what: str) -> Published:
    """Return a published bundle in a copy below a folder, of which something is changed.

    All files have their checksums, as if whoever changed them had thought of that; the zip file is as it was.
    """
    root, kept = published.database.parent, folder / "kept"
    shutil.copytree(root / "releases", folder / "releases")
    bundle, database = folder / published.bundle.relative_to(root), Path(shutil.copy2(published.database, folder))
    if what == "measurements":
        shutil.copytree(published.measurements, kept)
        if bundle.joinpath("tables/flows.parquet").is_file():
            for path in bundle.glob("tables/*measurements.parquet"):
                _add_to_noise(path)
        else:  # with another noise, what is published is not even opened
            for path in [path for path in kept.rglob("*") if path.is_file()]:
                path.write_bytes(path.read_bytes()[:-1])
        _remove_measurements(database)
    elif what == "certificate":
        certificate = json.loads((bundle / "certificate.json").read_text(encoding="utf-8"))
        certificate["spent"]["lost_draws"] += 1
        (bundle / "certificate.json").write_text(json.dumps(certificate), encoding="utf-8")
    else:
        path = bundle / "report.html"
        path.write_text(path.read_text(encoding="utf-8") + " ", encoding="utf-8")
    files = [path for path in bundle.rglob("*") if path.is_file() and path.name != "SHA256SUMS"]
    lines = {str(path.relative_to(bundle)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    text = "".join(f"{digest}  {name}\n" for name, digest in sorted(lines.items()))
    (bundle / "SHA256SUMS").write_text(text, encoding="utf-8")
    return replace(published, bundle=bundle, database=database, measurements=kept)


def _add_to_noise(path: Path) -> None:
    """Add 1 to each noisy measurement of a table."""
    table = pq.read_table(path)
    field = table.schema.field("noisy")
    more = pa.array([value + 1 for value in table["noisy"].to_pylist()], field.type)
    pq.write_table(table.set_column(table.column_names.index("noisy"), field, more), path, compression="zstd")


def _remove_measurements(database: Path) -> None:
    """Remove all measurements from a database."""
    with duckdb.connect(str(database)) as opened:
        for (name,) in opened.execute("SELECT table_name FROM duckdb_columns() WHERE column_name = 'noisy'").fetchall():
            if opened.execute("SELECT count(*) FROM duckdb_tables() WHERE table_name = ?", [name]).fetchall() == [(1,)]:
                opened.execute(f'DELETE FROM "{name}"')
