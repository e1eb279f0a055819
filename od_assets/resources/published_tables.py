"""Load the tables of published bundles for assets downstream, which name them by asset key."""

from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb

from od_assets.failures import convert_errors_to_failures
from od_assets.series.partitions import PERIODS, SERIES, SINGLE, list_partition_keys, split_partition_key
from od_core.errors import OdError
from od_core.files.duckdb_session import make_parquet_sql, quote_literal
from od_core.periods import LENGTHS, Period
from od_core.publication.bundle_files import locate_table
from od_core.publication.columns import PERIOD
from od_core.published.opening import find_bundle_folders
from od_core.registry import refuse_unknown

TABLES_KEY = "od_tables"
"""Key of the resource, an IO manager, that loads published tables."""

_CONVERTERS: dict[str, Callable[[duckdb.DuckDBPyRelation], object]] = {
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
        """Return the published rows of the requested partitions, as the annotated type of the consumer's argument.

        Raises dg.Failure with the text of an OdError of :meth:`load`.
        """
        partitions = context.asset_partition_keys if context.has_asset_partitions else None
        every = _find_period_length(context.asset_partitions_def, partitions[0]) if partitions else None
        with convert_errors_to_failures():
            return self.load(context.asset_key, partitions, context.dagster_type.typing_type, every)

    def load(
        self, key: dg.AssetKey, partitions: Sequence[str] | None = None, kind: Any = Any, every: str | None = None
    ) -> Any:
        """Return the published rows of a table: a column ``period``, then the columns of its file.

        If several series share the asset, a column ``series`` follows the period. Each period is read from its newest
        revision. Partitions that are not published are left out.

        Args:
            key: asset key of the table.
            partitions: partition keys of the periods; None for all published periods.
            kind: type of the result; by default, a pandas data frame.
            every: length of the series' periods, as in its declaration. It is needed if the series had another length
                before, because periods of both begin with the same partition.

        Raises:
            OdError: no bundle of any of the partitions has such a table, no table can be loaded as that type, or the
                periods are of several lengths, so that their trips would be counted twice.
        """
        name = "_".join(key.path)
        type_name = _name_type(kind)
        step = "annotate the argument so"
        refuse_unknown("type of tables", type_name, tuple(_CONVERTERS), code="OD-TABLE-TYPE", next_step=step)
        files = self._find_files(_group_partitions(key, partitions), every)
        if not files:
            which = f" of {', '.join(sorted(partitions)[:3])}" if partitions else ""
            step = "release the period, or correct the key, which is the series and the file: us_flights_flows"
            raise OdError("OD-TABLE-UNPUBLISHED", f"no published bundle has the table {name}{which}", next_step=step)
        periods = sorted({period for _, period in files})
        if len({Period(period).length for period in periods}) > 1:
            message = f"{name} is published by periods of several lengths: {', '.join(periods[:3])}"
            step = "declare the asset with the partitions of its series, or pass the length of the periods as every"
            raise OdError("OD-TABLE-LENGTHS", message, next_step=step)
        each = (
            f"SELECT {quote_literal(period)} AS {PERIOD.name}, "  # noqa: S608  # quoted
            + (f"{quote_literal(series)} AS {SERIES}, " if series else "")
            + f"* FROM {make_parquet_sql(file)}"
            for (series, period), file in files.items()
        )
        return _CONVERTERS[type_name](duckdb.connect().sql(" UNION ALL BY NAME ".join(each)))

    def _find_files(
        self, asked: Mapping[tuple[str, str], Set[str] | None], every: str | None
    ) -> dict[tuple[str, str], Path]:
        """Return the file of the newest revision of each published table, by its series and period.

        ``asked`` is as :func:`_group_partitions` returns it, and the series is the one that it names.
        """
        files: dict[tuple[str, str], Path] = {}
        # The newest revision of a period is last.
        for release, folder in find_bundle_folders(Path(self.folder)).items():
            for (name, series), periods in asked.items():
                if name.startswith(f"{release.release}_"):
                    table = f"{name.removeprefix(f'{release.release}_')}.parquet"
                    file = locate_table(folder, table)
                    is_asked = periods is None or periods & list_partition_keys(release.period, every)
                    if is_asked and "/" not in table and file.is_file():
                        files[series, release.period] = file
        return files


def _group_partitions(key: dg.AssetKey, partitions: Sequence[str] | None) -> dict[tuple[str, str], set[str] | None]:
    """Return the partition keys of periods, by a table's name and the stated name of its series; None for all periods.

    An asset that several series share has a table for each of them. For other assets, the name of the series is empty.
    """
    if partitions is None:
        return {("_".join(key.path), ""): None}
    asked: dict[tuple[str, str], set[str] | None] = {}
    for partition in partitions:
        period, series = split_partition_key(partition)
        path = [*key.path[:-1], f"{series}_{key.path[-1].rpartition('_')[2]}"] if series else key.path
        table = "_".join(path), series
        asked[table] = (asked.get(table) or set()) | {period}
    return asked


def _name_type(annotation: Any) -> str:
    """Return the package and the name of a type, such as ``polars.DataFrame``; ``pandas.DataFrame`` for Any or None."""
    if annotation in (Any, None):
        return "pandas.DataFrame"
    package = getattr(annotation, "__module__", "").partition(".")[0].lstrip("_")  # of DuckDB, it is _duckdb
    return f"{package}.{getattr(annotation, '__qualname__', str(annotation))}"


def _find_period_length(definition: dg.PartitionsDefinition, partition: str) -> str | None:
    """Return the length of the periods of a table's partitions, as in a declaration; None if it is no known length.

    ``partition`` is any partition key of the definition.
    """
    if isinstance(definition, dg.MultiPartitionsDefinition):
        definition = next(part.partitions_def for part in definition.partitions_defs if part.name == PERIODS)
    if not isinstance(definition, dg.TimeWindowPartitionsDefinition):
        return SINGLE
    window = definition.time_window_for_partition_key(split_partition_key(partition)[0])
    first, end = window.start.date(), window.end.date()
    return next((length for length in LENGTHS if Period.from_day(first, length).end == end), None)
