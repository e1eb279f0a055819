"""Invent records of a series from its public lists alone: for development, tests and staging, which see no real ones.

Nothing is read but public lists, so invented records say nothing about real ones. A file :data:`MARK` beside invented
records has their names and digests, so real records are told from them.
"""

import glob
import os
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from od_assets.series.reading import list_series, read_series
from od_assets.series.series import Series
from od_core.errors import OdError
from od_core.evaluation.forecast import make_synthetic_table
from od_core.evaluation.known_flows import draw_pareto_numbers
from od_core.files.durable import PUBLIC_FILE_MODE, compute_file_digest, make_folder, write_durably
from od_core.geography.geography import Geography
from od_core.periods import Period
from od_core.records.formats import PointColumns, RecordColumns
from od_core.records.points import make_points

ROWS = 1000
"""Default number of invented records of a period."""

MARK = ".invented"
"""Name of the hidden file that lists the invented records of its folder, as ``sha256sum`` does."""

_PEAK_HOURS = (8, 13, 17.5)
"""Hours of the day around which trips are invented."""

_SPREAD_OF_PEAK = 2.5
"""Standard deviation of the times around a peak, in hours."""

_SIZE_PROBABILITIES = 0.5 ** np.minimum(range(1, 9), 7)
"""Probabilities of the sizes of groups from 1 to 8: each half of the one before; the last two are equal, to sum to 1.
"""


def invent_records(series: Any, period: Period, rows: int = ROWS, seed: int = 0) -> pd.DataFrame:
    """Return invented records of a period, with all columns that are read; the same for the same seed.

    Zones have sizes with heavy tails. Where one list or two of the same depth serve both sides, trips follow the
    gravity model of :func:`od_core.evaluation.forecast.make_synthetic_table`. Some users make many trips.

    Records that are numbers of groups by area and size are one for each such pair with a group, whatever ``rows`` is.

    Raises OdError if a public list cannot be read, or no user ids can be invented.
    """
    columns = series.columns
    generator = np.random.default_rng([seed, period.first.toordinal()])
    geography = series.read_geography()
    times = _draw_times(period, rows, generator)
    if columns.axes:
        values = _draw_coordinates(columns, rows, generator)
    else:
        values = _draw_codes(series, geography, rows, generator)
    trips = np.minimum(generator.geometric(0.5, rows), 3)  # of a record: mostly 1, at most 3
    values |= {columns.date: times, columns.trips: trips, columns.weight: trips}
    users = _draw_by_size(max(rows // 4, 1), rows, generator)  # four trips of a user, on average
    values[columns.user] = _make_user_ids(series.unit.id_pattern or ".*", users)
    values |= _draw_segments(series, times, generator)
    values |= {name: generator.choice(chosen, rows) for name, chosen in series.record_format.categories}
    if columns.size is not None:
        groups = series.grouping.count_groups_per_area(geography, period.days)
        numbers = generator.multinomial(groups, _SIZE_PROBABILITIES)  # they sum to the public numbers of groups
        area, size_index = np.nonzero(numbers)
        zones = np.asarray(geography.zones, dtype=object)
        values = {columns.origin: zones[area], columns.size: size_index + 1, columns.trips: numbers[area, size_index]}
        values[columns.date] = times[0]
    values.pop(None, None)  # None names the columns that are not read
    # Of several published names of a column, the first one is written.
    return pd.DataFrame({name if isinstance(name, str) else name[0]: column for name, column in values.items()})


def _draw_times(period: Period, rows: int, generator: np.random.Generator) -> pd.Series:
    """Return random times in a period, in full seconds: any day, and a time of day near one of the peaks."""
    hours = generator.normal(generator.choice(_PEAK_HOURS, rows), _SPREAD_OF_PEAK) % 24
    seconds = generator.integers(0, period.days, rows) * 86_400 + (hours * 3600).astype(np.int64)
    return pd.Series(np.datetime64(period.first, "s") + seconds.astype("timedelta64[s]"))


def _draw_coordinates(columns: RecordColumns, rows: int, generator: np.random.Generator) -> dict[Any, object]:
    """Return random coordinates in degrees, by column, that are more frequent in the middle of the map."""
    names = (columns.origin, *columns.stops, columns.destination)  # longitude and latitude in turn
    values: dict[Any, object] = {}
    for name, (minimum, maximum, _) in zip(names, cycle(columns.axes), strict=False):
        values[name] = minimum + (maximum - minimum) * generator.beta(2, 2, rows)
    return values


def _draw_segments(series: Any, times: pd.Series, generator: np.random.Generator) -> dict[Any, object]:
    """Return random values for the column of each breakdown; those that are parts of times are the given times."""
    values: dict[Any, object] = {}
    for source, breakdown in zip(series.columns.segments, series.breakdowns, strict=True):
        if source.derive == "number":
            values[source.column] = generator.uniform(source.breaks[0] - 1, source.breaks[-1] + 1, len(times))
        elif source.derive == "text":
            texts = [text for text, _ in source.lookup] or breakdown.categories
            values[source.column] = np.asarray(texts, dtype=object)[_draw_by_size(len(texts), len(times), generator)]
        else:  # parts of times
            values[source.column] = times
    return values


def _draw_codes(series: Any, geography: Any, rows: int, generator: np.random.Generator) -> dict[Any, object]:
    """Return random codes of zones, places or groups, or points in these zones, for each column that locates a trip.

    Origins and destinations of flows follow the gravity model if it fits the geography.
    """
    names = series.columns.codes  # the column, or the columns of points, for origin, destination and each stop
    allowed_origins, allowed_destinations = series.list_allowed_codes(geography)
    allowed = {name: allowed_destinations if name == "destination" else allowed_origins for name in names}
    chosen = {name: _draw_by_size(len(allowed[name]), rows, generator) for name in names}
    origins, destinations = series.split_sides(geography)
    if isinstance(origins, Geography) and names.get("destination") not in (None, names["origin"]):
        with suppress(OdError):  # too few zones, or lists of other depths, for the gravity model
            table = make_synthetic_table(origins, destinations)
            trips = np.diff(table.trips.before)
            ranks = generator.choice(table.trips.rank, rows, p=trips / trips.sum())
            pairs = table.tree.find_leaf_pairs(ranks)
            chosen |= {"origin": pairs.origin, "destination": pairs.destination}
    columns: dict[Any, object] = {}
    for name, column in names.items():
        codes = np.asarray(allowed[name], dtype=object)[chosen[name]]
        if isinstance(column, PointColumns):
            columns |= make_points(column, codes, destinations if name == "destination" else origins)
        else:
            columns[column] = codes
    return columns


def _draw_by_size(number: int, rows: int, generator: np.random.Generator) -> np.ndarray:
    """Return ``rows`` random indices below ``number``, each as often as its random size; sizes have heavy tails."""
    size = draw_pareto_numbers(generator, number, 2)
    return generator.choice(number, rows, p=size / size.sum())


def _make_user_ids(pattern: str, numbers: Iterable[int]) -> list[str]:
    """Return numbers as user ids, padded with zeros to the least width with which all of them match a pattern.

    Raises OdError if no width below 64 does.
    """
    for width in range(64):
        ids = [f"{number:0{width}}" for number in numbers]
        if pc.all(pc.match_substring_regex(pa.array(ids), f"^(?:{pattern})$")).as_py():
            return ids
    message = f"no digits match id_pattern {pattern!r}, so no user ids are invented"
    raise OdError("OD-INVENT", message, next_step="give records")


def list_declared_files(series: Series[Any, Any]) -> list[Path]:
    """Return the files or folders of records of a series that exist, whatever their period."""
    # No path contains a null character, so it marks where a period stands, which begins with its year.
    file = glob.escape(str(series.locate_records_file("\0")))
    return [Path(name) for name in glob.glob(file.replace("\0", "[0-9][0-9][0-9][0-9]*"))]  # noqa: PTH207  # it follows links


def is_invented(file: Path) -> bool:
    """Return whether a file has invented records, unchanged, as the mark in its folder says."""
    mark = file.parent / MARK
    lines = mark.read_text(encoding="utf-8").splitlines() if mark.is_file() else []
    lines_of_file = [line for line in lines if line.endswith(f"  {file.name}")]
    if not file.is_file() or not lines_of_file:
        return False  # without computing the digest of a large file
    return f"{compute_file_digest(file)}  {file.name}" in lines_of_file


def write_invented_records(
    series: Series[Any, Any], period: Period, to: Path | None = None, rows: int = ROWS, seed: int = 0
) -> Path:
    """Write invented records of a period to a file, by default the declared one, and return its path.

    Raises:
        OdError: the file exists; real records are or may be where it would be; or the declaration has an option for
            which no records are invented.
    """
    file = series.locate_records_file(period.text) if to is None else to.absolute()
    _refuse_unsupported(series, file)
    _refuse_real_records(series, file, is_declared=to is None)
    table = invent_records(series, period, rows, seed)
    make_folder(file.parent)
    draft = file.with_name(f".{file.name}.{os.getpid()}.invented")
    try:
        form, write = series.record_format, partial(table.to_parquet, index=False)
        if form.resolve_container(file) == "csv":
            to_csv = partial(table.to_csv, index=False, sep=form.delimiter or ",", encoding=form.text_encoding)
            write = partial(to_csv, compression="gzip" if file.suffix == ".gz" else None)
        write_durably(draft, write, mode=PUBLIC_FILE_MODE)
        os.link(draft, file)  # unlike a renaming, it never replaces a file
    except FileExistsError:
        raise _make_place_error(f"{file} exists") from None
    finally:
        draft.unlink(missing_ok=True)
    mark = file.parent / MARK
    lines = mark.read_text(encoding="utf-8") if mark.is_file() else ""
    text = f"{lines}{compute_file_digest(file)}  {file.name}\n"
    write_durably(mark, lambda path: path.write_text(text, encoding="utf-8"), mode=PUBLIC_FILE_MODE)
    return file


def _refuse_unsupported(series: Series[Any, Any], file: Path) -> None:
    """Raise OdError if a declaration has an option for which no records are invented; the message names the option."""
    unsupported = {
        f"reader: {series.trips.reader}": series.record_format.container in ("lines", "json"),
        "table (of a DuckDB file)": series.record_format.resolve_container(file) == "duckdb",
        f"engine: {getattr(series, 'stated_engine', None)}": not series.records_are_here,
        "files at an address": "://" in series.trips.files,
        "a table of a store": series.stored_table is not None,
        "possible": getattr(series, "possible", None) is not None,
        "known": bool(getattr(series, "known", None)),
    }
    named = [option for option, is_declared in unsupported.items() if is_declared]
    if named:
        message = f"no records are invented for {series.stated_name}, which declares {named[0]}"
        raise OdError("OD-INVENT", message, next_step="write records of your own")


def _refuse_real_records(series: Series[Any, Any], file: Path, *, is_declared: bool) -> None:
    """Raise OdError if a new file exists, or would be among real records of any series of the project.

    It is among them if it is in the same folder, or in a folder that is itself records. If the new file is the declared
    one (``is_declared``), real records of any period of the series refuse it, wherever they are.
    """
    if os.path.lexists(file):
        raise _make_place_error(f"{file} exists")
    location = file.resolve()
    for source in list_series(series.project):
        declared_files: list[Path] = []
        with suppress(OdError):  # doctor reports a broken declaration
            declared_files = list_declared_files(read_series(source))
        is_own = is_declared and source.name == series.stated_name
        for records in declared_files:
            resolved = records.resolve()
            is_near = is_own or resolved in location.parents or resolved.parent == location.parent
            if is_near and not is_invented(records):
                raise _make_place_error(f"{records} is not known to be invented, and {file} would be beside it")


def _make_place_error(message: str) -> OdError:
    """Return the error for a path at which no invented records are written."""
    return OdError("OD-INVENT", message, next_step="name a new file in a folder without real records")
