"""A release published in a process of its own, which dies at a chosen point."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd

from od_core.flows.publishing.kind import FLOWS as FLOW_KIND
from od_core.ledger.release_key import ReleaseKey
from od_core.publication import bundle
from od_core.publication import database as store
from od_core.publication.certificate import CheckResult, compute_certificate_digest
from od_core.publication.certify import build_certificate, read_release_context
from tests.faults.worker import R1, die, released
from tests.od_core.ledger.ledger_rows import FLOWS, ledger_at

KEY = ReleaseKey.parse(R1)
POINTS = (
    "in the files",
    "before the store",
    "in the transaction",
    "after the store",
    "in the zip file",
    "before the rename",
    "after the rename",
)


def publish(folder: Path, point: str = "", key: ReleaseKey = KEY, flows: pd.DataFrame = FLOWS) -> None:
    """As the pipeline does it: the bundle prepared, the database written, the folder renamed, the ledger told."""
    place = folder / "releases" / f"r{key.revision}"

    def reached(here: str) -> None:
        if here == point:
            die()

    text, insert, sync = bundle.encode_json, store._insert, bundle.sync
    write_zip, zipped = bundle.write_zip, bundle._publish_zip

    def text_or_die(content: dict) -> bytes:
        reached("in the files")
        return text(content)

    def insert_or_die(connection: object, table: str, *rest: object) -> None:
        if table == "checks":
            reached("in the transaction")
        insert(connection, table, *rest)

    def sync_or_die(path: Path) -> None:
        if path == folder / "releases":
            reached("after the rename")
        sync(path)

    def zip_or_die(files: Path, release: str, path: Path) -> None:
        if point == "in the zip file":
            path.write_bytes(b"PK half")
        reached("in the zip file")
        write_zip(files, release, path)

    @contextmanager
    def renamed_or_die(files: Path, target: Path) -> Iterator[None]:
        with zipped(files, target):
            yield
        reached("before the rename")

    bundle.encode_json, store._insert, bundle.sync = text_or_die, insert_or_die, sync_or_die
    bundle.write_zip, bundle._publish_zip = zip_or_die, renamed_or_die
    try:
        ledger = ledger_at(folder / "ledger.sqlite")
        release = released(ledger, str(key), flows)
        facts = build_certificate(
            FLOW_KIND,
            release,
            key,
            "commuters",
            [CheckResult(subject="flows", check="sum to n", passed=True)],
            record=ledger.record(key),
        )
        context = read_release_context(FLOW_KIND, ledger, key, "commuters", folder / "releases")
        report = FLOW_KIND.report(release, facts, context)
        with bundle.publish_folder(
            lambda staged: bundle.write_bundle(FLOW_KIND, release, facts, report, staged), place
        ):
            reached("before the store")
            FLOW_KIND.store(folder / "release.duckdb", release, key, facts)
            reached("after the store")
        ledger.publish(key, compute_certificate_digest(facts), facts["exact"])
    finally:
        bundle.encode_json, store._insert, bundle.sync = text, insert, sync
        bundle.write_zip, bundle._publish_zip = write_zip, zipped


def main(folder: str, point: str = "") -> None:
    publish(Path(folder), point)


if __name__ == "__main__":
    main(*sys.argv[1:])
