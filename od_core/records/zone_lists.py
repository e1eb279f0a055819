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
    name_column_of_aliases,
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
    EXCEL_DELIMITER_LINE,
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

_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
"""Byte order marks of text in UTF-16."""

CODE_SEPARATOR = " / "
"""Separator between the codes of several columns that are joined into the code of one area."""

_make_list_error = partial(make_geography_error, next_step="correct the geography's file or its path")
_make_levels_error = partial(make_geography_error, "OD-GEOGRAPHY-LEVELS")
_make_declaration_error = partial(_make_levels_error, next_step="correct the declaration of the zone list")


@dataclass(frozen=True)
class ZoneList:
    """The declaration of a public zone list: its file, and how the file states the hierarchy of areas.

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
        aliases: columns of other names of areas, by level, which are separated by semicolons. They are published.
        boundaries: path of a file with the boundaries of a level's areas, and its property with their codes, by level.
            They are published. If a path is blank, the boundaries are in a column of the zone list with this name.
        grid: the grid whose cells the zones are, or None.
        is_outline: whether the file has the outline of these cells, in place of a list of them; see :meth:`from_grid`.

    Raises:
        OdError: the declarations contradict each other, or name a level that does not exist.
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
    aliases: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for name in ("prefixes", "joined", "names", "boundaries", "aliases"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))
        self._check_levels()
        self._check_prefixes()
        self._check_joined()
        if self.names or self.aliases:
            check_named_levels(self.levels, (*self.names, *self.aliases))
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
        """Return the declaration of a list of the finest cells of a grid that overlap an outline, with boundaries.

        ``within`` is the path of a file with polygons. The options are ``unknown``, ``unknown_area`` and ``version``.
        """
        boundaries = {level: ("", name_boundary_column(grid.levels, level)) for level in grid.levels}
        return cls(within, grid.levels, boundaries=boundaries, grid=grid, is_outline=True, **options)

    def _check_levels(self) -> None:
        """Raise OdError if boundaries, a prefix or joined columns are declared for a level that cannot have them."""
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
        """Raise OdError if a prefix is no whole number of at least 1, or not longer than those of coarser levels."""
        above: str | None = None  # nearest coarser level with a prefix
        for level in self.levels:
            if level not in self.prefixes:
                continue
            length = self.prefixes[level]
            if isinstance(length, bool) or not isinstance(length, int) or length < 1:
                raise _make_declaration_error(f"the prefix of level {level!r} is not a whole number of at least 1")
            if above is not None and length <= self.prefixes[above]:
                raise _make_declaration_error(
                    f"prefixes do not nest: the prefix of level {level!r} has {length} characters, which is not more"
                    f" than the {self.prefixes[above]} characters of level {above!r} above it"
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
        """Path of the file that has, or would have, the boundaries of zones: their own file, or else the list."""
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
        """Return the declaration for a file that ``Geography.to_frame`` wrote of this list's geography.

        Such a file has a column of whole codes for each level, so the result has no prefixes, joined columns or
        parents, and no file of boundaries.
        """
        return ZoneList(
            file,
            self.levels,
            unknown=self.unknown if self.unknown_area is None else self.unknown_area,
            version=self.version,
            coordinates=COORDINATES if self.has_coordinates else None,
            boundaries={level: ("", name_boundary_column(self.levels, level)) for level in self.boundaries},
            names={level: name_column_of_names(level) for level in self.levels} if self.names else {},
            aliases={level: name_column_of_aliases(level) for level in self.levels} if self.aliases else {},
            grid=self.grid,
        )


def add_level_columns(zones: pd.DataFrame, zone_list: ZoneList) -> pd.DataFrame:
    """Return a table of zones with an additional column for each level that the zone list joins or takes as a prefix.

    The codes of joined columns are separated by ``CODE_SEPARATOR``. Raises OdError if such a level is also a column; a
    column is missing or occurs twice; a code contains ``CODE_SEPARATOR``, is shorter than a prefix, or is refused by
    :func:`od_core.geography.codes.check_codes`.
    """
    joined = {level: _join_codes(zones, level, columns) for level, columns in zone_list.joined.items()}
    zones = _add_levels(zones, joined, "a level joined from several columns")
    if not zone_list.prefixes:
        return zones
    codes = _read_codes(zones, zone_list.levels[-1], zone_list.levels)
    finest_level = max(zone_list.prefixes, key=lambda level: zone_list.prefixes[level])
    max_length = zone_list.prefixes[finest_level]
    for code in codes:
        if len(code) < max_length:
            message = f"a zone's code is shorter than the {max_length} characters of level {finest_level!r}"
            raise _make_levels_error(message, f"zone {code!r}")
    prefixes = {level: [code[:length] for code in codes] for level, length in zone_list.prefixes.items()}
    return _add_levels(zones, prefixes, "a prefix of the zone's code")


def _join_codes(zones: pd.DataFrame, level: str, columns: Sequence[str]) -> list[str]:
    """Return the codes of a level that is joined from several columns. Raises OdError as :func:`add_level_columns`."""
    codes_of_columns = [_read_codes(zones, column, columns) for column in columns]
    for column, codes in zip(columns, codes_of_columns, strict=True):
        ambiguous_code = next((code for code in codes if CODE_SEPARATOR in code), None)
        if ambiguous_code is not None:
            message = f"column {column!r} has a code that contains {CODE_SEPARATOR!r}, the separator in level {level!r}"
            raise _make_levels_error(message, f"code {ambiguous_code!r}")
    return [CODE_SEPARATOR.join(codes_of_row) for codes_of_row in zip(*codes_of_columns, strict=True)]


def _read_codes(zones: pd.DataFrame, column: str, expected: Sequence[str]) -> list[str]:
    """Return the codes of a column, one per row. Raises OdError if it is missing or occurs twice, or a code is bad.

    ``expected`` are the columns that the declaration names, for the message.
    """
    names = [str(name) for name in zones.columns]
    if column not in names:
        raise make_missing_column_error("the zone list", column, names, expected, zones)
    if names.count(column) > 1:
        raise make_geography_error("OD-GEOGRAPHY-COLUMN", f"the list has column {column!r} more than once")
    return read_text_codes(zones[column], column)


def _add_levels(zones: pd.DataFrame, codes_by_level: Mapping[str, Sequence[str]], source: str) -> pd.DataFrame:
    """Return a table of zones with a further column of codes for each level.

    Raises OdError if such a level is a column already. ``source`` says in the message where its codes come from.
    """
    for level in codes_by_level:
        if level in zones.columns:
            raise _make_levels_error(
                f"level {level!r} is both a column of the zone list and {source}; rename the level"
            )
    return zones.assign(**{level: pd.Series(codes, zones.index) for level, codes in codes_by_level.items()})


def build_geography(
    zones: pd.DataFrame, zone_list: ZoneList, boundaries: Mapping[str, Mapping[str, bytes]] | None = None
) -> Geography:
    """Return the geography in a table of zones or areas. Raises OdError if it is faulty.

    Args:
        zones: table of the zone list's file, one row per zone or, for a list of parents, per area.
        zone_list: declaration of the list. Its files are not read.
        boundaries: boundaries of areas that are in other files, as WKB, by level and code.
    """
    if zone_list.parents is not None:
        names = {level: name_column_of_names(level) for level in zone_list.names}
        aliases = {level: name_column_of_aliases(level) for level in zone_list.aliases}
        named = {names[level]: column for level, column in zone_list.names.items()}
        named |= {aliases[level]: column for level, column in zone_list.aliases.items()}
        geography = Geography.from_parents(
            _select_area_columns(zones, *zone_list.parents, named),
            levels=zone_list.levels,
            unknown=zone_list.unknown,
            version=zone_list.version,
            names=names,
            aliases=aliases,
        )
    else:
        zones = add_level_columns(zones, zone_list)
        columns = {level: column for level, (_, column) in zone_list.boundaries.items()}
        for level, shapes in (boundaries or {}).items():
            zones = add_boundary_column(zones, zone_list.levels, level, shapes)
            columns[level] = name_boundary_column(zone_list.levels, level)
        geography = Geography.from_frame(
            zones,
            zone_list.levels,
            unknown=zone_list.unknown,
            coordinates=zone_list.coordinates,
            version=zone_list.version,
            names=zone_list.names,
            boundaries=columns,
            aliases=zone_list.aliases,
        )
    if zone_list.unknown_area is not None:
        geography = with_unknown_area(geography, zone_list.unknown_area)
    return geography if zone_list.grid is None else replace(geography, grid=zone_list.grid)


def _select_area_columns(areas: pd.DataFrame, area: str, parent: str, named: Mapping[str, str]) -> pd.DataFrame:
    """Return a table with columns ``area`` and ``parent`` (None if blank), and columns of names.

    ``area`` and ``parent`` are the names of these columns in the table ``areas``, and ``named`` has the others.
    """
    check_columns(areas, "the area list", (area, parent, *named.values()))
    names_of_areas = {name: areas[column] for name, column in named.items()}
    parents = areas[parent].where(areas[parent] != "", None)
    return pd.DataFrame({"area": areas[area], "parent": parents, **names_of_areas})


@lru_cache(maxsize=8)
def _read_geography(zone_list: ZoneList, paths: tuple[Path, ...], digests: tuple[str | None, ...]) -> Geography:  # noqa: ARG001  # part of the cache key: the files' content
    """Return the geography in the files of a zone list: its own, then the files of boundaries.

    It is cached, because every step of a release needs it. ``digests`` are those of the files, None for a missing one.
    Raises OdError if a file is missing or faulty.
    """
    path, *boundary_paths = paths
    outline = read_outline(path) if zone_list.is_outline else None
    zones = pd.DataFrame() if zone_list.is_outline else read_zones(path)
    code_column = {level: column for level, (file, column) in zone_list.boundaries.items() if file}
    boundaries = {
        level: read_boundaries(boundary_path, column)
        for (level, column), boundary_path in zip(code_column.items(), boundary_paths, strict=True)
    }
    try:
        if zone_list.grid is not None and outline is not None:
            zones, boundaries = list_cells(zone_list.grid, outline)
        return build_geography(zones, zone_list, boundaries)
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
        if first_line.startswith(_UTF16_MARKS):
            raise _make_list_error("OD-FILE-NOT-UTF8", f"{path.name} is UTF-16, not UTF-8 text")
        further_pieces = iter(partial(file.read, 1 << 20), b"")
        if has_nul(first_line) or any(map(has_nul, further_pieces)):
            raise make_incomplete_file_error(f"{path.name} contains NUL characters")
    header = first_line.decode("utf-8-sig").rstrip()
    if EXCEL_DELIMITER_LINE.fullmatch(header):
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
