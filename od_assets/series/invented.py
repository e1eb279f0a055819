"""Invent records of a series from its public lists alone: for development, tests and staging, which see no real ones.

Nothing is read but public lists, so invented records say nothing about real ones. A file :data:`MARK` beside invented
records has their names and digests, so real records are told from them.
"""

import glob
import os
from collections.abc import Sequence
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
from od_core.records.formats import PointColumns
from od_core.records.points import make_points

ROWS = 1000

MARK = ".invented"
"""Name of the hidden file that lists the invented records of its folder, as ``sha256sum`` does."""

_PEAKS = (8, 13, 17.5)
"""Hours of the day around which trips are invented."""

_SIZES = 0.5 ** np.minimum(range(1, 9), 7)
"""Probabilities of the sizes of groups from 1 to 8."""


def invent_records(series: Any, period: Period, rows: int = ROWS, seed: int = 0) -> pd.DataFrame:
    """Return invented records of a period, with all columns that are read; the same for the same seed.

    Zones have sizes with heavy tails. Where one list or two of the same depth serve both sides, trips follow the
    gravity model of :func:`od_core.evaluation.forecast.make_synthetic_table`. Some users make many trips.
    """
    columns = series.columns
    generator = np.random.default_rng([seed, period.first.toordinal()])
    geography = series.read_geography()
    hours = generator.normal(generator.choice(_PEAKS, rows), 2.5) % 24
    seconds = generator.integers(0, period.days, rows) * 86_400 + (hours * 3600).astype(np.int64)
    times = pd.Series(np.datetime64(period.first, "s") + seconds.astype("timedelta64[s]"))
    values: dict[Any, object] = {}
    if columns.axes:
        coordinates = (columns.origin, *columns.stops, columns.destination)  # longitude and latitude in turn
        for name, (least, most, _) in zip(coordinates, cycle(columns.axes), strict=False):
            values[name] = least + (most - least) * generator.beta(2, 2, rows)
    else:
        values |= _draw_codes(series, geography, rows, generator)
    numbers = np.minimum(generator.geometric(0.5, rows), 3)
    values |= {columns.date: times, columns.trips: numbers, columns.weight: numbers}
    users = _draw_by_size(max(rows // 4, 1), rows, generator)
    values[columns.user] = _make_user_ids(series.unit.id_pattern or ".*", users)
    for source, breakdown in zip(columns.segments, series.breakdowns, strict=True):
        if source.derive == "number":
            values[source.column] = generator.uniform(source.breaks[0] - 1, source.breaks[-1] + 1, rows)
        elif source.derive == "text":
            texts = [text for text, _ in source.lookup] or breakdown.categories
            values[source.column] = np.asarray(texts, dtype=object)[_draw_by_size(len(texts), rows, generator)]
        else:  # parts of times
            values[source.column] = times
    values |= {name: generator.choice(chosen, rows) for name, chosen in series.record_format.categories}
    if columns.size is not None:
        groups = series.grouping.count_groups_per_area(geography, period.days)
        numbers = generator.multinomial(groups, _SIZES)  # they sum to the public numbers of groups
        area, size = np.nonzero(numbers)
        zones = np.asarray(geography.zones, dtype=object)
        values = {columns.origin: zones[area], columns.size: size + 1, columns.trips: numbers[area, size]}
        values[columns.date] = times[0]
    values.pop(None, None)  # what is not read
    # Of several published names of a column, the first one is written.
    return pd.DataFrame({name if isinstance(name, str) else name[0]: column for name, column in values.items()})


def _draw_codes(series: Any, geography: Any, rows: int, generator: np.random.Generator) -> dict[Any, object]:
    """Return random codes of zones, places or groups for each column of codes."""
    names, allowed = series.columns.codes, series.list_allowed_codes(geography)
    chosen = {code: _draw_by_size(len(allowed[code == "destination"]), rows, generator) for code in names}
    origins, destinations = series.split_sides(geography)
    if isinstance(origins, Geography) and names.get("destination") not in (None, names["origin"]):
        with suppress(OdError):  # too few zones, or lists of other depths, for the gravity model
            known = make_synthetic_table(origins, destinations)
            trips = np.diff(known.trips.before)
            ranks = generator.choice(known.trips.rank, rows, p=trips / trips.sum())
            pairs = known.tree.find_leaf_pairs(ranks)
            chosen |= {"origin": pairs.origin, "destination": pairs.destination}
    columns: dict[Any, object] = {}
    for code, place in names.items():
        is_destination = code == "destination"
        codes = np.asarray(allowed[is_destination], dtype=object)[chosen[code]]
        if isinstance(place, PointColumns):
            columns |= make_points(place, codes, (origins, destinations)[is_destination])
        else:
            columns[place] = codes
    return columns


def _draw_by_size(number: int, rows: int, generator: np.random.Generator) -> Any:
    """Return random numbers from 0 up to ``number``, each as often as its random size; sizes have heavy tails."""
    size = draw_pareto_numbers(generator, number, 2)
    return generator.choice(number, rows, p=size / size.sum())


def _make_user_ids(pattern: str, numbers: Sequence[int]) -> list[str]:
    """Return numbers as user ids, padded with zeros so that all match a pattern. Raises OdError if no width does."""
    for width in range(64):
        ids = [f"{number:0{width}}" for number in numbers]
        if pc.all(pc.match_substring_regex(pa.array(ids), f"^(?:{pattern})$")).as_py():
            return ids
    message = f"no digits match id_pattern {pattern!r}, so no user ids are invented"
    raise OdError("OD-INVENT", message, next_step="give records")


def list_declared_files(series: Series[Any, Any]) -> list[Path]:
    """Return the files or folders of records of a series that exist, whatever their period."""
    file = glob.escape(str(series.locate_records_file("\0")))
    return [Path(name) for name in glob.glob(file.replace("\0", "[0-9][0-9][0-9][0-9]*"))]  # noqa: PTH207  # it follows links


def is_invented(file: Path) -> bool:
    """Return whether a file has invented records, unchanged, as the mark in its folder says."""
    mark = file.parent / MARK
    listed = mark.read_text(encoding="utf-8").splitlines() if mark.is_file() else []
    named = [line for line in listed if line.endswith(f"  {file.name}")]
    return file.is_file() and bool(named) and f"{compute_file_digest(file)}  {file.name}" in named


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
    """Raise OdError, which names it, for an option of a declaration for which no records are invented."""
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
    """Raise OdError if a file exists, or is declared or stands beside real records of any series.

    The declared file of a series is refused for real records of any of its periods, wherever they are.
    """
    if os.path.lexists(file):
        raise _make_place_error(f"{file} exists")
    place = file.resolve()
    for source in list_series(series.project):
        near: list[Path] = []
        with suppress(OdError):  # doctor reports a broken declaration
            other = read_series(source)
            near = [
                found
                for found in list_declared_files(other)
                if (is_declared and source.name == series.stated_name)
                or found.resolve() in place.parents
                or found.resolve().parent == place.parent
            ]
        real = next((found for found in near if not is_invented(found)), None)
        if real is not None:
            raise _make_place_error(f"{real} is not known to be invented, and {file} would be beside it")


def _make_place_error(message: str) -> OdError:
    return OdError("OD-INVENT", message, next_step="name a new file in a folder without real records")
