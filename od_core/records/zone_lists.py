"""Read public zone lists from CSV or Parquet files, without converting their codes, and build geographies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from od_core.errors import OdError, raise_without_context, suggest_known_names
from od_core.files.duckdb_session import make_machine_error
from od_core.files.durable import compute_file_digest, find_file_fault
from od_core.geography.codes import (
    COORDINATES,
    check_codes,
    check_columns,
    check_named_levels,
    make_geography_error,
    make_missing_column_error,
    name_column_of_names,
    read_text_codes,
)
from od_core.geography.geography import (
    Geography,
    add_boundary_column,
    name_boundary_column,
    read_boundaries,
    read_outline,
    with_unknown_area,
)
from od_core.geography.grids import Grid, list_cells
from od_core.records.open_file import (
    FOR_EXCEL,
    GZIP_ERRORS,
    PARQUET,
    advise_on_file_kind,
    find_file_kind,
    has_nul,
    is_compressed,
    make_incomplete_file_error,
    open_bytes,
    refuse_table_log,
)

_OTHER_DELIMITERS = {";": "semicolons", "\t": "tabs", "|": "bars"}

_UTF16 = (b"\xff\xfe", b"\xfe\xff")


JOINT = " / "
"""Separator between the codes of several columns that are joined into the code of one area."""

_make_list_error = partial(make_geography_error, next_step="correct the geography's file or its path")
_make_levels_error = partial(make_geography_error, "OD-GEOGRAPHY-LEVELS")
_make_declaration_error = partial(_make_levels_error, next_step="correct the declaration of the zone list")


@dataclass(frozen=True)
class ZoneList:
    """A public zone list: its file, and how the file states the hierarchy of areas.

    Attributes:
        file: path of a CSV (also .csv.gz) or Parquet file.
        levels: names of the levels, coarse to fine; the last one is the level of the zones. Unless ``prefixes``,
            ``joined`` or ``parents`` defines a level, its areas are in the column of this name.
        prefixes: number of characters, by level. The areas of such a level are the first characters of the zone codes.
        joined: columns, by level. The codes of such a level are joined from the codes in these columns.
        parents: columns of an area and of its parent, if the file lists all areas instead of the zones; else None.
        unknown: code of a listed zone for records from unlisted places, or None.
        unknown_area: code of an area that is added at every level for records from unlisted places, or None.
        version: the publisher's name for this list, or None. It is published.
        coordinates: columns of latitude and longitude, or None. They are published.
        names: columns of the names of areas, by level. They are published.
        boundaries: path of a file with the boundaries of a level's areas, and its property with their codes, by level.
            They are published. If a path is blank, the boundaries are in a column of the zone list with this name.
        grid: the grid whose cells the zones are, or None.
        is_outline: whether the file has the outline of these cells, in place of a list of them; see :meth:`from_grid`.
    """

    file: str
    levels: tuple[str, ...]
    prefixes: Mapping[str, int] = field(default_factory=dict, hash=False)
    joined: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    parents: tuple[str, str] | None = None
    unknown: str | None = None
    unknown_area: str | None = None
    version: str | None = None
    coordinates: tuple[str, str] | None = None
    names: Mapping[str, str] = field(default_factory=dict, hash=False)
    boundaries: Mapping[str, tuple[str, str]] = field(default_factory=dict, hash=False)
    grid: Grid | None = None
    is_outline: bool = False

    def __post_init__(self) -> None:
        for name in ("prefixes", "joined", "names", "boundaries"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))
        self._check_levels()
        self._check_prefixes()
        self._check_joined()
        if self.names:
            check_named_levels(self.levels, self.names)
        if self.parents is not None and (self.prefixes or self.joined or self.coordinates or self.boundaries):
            raise _make_declaration_error(
                "a list of areas and their parents cannot have prefixes, joined levels, coordinates or boundaries"
            )
        if self.unknown is not None and self.unknown_area is not None:
            raise _make_declaration_error("declare either a listed zone or an added area for unknown places, not both")
        for name in ("unknown_area", "version"):
            if getattr(self, name) is not None:
                check_codes([getattr(self, name)], name)

    @classmethod
    def from_grid(cls, grid: Grid, within: str, **options: Any) -> ZoneList:
        """Return the list of the finest cells of a grid that overlap an outline, with their boundaries.

        ``within`` is the path of a file with polygons. The options are ``unknown``, ``unknown_area`` and ``version``.
        """
        boundaries = {level: ("", name_boundary_column(grid.levels, level)) for level in grid.levels}
        return cls(within, grid.levels, boundaries=boundaries, grid=grid, is_outline=True, **options)

    def _check_levels(self) -> None:
        """Raise OdError if something is declared for a level that does not exist, or cannot have it."""
        for declared, known, what in (
            (self.boundaries, self.levels, "has boundaries, but is not a level"),
            (self.prefixes, self.levels[:-1], "has a prefix, but is not a level above the zones"),
            (self.joined, self.levels, "is declared as joined from several columns, but is not a level"),
        ):
            for level in declared:
                if level not in known:
                    raise _make_declaration_error(f"{level!r} {what} ({suggest_known_names(level, known)})")

    def _check_joined(self) -> None:
        """Raise OdError if a level is not joined from several columns, or is a prefix, too."""
        for level, columns in self.joined.items():
            if isinstance(columns, str) or len(columns) < 2 or len(set(columns)) < len(columns):
                raise _make_declaration_error(
                    f"level {level!r} must be joined from at least two columns, each named once"
                )
            if level in self.prefixes:
                raise _make_declaration_error(
                    f"level {level!r} is declared both as a prefix of a code and as joined from several columns"
                )

    def _check_prefixes(self) -> None:
        """Raise OdError if a prefix is not longer than those of coarser levels."""
        above: str | None = None
        for level in self.levels:
            if level not in self.prefixes:
                continue
            size = self.prefixes[level]
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise _make_declaration_error(f"the prefix of level {level!r} is not a whole number of at least 1")
            if above is not None and size <= self.prefixes[above]:
                raise _make_declaration_error(
                    f"prefixes do not nest: the prefix of level {level!r} has {size} characters, which is not more than"
                    f" the {self.prefixes[above]} characters of level {above!r} above it"
                )
            above = level

    def read_geography(self, folder: Path) -> Geography:
        """Return the geography in the file, whose path is relative to ``folder``. Raises OdError if it is faulty."""
        paths = tuple(folder / file for file in self.files)
        digests = tuple(compute_file_digest(path) if path.is_file() else None for path in paths)
        return _read_geography(self, paths, digests)

    @property
    def files(self) -> tuple[str, ...]:
        """Paths of the list and of the files of boundaries."""
        return (self.file, *(file for file, _ in self.boundaries.values() if file))

    @property
    def boundary_file(self) -> str:
        """Path of the file with the boundaries of zones, which are in the list if there is no other file."""
        return self.boundaries.get(self.levels[-1], ("", ""))[0] or self.file

    @property
    def has_coordinates(self) -> bool:
        """True if the list states coordinates of zones, or boundaries that they follow from."""
        return self.coordinates is not None or self.levels[-1] in self.boundaries

    @property
    def has_unknown(self) -> bool:
        """True if the list has or adds an area for records from unlisted places."""
        return self.unknown is not None or self.unknown_area is not None

    def with_geography_file(self, file: str) -> ZoneList:
        """Return the zone list that reads this list's geography from a file written with ``Geography.to_frame``.

        Such a file has a column of whole codes for each level. So prefixes, joined columns and parents are not needed.
        """
        return ZoneList(
            file,
            self.levels,
            unknown=self.unknown if self.unknown_area is None else self.unknown_area,
            version=self.version,
            coordinates=COORDINATES if self.has_coordinates else None,
            boundaries={level: ("", name_boundary_column(self.levels, level)) for level in self.boundaries},
            names={level: name_column_of_names(level) for level in self.levels} if self.names else {},
            grid=self.grid,
        )


def add_level_columns(zones: pd.DataFrame, listed: ZoneList) -> pd.DataFrame:
    """Return a zone list with an additional column for each level that is joined from columns or a prefix of codes.

    The codes of joined columns are separated by ``JOINT``. Raises OdError if such a level is also a column; a column is
    missing or occurs twice; a code contains ``JOINT``, is shorter than a prefix, or is refused by
    :func:`od_core.geography.codes.check_codes`.
    """
    joined = {level: _join_codes(zones, level, columns) for level, columns in listed.joined.items()}
    zones = _add_levels(zones, joined, "a level joined from several columns")
    if not listed.prefixes:
        return zones
    codes = _read_codes(zones, listed.levels[-1], listed.levels)
    longest = max(listed.prefixes, key=lambda level: listed.prefixes[level])
    for code in codes:
        if len(code) < listed.prefixes[longest]:
            message = f"a zone's code is shorter than the {listed.prefixes[longest]} characters of level {longest!r}"
            raise _make_levels_error(message, f"zone {code!r}")
    prefixes = {level: [code[:size] for code in codes] for level, size in listed.prefixes.items()}
    return _add_levels(zones, prefixes, "a prefix of the zone's code")


def _join_codes(zones: pd.DataFrame, level: str, columns: Sequence[str]) -> list[str]:
    """Return the codes of a level that is joined from several columns. Raises OdError as :func:`add_level_columns`."""
    codes_of_columns = [_read_codes(zones, column, columns) for column in columns]
    for column, codes in zip(columns, codes_of_columns, strict=True):
        holding = next((code for code in codes if JOINT in code), None)
        if holding is not None:
            message = f"column {column!r} has a code that contains {JOINT!r}, the separator in level {level!r}"
            raise _make_levels_error(message, f"code {holding!r}")
    return [JOINT.join(codes_of_row) for codes_of_row in zip(*codes_of_columns, strict=True)]


def _read_codes(zones: pd.DataFrame, column: str, expected: Sequence[str]) -> list[str]:
    """Return the codes of a column. Raises OdError if it is missing or occurs twice, or a code is not valid."""
    names = [str(name) for name in zones.columns]
    if column not in names:
        raise make_missing_column_error("the zone list", column, names, expected, zones)
    if names.count(column) > 1:
        raise make_geography_error("OD-GEOGRAPHY-COLUMN", f"the list has column {column!r} more than once")
    return read_text_codes(zones[column], column)


def _add_levels(zones: pd.DataFrame, codes_of: Mapping[str, Sequence[str]], what: str) -> pd.DataFrame:
    """Return a zone list with a column of codes for each further level.

    Raises OdError if such a level is a column already. ``what`` says in the message where its codes come from.
    """
    for level in codes_of:
        if level in zones.columns:
            raise _make_levels_error(f"level {level!r} is both a column of the zone list and {what}; rename the level")
    return zones.assign(**{level: pd.Series(codes, zones.index) for level, codes in codes_of.items()})


def build_geography(
    zones: pd.DataFrame, listed: ZoneList, boundaries: Mapping[str, Mapping[str, bytes]] | None = None
) -> Geography:
    """Return the geography in a table of zones or areas. Raises OdError if it is faulty.

    ``listed`` is the zone list, whose files are not read, and ``boundaries`` are those in its files, by level and code.
    """
    if listed.parents is not None:
        geography = Geography.from_parents(
            _select_area_columns(zones, *listed.parents, listed.names),
            levels=listed.levels,
            unknown=listed.unknown,
            version=listed.version,
            names={level: name_column_of_names(level) for level in listed.names},
        )
    else:
        zones = add_level_columns(zones, listed)
        columns = {level: column for level, (_, column) in listed.boundaries.items()}
        for level, shapes in (boundaries or {}).items():
            zones = add_boundary_column(zones, listed.levels, level, shapes)
            columns[level] = name_boundary_column(listed.levels, level)
        geography = Geography.from_frame(
            zones,
            listed.levels,
            unknown=listed.unknown,
            coordinates=listed.coordinates,
            version=listed.version,
            names=listed.names,
            boundaries=columns,
        )
    if listed.unknown_area is not None:
        geography = with_unknown_area(geography, listed.unknown_area)
    return geography if listed.grid is None else replace(geography, grid=listed.grid)


def _select_area_columns(areas: pd.DataFrame, area: str, parent: str, names: Mapping[str, str]) -> pd.DataFrame:
    """Return the columns ``area`` and ``parent``, None for a blank parent, and a column of names for each level."""
    check_columns(areas, "the area list", (area, parent, *names.values()))
    names_of_areas = {name_column_of_names(level): areas[column] for level, column in names.items()}
    parents = areas[parent].where(areas[parent] != "", None)
    return pd.DataFrame({"area": areas[area], "parent": parents, **names_of_areas})


@lru_cache(maxsize=8)
def _read_geography(listed: ZoneList, paths: tuple[Path, ...], digests: tuple[str | None, ...]) -> Geography:  # noqa: ARG001  # part of the cache key: the files' content
    """Return the geography in files with these digests. It is cached, because every step of a release needs it."""
    path, *boundary_paths = paths
    outline = read_outline(path) if listed.is_outline else None
    zones = pd.DataFrame() if listed.is_outline else read_zones(path)
    code_column = {level: column for level, (file, column) in listed.boundaries.items() if file}  # of other files
    boundaries = {
        level: read_boundaries(boundary_path, column)
        for (level, column), boundary_path in zip(code_column.items(), boundary_paths, strict=True)
    }
    try:
        if listed.grid is not None and outline is not None:
            zones, boundaries = list_cells(listed.grid, outline)
        return build_geography(zones, listed, boundaries)
    except OdError as error:
        raise error.with_file(path.name) from None


def read_zones(path: Path) -> pd.DataFrame:
    """Return the table in a public file: .csv (commas, UTF-8), .csv.gz (the same, compressed by gzip) or .parquet.

    CSV columns are text, and blank fields stay blank. Parquet columns keep types, and an index that pandas wrote is one
    of them. Raises OdError if the file is missing, may not be read, is not UTF-8, uses a delimiter other than the
    comma, is not a table, or is of a table whose log is not read.
    """
    absent = find_file_fault(path)
    if absent is not None:
        raise _make_list_error("OD-FILE-MISSING", absent)
    refuse_table_log(path)
    try:
        container = find_file_kind(path)
        is_parquet = path.suffix == ".parquet"
        if container is not None and not is_compressed(path) and not (is_parquet and container == PARQUET):
            raise _make_list_error(
                "OD-FILE-UNREADABLE", f"{path.name} is {container}", next_step=advise_on_file_kind(container)
            )
        if is_parquet:
            with pq.ParquetFile(path) as file:
                return pd.DataFrame(file.read().to_pandas(ignore_metadata=True))
        _refuse_other_text(path)
        table = pd.read_csv(path, dtype=str, keep_default_na=False, header=None, index_col=False)
        if len(table) == 0:
            raise _make_list_error("OD-FILE-UNREADABLE", f"{path.name} is empty")
        return table[1:].set_axis(list(table.iloc[0]), axis="columns").reset_index(drop=True)
    except UnicodeDecodeError:
        message = f"{path.name} is not UTF-8 text; it may be Windows-1252 or ISO 8859-1"
        step = "correct the encoding of the geography's file: iconv -f WINDOWS-1252 -t UTF-8"
        raise_without_context(_make_list_error("OD-FILE-NOT-UTF8", message, next_step=step))
    except GZIP_ERRORS:
        raise_without_context(_make_list_error("OD-FILE-UNREADABLE", f"{path.name} is not a complete gzip file"))
    except (OSError, MemoryError, ValueError, pa.ArrowException) as error:
        message = f"{path.name} cannot be read as a table"
        if "crypt" in str(error):
            message += ": it is encrypted, so decrypt it"
        if "fields in line" in str(error):
            message += ": a line has more fields than the first, which must be the header, and no title"
        unreadable = _make_list_error("OD-FILE-UNREADABLE", message, str(error))
        raise_without_context(make_machine_error(error, f"{path.name} cannot be read") or unreadable)


def _refuse_other_text(path: Path) -> None:
    """Raise OdError if a text is incomplete or UTF-16, or if its first line has another delimiter and no comma."""
    with open_bytes(path) as file:
        first_line = file.readline()
        if first_line.startswith(_UTF16):
            raise _make_list_error("OD-FILE-NOT-UTF8", f"{path.name} is UTF-16, not UTF-8 text")
        further_pieces = iter(partial(file.read, 1 << 20), b"")
        if has_nul(first_line) or any(map(has_nul, further_pieces)):
            raise make_incomplete_file_error(f"{path.name} contains NUL characters")
    header = first_line.decode("utf-8-sig").rstrip()
    if FOR_EXCEL.fullmatch(header):
        message = f"{path.name} begins with {header!r}, which is for Excel alone"
        raise _make_list_error(
            "OD-FILE-DELIMITER", message, next_step="remove this line, and save the file with commas"
        )
    for sign, name in _OTHER_DELIMITERS.items():
        if sign in header and "," not in header:
            raise _make_list_error(
                "OD-FILE-DELIMITER",
                f"{path.name} is separated by {name}, not by commas",
                f"its first line: {header[:80]!r}",
                next_step="save it with commas, or as Parquet with columns of text",
            )
