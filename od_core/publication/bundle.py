"""The bundle: one folder that holds a release for people who have nothing else of this project."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from od_core.archive.files import sync
from od_core.archive.ledger import EntryName
from od_core.archive.row_groups import write_batches
from od_core.errors import OdError
from od_core.publication.tables import areas_table, flows_table, measurement_batches
from od_core.release import MEASUREMENT_SCHEMA, Release

CERTIFICATE = "certificate.json"
BUNDLE_TABLES = ("areas.parquet", "flows.parquet", "noisy_measurements.parquet")
"""The tables that a release is read back from."""

_SENTENCES = ("guarantee", "known_limitations")
"""Facts of a certificate that are put into words."""


@contextmanager
def staged_folder(write: Callable[[Path], None], target: Path) -> Iterator[None]:
    """Prepare a bundle beside its place; it appears in one rename when the body ends without an error.

    A bundle that is public already is never replaced: the prepared one must have the same files, byte for
    byte, and is thrown away. (The certificate names the software that first made it; a later version of the
    software may make it anew only if everything else is equal.)

    Raises:
        OdError: a public bundle differs from what its measurements give.
    """
    staged = target.with_name(f".{target.name}.staged")
    shutil.rmtree(staged, ignore_errors=True)
    staged.mkdir(parents=True)
    try:
        write(staged)
        if target.exists():
            changed = differing_files(staged, target)
            if changed:
                raise OdError(
                    "OD-BUNDLE-CHANGED",
                    f"the public bundle is not what its measurements give; different: {', '.join(changed)}",
                    next_step="restore the bundle from a copy, or the ledger and measurements that it was made from",
                    spent="nothing more was spent",
                )
            yield
        else:
            yield
            sync(staged)
            staged.rename(target)
            sync(target.parent)
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def ledger_entries(releases: Path) -> dict[str, EntryName]:
    """The ledger's entry that each public bundle below a folder names in its certificate."""
    entries = {}
    for path in sorted(releases.glob(f"*/*/r*/{CERTIFICATE}")):
        with suppress(OSError, ValueError, KeyError, TypeError):  # verification says what is wrong with a bundle
            certificate = json.loads(path.read_text(encoding="utf-8"))
            named = certificate["ledger"]
            entries[str(certificate["release"])] = EntryName(int(named["entry"]), str(named["hash"]))
    return entries


def write_bundle(release: Release, certificate: dict[str, Any], folder: Path) -> None:
    """Write the files of a bundle into an empty folder, durably."""
    write_files(folder, _writers(release, certificate))


def write_files(folder: Path, writers: Mapping[str, Callable[[Path], None]]) -> None:
    """Write named files into a folder, durably."""
    for name, write in writers.items():
        write(folder / name)
        sync(folder / name)


def _writers(release: Release, certificate: dict[str, Any]) -> dict[str, Callable[[Path], None]]:
    tree = release.plan.tree
    areas = areas_table(tree.origin)
    if tree.destination.digest != tree.origin.digest:
        areas = pa.concat_tables([areas, areas_table(tree.destination)])
    return {
        "flows.parquet": lambda path: write_parquet(flows_table(release), path),
        "flows.csv": lambda path: write_csv(release.flows, path),
        "noisy_measurements.parquet": lambda path: write_batches(
            path, MEASUREMENT_SCHEMA, measurement_batches(release), compression="zstd"
        ),
        "areas.parquet": lambda path: write_parquet(areas, path),
        "areas.csv": lambda path: write_csv(areas.to_pandas(), path),
        CERTIFICATE: lambda path: write_json(certificate, path),
    }


def write_parquet(table: pa.Table, path: Path) -> None:
    """A public table; the same bytes at every call."""
    pq.write_table(table, path, compression="zstd")


def write_csv(table: pd.DataFrame, path: Path) -> None:
    """A public table as RFC 4180 has it, in UTF-8."""
    table.to_csv(path, index=False, lineterminator="\r\n", encoding="utf-8")


def write_json(content: dict[str, Any], path: Path) -> None:
    """Facts with sorted names."""
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def differing_files(made: Path, public: Path) -> list[str]:
    """Names of the files that differ between two bundles; of the certificates, the software may."""
    names = {file.name for file in (*made.iterdir(), *public.iterdir())} - {CERTIFICATE}
    changed = sorted(name for name in names if not _same(made / name, public / name))
    if not _certificates_agree(made / CERTIFICATE, public / CERTIFICATE):
        changed.append(CERTIFICATE)
    return changed


def _same(file: Path, public: Path) -> bool:
    """The same bytes; or, where a later version of the software writes Parquet otherwise, the same table."""
    if not (file.exists() and public.exists()):
        return False
    if file.read_bytes() == public.read_bytes():
        return True
    if file.suffix != ".parquet" or _software(file) == _software(public):
        return False
    try:
        return bool(pq.read_table(file).equals(pq.read_table(public)))
    except (pa.ArrowException, OSError):
        return False


def _software(parquet: Path) -> str:
    """The program that wrote a Parquet file."""
    try:
        return str(pq.ParquetFile(parquet).metadata.created_by)
    except (pa.ArrowException, OSError):
        return ""


def _certificates_agree(made: Path, public: Path) -> bool:
    """Equal but for the software; a certificate that another version of this library wrote keeps its own sentences.

    Numbers stay as they are in any version; how they are put into words may change, and facts may be added.
    """
    new, old = _content(made), _content(public)
    if new is None or old is None:
        return False
    versions = [content.pop("software", {}).get("od-release") for content in (new, old)]
    if versions[0] == versions[1]:
        return new == old
    return all(new.get(name) == fact for name, fact in old.items() if name not in _SENTENCES)


def _content(path: Path) -> dict[str, Any] | None:
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content
