"""Which columns of a file of records hold what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from od_core.weights import trips_and_weights

ColumnName = str | tuple[str, ...]
"""A column's name as it stands; or names that an agency publishes it under, of which a file has one, in any case."""


@dataclass(frozen=True)
class RecordColumns:
    """Which columns of a file hold what.

    Attributes:
        origin, destination: zone codes, text.
        date: when the trip was made; None where a file holds one period alone.
        trips: number of trips of a row, for flows; None for one row a trip.
        user: user id, text or a whole number; None where users are not the unit of privacy.
        stops: zone codes of the places between origin and destination, in order.
        weight: weight of a record, for one row a record; None where every record counts 1.

    Raises:
        OdError: columns of trips and of weights.
    """

    origin: ColumnName = "origin"
    destination: ColumnName = "destination"
    date: ColumnName | None = None
    trips: ColumnName | None = None
    user: str | None = None
    stops: tuple[str, ...] = ()
    weight: str | None = None

    def __post_init__(self) -> None:
        if self.trips is not None and self.weight is not None:
            raise trips_and_weights()

    def facts(self) -> dict[str, str | list[str]]:
        """The columns that are stated, JSON-ready; of published names all of them."""
        stated = {name: column for name, column in asdict(self).items() if column}
        return {name: column if isinstance(column, str) else list(column) for name, column in stated.items()}

    @property
    def codes(self) -> dict[str, ColumnName]:
        """Columns of zone codes, by what they are called in the confidential folder."""
        return {
            "origin": self.origin,
            "destination": self.destination,
            **{f"stop_{number}": name for number, name in enumerate(self.stops, start=1)},
        }

    @property
    def counts_rows(self) -> bool:
        """Whether rows are counted, since no column says how many trips a row holds."""
        return self.trips is None and self.weight is None

    @property
    def row(self) -> str:
        """What a row is, in words."""
        if self.counts_rows:
            return "one row a trip"
        if self.trips is None:
            return f"one row a trip, and column {self.weight!r} holds its weight"
        return f"column {shown(self.trips)} holds the trips"

    @property
    def names(self) -> tuple[ColumnName, ...]:
        """All columns that are read, each once."""
        named = (*self.codes.values(), self.date, self.trips, self.weight, self.user)
        return tuple(dict.fromkeys(name for name in named if name is not None))


def column_in(name: ColumnName, columns: Sequence[str]) -> str | None:
    """How a column is called among those of a file; None where it is not there."""
    if isinstance(name, str):
        return name if name in columns else None
    in_any_case = {column.casefold(): column for column in columns}
    return next((in_any_case[one.casefold()] for one in name if one.casefold() in in_any_case), None)


def shown(name: ColumnName) -> str:
    """A column in a message; of many published names, the first."""
    if isinstance(name, str):
        return repr(name)
    return " or ".join(map(repr, name[:3])) + (", or as it is published elsewhere" if len(name) > 3 else "")
