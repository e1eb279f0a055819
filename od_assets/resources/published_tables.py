"""Load the tables of published bundles for assets downstream, which name them by asset key."""

from collections.abc import Callable, Sequence, Set
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb

from od_assets.failures import convert_errors_to_failures
from od_assets.series.partitions import SINGLE, list_partition_keys
from od_core.errors import OdError
from od_core.files.duckdb_session import make_parquet_sql, quote_literal
from od_core.periods import LENGTHS, Period
from od_core.publication.bundle_files import locate_table
from od_core.publication.columns import PERIOD
from od_core.published.opening import find_bundle_folders
from od_core.registry import refuse_unknown

TABLES_KEY = "od_tables"
"""Key of the resource, an IO manager, that loads published tables."""

_AS: dict[str, Callable[[duckdb.DuckDBPyRelation], object]] = {
    "pandas.DataFrame": lambda rows: rows.to_arrow_table().to_pandas(),
    "polars.DataFrame": lambda rows: rows.pl(),
    "polars.LazyFrame": lambda rows: rows.pl().lazy(),
    "pyarrow.Table": lambda rows: rows.to_arrow_table(),
    "duckdb.DuckDBPyRelation": lambda rows: rows,
}
"""Functions that convert a DuckDB relation, by the package and the name of the type that a consumer asks for."""


class PublishedTables(dg.ConfigurableIOManager):
    """An IO manager that loads tables of published bundles, and stores nothing.

    It reads Parquet files of public bundles alone, so it cannot load a confidential asset. The key of a table is the
    name of its series, ``_``, and the name of its file: ``us_flights_flows``; below the prefix of the project, if any.
    """

    folder: str
    """Folder of all public bundles."""

    def handle_output(self, context: dg.OutputContext, _value: object) -> None:
        """Refuse to store the value of an asset, because only a release publishes tables."""
        with convert_errors_to_failures():
            step = f"give {context.asset_key.to_user_string()} another IO manager"
            raise OdError("OD-TABLE-PUBLISHED", f"{TABLES_KEY} loads tables and stores none", next_step=step)

    def load_input(self, context: dg.InputContext) -> object:
        """Return the published rows of partitions as the type of the consumer's argument; see :meth:`load`."""
        partitions = context.asset_partition_keys if context.has_asset_partitions else None
        every = _find_period_length(context.asset_partitions_def, partitions[0]) if partitions else None
        with convert_errors_to_failures():
            return self.load(context.asset_key, partitions, context.dagster_type.typing_type, every)

    def load(
        self, key: dg.AssetKey, partitions: Sequence[str] | None = None, kind: Any = Any, every: str | None = None
    ) -> Any:
        """Return the published rows of a table as a type, or a pandas data frame: the file after a column ``period``.

        Each partition is read from its newest revision. Of several, those that are not published are left out; without
        ``partitions``, all published periods are read. ``every`` is the length of the series' periods, as in its
        declaration; a series that had another length before has periods that begin with the same partition.

        Raises:
            OdError: no bundle of any of the partitions has such a table, no table can be loaded as that type, or the
                periods are of several lengths, so that their trips would be counted twice.
        """
        name = "_".join(key.path)
        type_name = _name_type(kind)
        step = "annotate the argument so"
        refuse_unknown("type of tables", type_name, tuple(_AS), code="OD-TABLE-TYPE", next_step=step)
        asked = None if partitions is None else set(partitions)
        files = self._find_files(name, asked, every)
        if not files:
            which = f" of {', '.join(sorted(asked)[:3])}" if asked else ""
            step = "release the period, or correct the key, which is the series and the file: us_flights_flows"
            raise OdError("OD-TABLE-UNPUBLISHED", f"no published bundle has the table {name}{which}", next_step=step)
        if len({Period(period).length for period in files}) > 1:
            message = f"{name} is published by periods of several lengths: {', '.join(sorted(files)[:3])}"
            step = "declare the asset with the partitions of its series, or pass the length of the periods as every"
            raise OdError("OD-TABLE-LENGTHS", message, next_step=step)
        each = (
            f"SELECT {quote_literal(period)} AS {PERIOD.name}, * FROM {make_parquet_sql(file)}"  # noqa: S608  # quoted
            for period, file in files.items()
        )
        return _AS[type_name](duckdb.connect().sql(" UNION ALL BY NAME ".join(each)))

    def _find_files(self, name: str, partitions: Set[str] | None, every: str | None) -> dict[str, Path]:
        """Return the files of a published table by period; only those of some partitions, unless these are None."""
        files: dict[str, Path] = {}
        # The newest revision of a period is last.
        for release, folder in find_bundle_folders(Path(self.folder)).items():
            table = f"{name.removeprefix(f'{release.release}_')}.parquet"
            file = locate_table(folder, table)
            is_named = name.startswith(f"{release.release}_") and "/" not in table and file.is_file()
            if is_named and (partitions is None or partitions & list_partition_keys(release.period, every)):
                files[release.period] = file
        return files


def _name_type(annotation: Any) -> str:
    """Return the package and the name of a type, such as ``polars.DataFrame``; without one, a pandas data frame."""
    if annotation in (Any, None):
        return "pandas.DataFrame"
    package = getattr(annotation, "__module__", "").partition(".")[0].lstrip("_")  # of DuckDB, it is _duckdb
    return f"{package}.{getattr(annotation, '__qualname__', str(annotation))}"


def _find_period_length(definition: dg.PartitionsDefinition, partition: str) -> str | None:
    """Return the length of the periods of a table's partitions, as in a declaration; None if no series has it."""
    if not isinstance(definition, dg.TimeWindowPartitionsDefinition):
        return SINGLE
    window = definition.time_window_for_partition_key(partition)
    first, end = window.start.date(), window.end.date()
    return next((length for length in LENGTHS if Period.from_day(first, length).end == end), None)
