"""Files: what a certificate states is there, other readers open it, verifiers agree, and neighbours leave no trace."""

import csv
import hashlib
import importlib.util
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from types import ModuleType
from zipfile import ZipFile

import duckdb
import pyogrio
import tables
from jsonschema import Draft202012Validator

from od_core import OdError
from od_core.meaning.features import list_possible_formats
from od_core.publication.bundle import list_bundle_tables
from od_core.published.documents import data_contract
from od_core.published.verification import verify_release
from tests.matrix.damaged import PARTS, damaged
from tests.matrix.declared import OTHER_SERIES, kind_of
from tests.matrix.findings import Finding
from tests.matrix.made import Bundle, Made, fixed_noise, of_neighbour
from tests.matrix.pages import Page
from tests.matrix.readers import workbook_rows

_SECOND_VERIFIER = Path(__file__).parents[2] / "docs" / "verify_spending.py"
_PLACES = {
    "csv": "tables/*.csv", "gis": "gis/*", "omx": "omx/*", "sdmx": "sdmx/*", "spreadsheet": "spreadsheet/*"
}  # fmt: skip


def stated_formats(made: Made, _: list[Page]) -> Iterator[Finding]:
    """Yield each format that a certificate states and the bundle lacks, and the reverse."""
    for name, bundle in made.bundles.items():
        stated = set(bundle.facts.get("formats", ()))
        there = {form for form, pattern in _PLACES.items() if any(bundle.folder.glob(pattern))}
        for form in sorted(stated - there):
            yield Finding(f"{name}/certificate.json", f"the format {form} is stated, and has no file")
        for form in sorted(there - stated):
            yield Finding(f"{name}/certificate.json", f"the format {form} is not stated, and has files")


def accepted_formats(made: Made, _: list[Page]) -> Iterator[Finding]:
    """Yield each format that a plan accepts and that has no file, and each that it refuses and that would have one."""
    plan, stated = made.main.release.plan, {**made.main.facts, "formats": [*_PLACES]}
    accepted = list_possible_formats(plan.table, plan.features)
    names = [file.name for file in list_bundle_tables(kind_of(made.row), made.main.release, stated)]  # type: ignore[arg-type]
    for form, pattern in _PLACES.items():
        if (form in accepted) != any(PurePath(name).match(pattern) for name in names):
            what = "is accepted, and has no file" if form in accepted else "is refused, and would have a file"
            yield Finding("release/certificate.json", f"the format {form} {what}")


def names_of_files(made: Made, _: list[Page]) -> Iterator[Finding]:
    """Yield each file of counts that is called flows, but for Parquet and SDMX, whose columns are those of flows."""
    if made.row["kind"] == "counts":
        for name, bundle in made.bundles.items():
            for file, path in bundle.files().items():
                if "flows" in path.name and path.suffix != ".parquet" and path.parent.name != "sdmx":
                    yield Finding(f"{name}/{file}", "a file of counts is called flows")


def foreign_readers(made: Made, _: list[Page]) -> Iterator[Finding]:
    """Yield each file that another reader than its writer cannot open, or that has other rows than Parquet has."""
    for name, bundle in made.bundles.items():
        for file, path in bundle.files().items():
            try:
                for fault in _read(bundle, path):
                    yield Finding(f"{name}/{file}", fault)
            except Exception as error:  # noqa: BLE001  # whatever a reader raises is a finding
                yield Finding(f"{name}/{file}", "a reader fails", repr(error))


def _read(bundle: Bundle, path: Path) -> Iterator[str]:
    """Yield the faults of a file, as a reader of its own format finds them."""
    reader = _READERS.get(path.name) or _READERS.get(path.suffix)
    if reader is not None:
        yield from reader(bundle, path)


def _pair_of(path: Path) -> str | None:
    """Return the condition on flows that a file of one pair of levels has; None for another file."""
    levels = path.stem.removeprefix("flows_").split("_")
    if not path.stem.startswith("flows_") or len(levels) != 2:
        return None
    return f"origin_level = '{levels[0]}' AND destination_level = '{levels[1]}'"


def _parquet_faults(_: Bundle, path: Path) -> Iterator[str]:
    duckdb.sql(f"SELECT count(*) FROM '{path}'").fetchall()
    yield from ()


def _csv_faults(bundle: Bundle, path: Path) -> Iterator[str]:
    if path.parent.name != "tables":
        return
    rows = [*csv.DictReader(path.read_text(encoding="utf-8").splitlines())]
    twin, pair = path.with_suffix(".parquet"), _pair_of(path)
    if pair and "trips" in rows[0]:
        if _sums(bundle, pair) != (len(rows), sum(int(row["trips"]) for row in rows)):
            yield "other rows than flows.parquet"
    elif twin.is_file() and duckdb.sql(f"SELECT count(*) FROM '{twin}'").fetchall() != [(len(rows),)]:
        yield "other rows than its Parquet file"


def _matrix_faults(bundle: Bundle, path: Path) -> Iterator[str]:
    with tables.open_file(str(path)) as file:
        matrix, pair = file.root.data.trips[:], _pair_of(path)
        if pair and _sums(bundle, pair)[1] != int(matrix.sum()):
            yield "another sum than flows.parquet"


def _workbook_faults(bundle: Bundle, path: Path) -> Iterator[str]:
    for sheet, rows in workbook_rows(path).items():
        pair = _pair_of(Path(f"flows_{sheet}"))
        if pair and "trips" in rows[1] and _sums(bundle, pair)[0] != len(rows) - 2:
            yield "a sheet has other rows than flows.parquet"


def _features(path: Path) -> list[object]:
    return json.loads(path.read_text(encoding="utf-8"))["features"]  # type: ignore[no-any-return]


def _geojson_faults(_: Bundle, path: Path) -> Iterator[str]:
    if not _features(path):
        yield "no features"


def _geopackage_faults(_: Bundle, path: Path) -> Iterator[str]:
    ((layer, _kind),) = pyogrio.list_layers(path)
    with closing(sqlite3.connect(path)) as database:
        ((rows_there,),) = database.execute(f'SELECT count(*) FROM "{layer}"').fetchall()
    twin = path.with_suffix(".geojson")
    if twin.is_file() and len(_features(twin)) != rows_there:
        yield "other rows than the GeoJSON file"


def _certificate_faults(bundle: Bundle, path: Path) -> Iterator[str]:
    schema = json.loads(bundle.file("certificate.schema.json").read_text(encoding="utf-8"))
    for error in Draft202012Validator(schema).iter_errors(json.loads(path.read_text(encoding="utf-8"))):
        yield f"does not fit its schema: {error.message[:100]}"


def _checksum_faults(bundle: Bundle, path: Path) -> Iterator[str]:
    listed = dict(line.split("  ", 1)[::-1] for line in path.read_text(encoding="utf-8").splitlines())
    there = {file: hashlib.sha256(one.read_bytes()).hexdigest() for file, one in bundle.files().items()}
    if listed != {file: digest for file, digest in there.items() if file != path.name}:
        yield "other checksums than those of the files"
    with ZipFile(bundle.folder.with_name(f"{bundle.folder.name}.zip")) as archive:
        if {name.split("/", 1)[1] for name in archive.namelist()} != {*there}:
            yield "other files than in the zip file"


def _sums(bundle: Bundle, where: str) -> tuple[int, int]:
    """Return the number of rows of some flows, and of their trips."""
    table = bundle.file("tables/flows.parquet")
    ((rows, trips),) = duckdb.sql(f"SELECT count(*), coalesce(sum(trips), 0) FROM '{table}' WHERE {where}").fetchall()
    return rows, int(trips)


def _package_faults(bundle: Bundle, path: Path) -> Iterator[str]:
    """Yield the faults of a data package: files that are absent or not listed, and other columns than in CSV files."""
    resources = {one["path"]: one for one in json.loads(path.read_text(encoding="utf-8"))["resources"]}
    for file in {*bundle.files()} - {*resources} - {"datapackage.json", "SHA256SUMS"}:
        yield f"a file is not listed: {file}"
    named = {one["name"] for one in resources.values()}
    for file, one in resources.items():
        for key in one.get("schema", {}).get("foreignKeys", ()):
            if key["reference"]["resource"] not in named:
                yield f"a foreign key leads to no resource: {key['reference']['resource']}"
        if not bundle.file(file).is_file():
            yield f"a file is listed, and not there: {file}"
        elif "schema" in one and file.endswith((".csv", ".parquet")):
            fields = one["schema"]["fields"]
            options = ", all_varchar = true, header = true" if file.endswith(".csv") else ""
            rows = duckdb.sql(f"FROM read_{file.rpartition('.')[2]}('{bundle.file(file)}'{options})")
            if file.endswith(".csv") and rows.columns != [field["name"] for field in fields]:
                yield "a CSV file has other columns than the data package"
            required = [field["name"] for field in fields if field.get("constraints", {}).get("required")]
            tests = [f"bool_or(coalesce(CAST(\"{name}\" AS VARCHAR), '') = '')" for name in required]
            for name, is_empty in zip(required, rows.aggregate(", ".join(tests)).fetchall()[0], strict=True):
                if is_empty:
                    yield f"a required field is empty: {name}"


_READERS: dict[str, Callable[[Bundle, Path], Iterator[str]]] = {
    ".parquet": _parquet_faults,
    ".csv": _csv_faults,
    ".omx": _matrix_faults,
    ".xlsx": _workbook_faults,
    ".geojson": _geojson_faults,
    ".gpkg": _geopackage_faults,
    "certificate.json": _certificate_faults,
    "datapackage.json": _package_faults,
    "SHA256SUMS": _checksum_faults,
}
"""Functions that read a file with another reader than its writer, by the end of its name or the name."""


def contracts(made: Made, _: list[Page]) -> Iterator[Finding]:
    """Yield each table of a data contract that is not in the file, or not at the server, that the contract names."""
    for name, bundle in made.bundles.items():
        contract = data_contract(bundle.folder)
        names = {one["name"] for one in contract["schema"]}
        for one in contract["schema"]:
            path = one["physicalName"]
            servers = {server["path"].format(model=one["name"]) for server in contract["servers"]}
            if path not in servers or not bundle.file(path).is_file():
                yield Finding(f"{name}/contract", "a table is not where the contract says", path)
            for at in (end for relation in one["relationships"] for end in relation["to"]):
                if at.rpartition(".")[0] not in names:
                    yield Finding(f"{name}/contract", "a relationship leads to no table", at)


def verified(made: Made, _: list[Page]) -> Iterator[Finding]:
    """Yield each fault that one of the two verifiers finds in a bundle."""
    with fixed_noise():
        for name, bundle in made.bundles.items():
            if name == "other":  # of another ledger
                continue
            try:
                for found in verify_release(made.place(bundle)):
                    if found.fault is not None:
                        yield Finding(f"{name}/verify", f"{found.part} is not verified", found.fault[:160])
            except Exception as error:  # noqa: BLE001  # a verification that ends with an error is a finding
                yield Finding(f"{name}/verify", f"the verification ends with {type(error).__name__}", str(error)[:160])
    own = {str(one.key.folder): one.facts for one in made.bundles.values() if one.key.release != OTHER_SERIES}
    second = _second_verifier()
    with redirect_stdout(StringIO()):  # it prints the balances
        entries = second.ledger_entries(made.root / "ledger.sqlite")
        faults = [
            line for look in (second.chain_faults, second.charge_faults, second.cap_faults) for line in look(entries)
        ]
        faults += second.certificate_faults(entries, own)
    for line in faults:
        yield Finding("release/verify_spending.py", "the second verifier finds a fault", line)


def damage(made: Made, _: list[Page]) -> Iterator[Finding]:
    """Yield each part of a verification that finds nothing, although what it verifies was changed.

    These are rows with few files, and of every kind, because each verification writes all files again.
    """
    if made.row["formats"] != "none":
        return
    derived = "sum" if "sum" in made.bundles else "assisted"
    for name, what in [*(("release", what) for what in PARTS), (derived, "files")]:
        if name in made.bundles:
            with TemporaryDirectory() as folder, fixed_noise():
                place = damaged(made.place(made.bundles[name]), Path(folder), what)
                found = {one.part for one in verify_release(place) if one.fault is not None}
            for part in PARTS[what]:
                if part not in found:
                    yield Finding(f"{name}/verify", f"the part {part} does not find changed {what}")


@cache
def _second_verifier() -> ModuleType:
    spec = importlib.util.spec_from_file_location("verify_spending", _SECOND_VERIFIER)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(_SECOND_VERIFIER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def neighbours(made: Made, _: list[Page]) -> Iterator[Finding]:
    """Yield each public file that differs if one unit of the records differs, and the noisy values do not."""
    with TemporaryDirectory() as folder:
        try:
            other = of_neighbour(made, Path(folder))
        except OdError as error:
            yield Finding("release/neighbour", "the records of a neighbour are refused", str(error)[:160])
            return
        mine, theirs = made.main.files(), other.files()
        for file in sorted({*mine} | {*theirs}):
            if file not in mine or file not in theirs or mine[file].read_bytes() != theirs[file].read_bytes():
                yield Finding(f"release/{file}", "differs between neighbours with the same noisy values")
