"""A release published in a process of its own, which dies at a chosen point."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pandas as pd

from od_core.flows.publishing.kind import FLOWS as FLOW_KIND
from od_core.ledger.release_key import ReleaseKey
from od_core.publication import bundle
from od_core.publication import database as store
from od_core.publication.certificate import CheckResult
from od_core.publication.certify import build_certificate, read_release_context
from od_core.published.publishing import Published, publish_release
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
    """Publish as the pipeline does, and die at a point."""

    def reached(here):
        if here == point:
            die()

    text, insert, sync = bundle.encode_json, store._insert_rows, bundle.sync
    write_zip, zipped, stored = bundle.write_zip, bundle._publish_zip, FLOW_KIND.store

    def text_or_die(content):
        reached("in the files")
        return text(content)

    def insert_or_die(connection, table, *rest):
        if table == "checks":
            reached("in the transaction")
        insert(connection, table, *rest)

    def sync_or_die(path):
        if path == folder / "releases":
            reached("after the rename")
        sync(path)

    def store_or_die(*given):
        reached("before the store")
        stored(*given)
        reached("after the store")

    def zip_or_die(files, release, path):
        if point == "in the zip file":
            path.write_bytes(b"PK half")
        reached("in the zip file")
        write_zip(files, release, path)

    @contextmanager
    def renamed_or_die(files: Path, target: Path) -> Iterator[None]:
        with zipped(files, target):
            yield
        reached("before the rename")

    bundle.encode_json, store._insert_rows, bundle.sync = text_or_die, insert_or_die, sync_or_die
    bundle.write_zip, bundle._publish_zip = zip_or_die, renamed_or_die
    object.__setattr__(FLOW_KIND, "store", store_or_die)
    try:
        ledger = ledger_at(folder / "ledger.sqlite")
        release = released(ledger, str(key), flows)
        checks = [CheckResult(subject="flows", check="sum to n", passed=True)]
        facts = build_certificate(FLOW_KIND, release, key, "commuters", checks, record=ledger.record(key))
        context = read_release_context(FLOW_KIND, ledger, key, "commuters", folder / "releases")
        place = replace(Published.from_folder(folder, key, ledger), bundle=folder / "releases" / f"r{key.revision}")
        publish_release(place, FLOW_KIND, release, facts, context)
    finally:
        bundle.encode_json, store._insert_rows, bundle.sync = text, insert, sync
        bundle.write_zip, bundle._publish_zip = write_zip, zipped
        object.__setattr__(FLOW_KIND, "store", stored)


def main(folder: str, point: str = "") -> None:
    publish(Path(folder), point)


if __name__ == "__main__":
    main(*sys.argv[1:])
