"""Check inputs with Great Expectations."""

import gc
import math
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa

from od_core.extras import require
from od_core.files import durable
from od_core.files.duckdb_session import make_parquet_sql, open_scratch_database
from od_core.publication.templates import render_template
from od_core.records.faults import IS_USER_ID, IS_WEIGHT, WEIGHT
from od_core.records.segments import Breakdown, name_segment_column

ZONES, DESTINATIONS = "zones", "destinations"
"""Names of SQL tables of listed codes: ``destinations`` for destinations, ``zones`` for origins and stops."""


class RecordFault(NamedTuple):
    """A kind of fault of records."""

    column: str
    """Column that may have the fault."""
    is_faulty: str
    """SQL condition of a faulty record."""
    among: str
    """SQL argument of ``count`` for the records that could have the fault: a column, or ``*`` for all records."""


def list_record_faults(columns: Sequence[str], breakdowns: Sequence[Breakdown] = ()) -> dict[str, RecordFault]:
    """Return the kinds of faults that records with these columns may have, by name.

    The SQL conditions name tables of :func:`make_code_tables`.
    A missing or unlisted category is a fault only if the breakdown has no category for such records.
    """
    faults = {
        "outside_period": RecordFault("in_period", "NOT in_period", "in_period"),
        "weight_missing": RecordFault(WEIGHT, f"NOT {IS_WEIGHT}", "*"),
        "user_missing": RecordFault("user", f"regexp_matches(\"user\", '{IS_USER_ID}') IS NOT TRUE", "*"),
    }
    for code in _list_code_columns(columns):
        faults[f"{code}_missing"] = RecordFault(code, f"{code} IS NULL", "*")
        faults[f"{code}_unlisted"] = RecordFault(code, f"{code} NOT IN (FROM {choose_code_table(code)})", code)
    for breakdown in breakdowns:
        if breakdown.unknown is None:
            column = name_segment_column(breakdown.name)
            is_category = f'"{column}" IN (FROM {_name_category_table(breakdown)})'
            faults[f"{column}_not_a_category"] = RecordFault(column, f"({is_category}) IS NOT TRUE", "*")
    return {name: fault for name, fault in faults.items() if fault.column in columns}


def _name_category_table(breakdown: Breakdown) -> str:
    """Return the name of the SQL table that lists the categories of a breakdown."""
    return f"categories_of_{breakdown.name}"


def make_code_tables(
    zones: Sequence[str], destinations: Sequence[str], breakdowns: Sequence[Breakdown]
) -> dict[str, Sequence[str]]:
    """Return the codes that each SQL table of listed codes has, by the name of the table.

    The conditions of :func:`list_record_faults` refer to these tables, whose one column is ``code``.
    """
    categories = {_name_category_table(breakdown): breakdown.categories for breakdown in breakdowns}
    return {ZONES: zones, DESTINATIONS: destinations, **categories}


def _list_code_columns(columns: Sequence[str]) -> list[str]:
    """Return the columns of zone codes: origin, destination, and those of ``columns`` that are stops."""
    return ["origin", "destination", *(name for name in columns if re.fullmatch(r"stop_[0-9]+", name))]


def choose_code_table(code: str) -> str:
    """Return the name of the SQL table that lists the valid codes of a column."""
    return DESTINATIONS if code == "destination" else ZONES


def check_record_expectations(
    records: Path,
    zones: Sequence[str],
    fault_threshold: Fraction,
    docs: Path,
    *,
    destinations: Sequence[str] | None = None,
    breakdowns: Sequence[Breakdown] = (),
) -> dict[str, bool]:
    """Check the schema of the records, and that each kind of fault stays within the allowed share.

    Args:
        records: confidential Parquet file with the columns date, origin, destination, any stops, in_period, and trips
            for flows, weight for weights, user if users are the privacy unit. It may be larger than the memory.
        zones: codes of the listed zones.
        fault_threshold: allowed share of faulty records. It is not applied to flows, because one row may be many trips:
            only their schema is checked here, and the step that counts trips checks their faults.
        docs: confidential folder of the page of the results.
        destinations: codes of the destination zones; None if they are the same as ``zones``.
        breakdowns: breakdowns of the release; the records have a column of the categories of each.

    Returns:
        Whether each expectation is met, by its type and column.
    """
    gxe = import_expectations()
    lists = make_code_tables(zones, zones if destinations is None else destinations, breakdowns)
    summary = _summarise_records(records, lists, fault_threshold, breakdowns)
    is_flows = "trips" in summary.columns
    columns = ["date", *_list_code_columns(list(summary.columns)), "in_period"]
    columns += [name for name in ("trips", "size", WEIGHT, "user") if name in summary.columns]
    columns += [name_segment_column(breakdown.name) for breakdown in breakdowns]
    faults = list(list_record_faults(columns, breakdowns))
    expected = [gxe.ExpectTableColumnCountToEqual(value=len(columns) + (0 if is_flows else len(faults)))]
    expected += [gxe.ExpectColumnToExist(column=column) for column in columns]
    if not is_flows:
        expected += [gxe.ExpectColumnValuesToBeBetween(column=name, max_value=0) for name in faults]
    return _check_table("raw_records", summary, expected, docs, confidential=True)


def check_flow_expectations(
    flows: pd.DataFrame, origins: Sequence[str], destinations: Sequence[str], docs: Path
) -> dict[str, bool]:
    """Check that a table of flows has listed codes, unique pairs and whole numbers of trips of at least 1.

    Return whether each expectation is met, by its type and column.

    Args:
        flows: table with five columns, of which origin, destination and trips are checked.
        origins: codes of the listed origin zones.
        destinations: codes of the listed destination zones.
        docs: public folder of the page of the results.
    """
    gxe = import_expectations()
    # Great Expectations copies a set of values hundreds of times, so it does not get the lists of zones.
    sides = {"origin": origins, "destination": destinations}
    listed_columns = {f"{side}_is_listed": flows[side].isin(codes) for side, codes in sides.items() if side in flows}
    expected = [
        gxe.ExpectTableColumnCountToEqual(value=5),
        *(gxe.ExpectColumnToExist(column=column) for column in ("origin", "destination", "trips")),
        gxe.ExpectColumnValuesToBeInSet(column="origin_is_listed", value_set=[True]),
        gxe.ExpectColumnValuesToBeInSet(column="destination_is_listed", value_set=[True]),
        gxe.ExpectCompoundColumnsToBeUnique(column_list=["origin", "destination"]),
        gxe.ExpectColumnValuesToNotBeNull(column="trips"),
        gxe.ExpectColumnValuesToBeOfType(column="trips", type_="int64"),
        gxe.ExpectColumnValuesToBeBetween(column="trips", min_value=1),
    ]
    return _check_table("published_flows", flows.assign(**listed_columns), expected, docs, confidential=False)


def _summarise_records(
    records: Path, lists: Mapping[str, Sequence[str]], fault_threshold: Fraction, breakdowns: Sequence[Breakdown]
) -> pd.DataFrame:
    """Return a table with one row: the columns of the records, all empty, and one column for each kind of fault.

    The value of a fault's column is the number of faulty records above the allowed number, at least 0. If a column of
    the records is missing, the columns of its faults are missing too, so the expectations fail. Flows have no columns
    of faults. ``lists`` are the tables of :func:`make_code_tables`.
    """
    with open_scratch_database(records.parent, records) as connection:
        source = connection.sql(f"FROM {make_parquet_sql(records)}")
        summary: dict[str, object] = dict.fromkeys(source.columns)
        kinds = list_record_faults(list(summary), breakdowns)
        if kinds and "trips" not in summary:
            for name, codes in lists.items():
                connection.register(name, pa.table({"code": pa.array(codes, pa.string())}))
            faulty_sql = ", ".join(f"count(*) FILTER (WHERE {fault.is_faulty})" for fault in kinds.values())
            among_sql = ", ".join(f"count({fault.among})" for fault in kinds.values())
            counts = source.aggregate(f"{faulty_sql}, {among_sql}").fetchall()[0]
            for name, faulty, among in zip(kinds, counts[: len(kinds)], counts[len(kinds) :], strict=True):
                summary[name] = max(0, faulty - math.floor(fault_threshold * among))
    return pd.DataFrame([summary])


def import_expectations() -> Any:
    """Import the Great Expectations module of expectations, without usage statistics, and return it.

    The import takes two seconds. It leaves out PySpark, which is not used here, and suspends garbage collection, which
    would add a fifth to the time. Raises OdError if Great Expectations is not installed.
    """
    require("checks")
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    hides_spark = "pyspark" not in sys.modules
    collects_garbage = gc.isenabled()
    if hides_spark:
        sys.modules["pyspark"] = None  # type: ignore[assignment]  # so that its import fails
    gc.disable()
    try:
        with _defer_imports("altair", "scipy.stats"):  # of expectations that are not checked; a second to import
            import great_expectations.expectations as gxe
    finally:
        if hides_spark:
            del sys.modules["pyspark"]
        if collects_garbage:
            gc.enable()
    return gxe


@contextmanager
def _defer_imports(*names: str) -> Iterator[None]:
    """Let modules that are imported in this context run only when one of their names is first used."""

    class Finder:  # Python asks the entries of sys.meta_path how to import a module
        @staticmethod
        def find_spec(name: str, path: Sequence[str] | None = None, _target: object = None) -> ModuleSpec | None:
            spec = PathFinder.find_spec(name, path) if name in names else None
            if spec is not None and spec.loader is not None:
                spec.loader = LazyLoader(spec.loader)
            return spec

    sys.meta_path.insert(0, Finder)
    try:
        yield
    finally:
        sys.meta_path.remove(Finder)


def _check_table(
    name: str, frame: pd.DataFrame, expected: list[Any], docs: Path, *, confidential: bool
) -> dict[str, bool]:
    """Check a table, write the page of the results, and return whether each expectation is met, by name."""
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False, metric_calculations=False)
    table = context.data_sources.add_pandas(name).add_dataframe_asset(name)
    batch = table.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": frame})
    outcome = batch.validate(gx.ExpectationSuite(name, expectations=expected), result_format="BOOLEAN_ONLY")
    met: dict[str, bool] = {}
    rows = []
    for result in outcome.results:
        config: Any = result.expectation_config
        settings = {setting: value for setting, value in config.kwargs.items() if setting != "batch_id"}
        column = settings.pop("column", name)
        settings_text = ", ".join(f"{setting}: {value}" for setting, value in settings.items())
        rows.append((config.type, column, settings_text, bool(result.success)))
        expectation = f"{config.type}: {column}"  # several with other settings count as one, which all must meet
        met[expectation] = met.get(expectation, True) and bool(result.success)
    _write_results_page(name, rows, docs, confidential=confidential)
    return met


def _write_results_page(name: str, rows: Sequence[tuple[object, ...]], docs: Path, *, confidential: bool) -> None:
    """Write the page of the results of a check. A row has the expectation, its column, its settings and its result."""
    page = render_template("expectations.html", name=name, confidential=confidential, results=rows).encode()
    durable.make_folder(docs, durable.CONFIDENTIAL_FOLDER_MODE if confidential else durable.PUBLIC_FOLDER_MODE)
    mode = durable.CONFIDENTIAL_FILE_MODE if confidential else durable.PUBLIC_FILE_MODE
    durable.write_durably(docs / f"{name}.html", lambda file: file.write_bytes(page), mode=mode)
