"""Confidential: read records from a Spark table, with the same values as :func:`od_core.records.load.load_records`.

Each record is read from its own fields alone. A value that cannot be converted becomes NULL, and its record becomes a
fault. Query plans contain only names of columns and the content of the release's declaration.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from od_core.errors import OdError, base_name, nearest_only
from od_core.geography.geography import Geography
from od_core.periods import Period
from od_core.records.contribution_bound import IS_USER_ID, no_user_ids
from od_core.records.format import ColumnName, RecordColumns, RecordFormat, column_in, shown
from od_core.records.row_meaning import refuse_unstated_rows
from od_core.records.segment_source import DAY_TYPES, DAYS, SegmentSource
from od_core.records.weights import no_weights

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_WHOLE = ("tinyint", "smallint", "int", "bigint")
_TEXT = "string"
"""Spark's type name of text that is compared byte by byte. Type names of text with a collation are longer."""

_LOCAL_TIME = r"\A\d{4}-\d{2}-\d{2}([ T](([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d+)?)?|24:00(:00(\.0+)?)?))?\z"
"""Pattern of a date or a time without a zone, as in :mod:`od_core.records.load_query`."""

_CLOCK = r"\A([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d+)?)?\z"
_TIME = r"\A\d{4}-\d{2}-\d{2}[ T]([01]\d|2[0-3]):"
"""Patterns of a time alone, and of a date with a time of day."""

_EPOCH = datetime.date(1970, 1, 1)
_DAY_MICROSECONDS = 86_400_000_000
_CORRECT = "correct the table of records, or the columns named in the configuration"


class SparkQuery:
    """A query that reads the records in a Spark data frame.

    Args:
        frame: the data frame, with one row per record.
        columns: names of the columns of the data frame.
        form: format of the records; see ``record_format`` of :func:`od_core.spark.counting.count_in_spark`.
        time_zone: time zone in which values of type TIMESTAMP are assigned to days. If None, they are refused.
        is_file: whether the data frame is read from Parquet files. Spark then gives type TIMESTAMP to INT96, too, which
            holds instants or local times, so the format must say ``timestamps: utc``.
        id_patterns: result of :func:`od_core.records.contribution_bound.id_patterns`.

    Raises:
        OdError: a column is missing, the column of trips contains estimates, or a column that ``columns`` does not name
            may contain the trips of a row.
    """

    def __init__(
        self,
        frame: DataFrame,
        columns: RecordColumns,
        form: RecordFormat,
        time_zone: str | None,
        id_patterns: Sequence[str] = (IS_USER_ID,),
        *,
        is_file: bool = False,
    ) -> None:
        form.refuse_estimates(columns)
        self._frame, self._columns, self._form, self._time_zone = frame, columns, form, time_zone
        self._id_patterns, self._is_file = id_patterns, is_file
        self._types = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
        for name in (*columns.names, *(column for column, _ in form.categories)):
            if column_in(name, list(self._types)) is None:
                near = nearest_only(name, tuple(self._types)) if isinstance(name, str) else ""
                raise _fault("OD-TRIPS-COLUMN", f"the table of records has no column {shown(name)}{near}")
        refuse_unstated_rows(self._types, columns, form, "the table of records")

    def records(self, period: Period, geography: Geography, destinations: Geography) -> DataFrame:
        """Return a data frame of the records, with the columns origin, destination and in_period (a Boolean).

        It also has the columns trips, weight and person if the columns of the query name them, and the category of each
        breakdown. ``person`` is the user id as text, or NULL if the id is not valid.

        Args:
            period: period of the records.
            geography: geography of the origins.
            destinations: geography of the destinations.

        Raises:
            OdError: a column has the wrong type.
        """
        from pyspark.sql import functions as F  # noqa: N812  # the usual name

        columns, form = self._columns, self._form
        is_inside = F.lit(True) if columns.date is None else self._is_inside(columns.date, period)
        fields = [
            self._placed(columns.origin, geography).alias("origin"),
            self._placed(columns.destination, destinations).alias("destination"),
            F.coalesce(is_inside, F.lit(False)).alias("in_period"),
        ]
        if columns.trips is not None:
            fields.append(self._whole(columns.trips).alias("trips"))
        if columns.weight is not None:
            fields.append(self._weight(columns.weight).alias("weight"))
        if columns.user is not None:
            fields.append(self._person(columns.user).alias("person"))
        fields += [self._segment(source).alias(source.loaded) for source in columns.segments]
        frame = self._frame
        for column, values in form.categories:
            frame = frame.where(self._is_category(column, values))
        if form.outside_period == "drop":
            frame = frame.where(F.coalesce(is_inside, F.lit(True)))
        return frame.select(*fields)

    def _column(self, name: ColumnName) -> tuple[Column, str, str]:
        """Return a column, its name in the data frame, and the name of its type."""
        from pyspark.sql import functions as F  # noqa: N812

        found = str(column_in(name, list(self._types)))
        quoted = found.replace("`", "``")
        return F.col(f"`{quoted}`"), found, self._types[found]

    def _placed(self, name: ColumnName, geography: Geography) -> Column:
        """Return a column of zone codes, in which codes that name no place become the geography's ``unknown`` zone.

        If there is no such zone, all codes are unchanged. Raises OdError if the column has the wrong type.
        """
        from pyspark.sql import functions as F  # noqa: N812

        code, found, kind = self._column(name)
        if kind != _TEXT:
            message = f"column {found!r} holds {base_name(kind)}; zone codes must be text without a collation"
            raise _fault("OD-TRIPS-NOT-TEXT", message)
        if geography.unknown is None:
            return code
        is_nowhere = code.isin([one for one in self._form.nowhere if one not in ("", *geography.zones)])
        if "" in self._form.nowhere:
            is_nowhere = is_nowhere | ~F.coalesce(code.rlike(IS_USER_ID), F.lit(False))
        return F.when(is_nowhere, F.lit(geography.unknown)).otherwise(code)

    def _is_inside(self, name: ColumnName, period: Period) -> Column:
        """Return a Boolean column that tells whether a record's date is in the period, or NULL without a valid date."""
        from pyspark.sql import functions as F  # noqa: N812

        column, found, kind = self._column(name)
        if self._is_instant(found, kind):
            local = self._local(column)
            first, end = ((day - _EPOCH).days * _DAY_MICROSECONDS for day in (period.first, period.end))
            return (local >= F.lit(first)) & (local < F.lit(end))
        day = self._day(column, found, kind)
        return (day >= F.lit(period.first)) & (day < F.lit(period.end))

    def _is_instant(self, found: str, kind: str) -> bool:
        """Return whether a column holds instants, for which a time zone is declared. Raise OdError if nothing says."""
        if kind != "timestamp" or self._time_zone is None:
            return False
        stated = self._form.timestamps
        if stated == "local":
            message = f"column {found!r} holds timestamp, which Spark reads as instants, but they are declared as local"
            raise _fault("OD-TRIPS-DATE", message, "give a view in which the column has type TIMESTAMP_NTZ")
        if stated is None and self._is_file:
            message = f"column {found!r} holds timestamp; in Parquet files, these may be instants or local times"
            step = "write timestamps: utc if they are instants, as Spark writes them; else give a view with local times"
            raise _fault("OD-TRIPS-DATE", message, step)
        return True

    def _local(self, column: Column) -> Column:
        """Return the local time of a TIMESTAMP in microseconds since 1970, for the declared time zone.

        Local times are treated as if they were UTC, so that the time zone of the session has no effect.
        """
        from pyspark.sql import functions as F  # noqa: N812

        return F.unix_micros(F.from_utc_timestamp(column, str(self._time_zone)))

    def _day(self, column: Column, found: str, kind: str) -> Column:
        """Return the day of a date or of a local time, or NULL. Raises OdError if the column has another type."""
        from pyspark.sql import functions as F  # noqa: N812

        if kind == _TEXT:
            return F.when(column.rlike(_LOCAL_TIME), F.substring(column, 1, 10).try_cast("date"))
        if kind in ("date", "timestamp_ntz"):
            return column.try_cast("date")
        next_step = (
            "declare the time_zone in which days begin, or give local times" if kind == "timestamp" else _CORRECT
        )
        message = f"column {found!r} holds {base_name(kind)}, not dates or local times without a zone"
        raise _fault("OD-TRIPS-DATE", message, next_step)

    def _whole(self, name: ColumnName) -> Column:
        column, found, kind = self._column(name)
        if kind not in _WHOLE:
            raise _fault("OD-TRIPS-COUNT", f"column {found!r} holds {base_name(kind)}, not whole numbers of trips")
        return column.try_cast("bigint")

    def _weight(self, name: str) -> Column:
        column, found, kind = self._column(name)
        if not _is_number(kind):
            raise no_weights(f"column {found!r} holds {base_name(kind)}")
        return column.try_cast("double")

    def _person(self, name: str) -> Column:
        from pyspark.sql import functions as F  # noqa: N812

        column, found, kind = self._column(name)
        if kind not in (_TEXT, *_WHOLE):
            raise no_user_ids(f"column {found!r} holds {base_name(kind)}")
        text = column.try_cast("string")
        return F.when(reduce(and_, (text.rlike(pattern) for pattern in self._id_patterns)), text)

    def _segment(self, source: SegmentSource) -> Column:
        """Return the category of a record as text, or NULL. Raises OdError if the column has the wrong type."""
        from pyspark.sql import functions as F  # noqa: N812

        if source.derive == "number":
            return self._band(source)
        if source.derive == "hour":
            text = F.lpad(self._hour(source.column).cast("string"), 2, "0")
        elif source.derive == "text":
            text = self._category(source)
        else:
            names = DAYS if source.derive == "day_of_week" else DAY_TYPES
            text = _when(self._weekday(source.column), list(enumerate(names)))
        return _when(text, source.lookup) if source.lookup else text

    def _category(self, source: SegmentSource) -> Column:
        """Return the text of a column or, if it is looked up, also a whole number or a Boolean as text."""
        column, found, kind = self._column(source.column)
        if kind not in (_TEXT, *(("boolean", *_WHOLE) if source.lookup else ())):
            message = f"column {found!r} holds {base_name(kind)}; the categories of breakdown {source.breakdown!r} must"
            meant = "be text, whole numbers or Booleans" if source.lookup else "be text without a collation"
            raise _fault("OD-TRIPS-NOT-TEXT", f"{message} {meant}")
        return column.try_cast("string")

    def _hour(self, name: str) -> Column:
        """Return the hour of a local time as a whole number, or NULL."""
        from pyspark.sql import functions as F  # noqa: N812

        column, found, kind = self._column(name)
        if kind == "date":
            raise _fault("OD-TRIPS-DATE", f"column {found!r} holds date, which has no hour")
        if self._is_instant(found, kind):
            return _whole_part(F.pmod(self._local(column), F.lit(_DAY_MICROSECONDS)), _DAY_MICROSECONDS // 24)
        if kind == "timestamp_ntz":
            return F.hour(column)
        day = self._day(column, found, kind)
        of_time = F.when(column.rlike(_TIME) & day.isNotNull(), F.substring(column, 12, 2))
        return F.coalesce(of_time, F.when(column.rlike(_CLOCK), F.substring(column, 1, 2))).try_cast("int")

    def _weekday(self, name: str) -> Column:
        """Return the day of the week of a date or local time, 0 for Monday, or NULL."""
        from pyspark.sql import functions as F  # noqa: N812

        column, found, kind = self._column(name)
        if self._is_instant(found, kind):
            return F.pmod(_whole_part(self._local(column), _DAY_MICROSECONDS) + F.lit(_EPOCH.weekday()), F.lit(7))
        return F.weekday(self._day(column, found, kind))

    def _band(self, source: SegmentSource) -> Column:
        """Return the band of a number, or NULL if it is not finite."""
        from pyspark.sql import functions as F  # noqa: N812

        column, found, kind = self._column(source.column)
        if not _is_number(kind):
            raise _fault("OD-TRIPS-CATEGORY", f"column {found!r} holds {base_name(kind)}, not numbers")
        number = column.try_cast("double")
        *lower, last = source.bands
        band = F.lit(last)
        for limit, name in reversed(list(zip(source.breaks, lower, strict=True))):
            band = F.when(number < F.lit(limit), F.lit(name)).otherwise(band)
        return F.when(F.abs(number) < F.lit(float("inf")), band)  # NaN is greater than infinity

    def _is_category(self, name: str, values: tuple[str, ...]) -> Column:
        from pyspark.sql import functions as F  # noqa: N812

        column, found, kind = self._column(name)
        if kind not in (_TEXT, "boolean", *_WHOLE):
            raise _fault("OD-TRIPS-CATEGORY", f"column {found!r} holds {base_name(kind)}, not categories")
        return F.coalesce(column.try_cast("string"), F.lit("")).isin(list(values))


def _when(value: Column, cases: Sequence[tuple[str | int, str]]) -> Column:
    """Return the text of the case that a value equals, or NULL if there is none."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.coalesce(*(F.when(value == F.lit(case), F.lit(text)) for case, text in cases))


def _is_number(kind: str) -> bool:
    """Return whether a type is of numbers, whole or not."""
    return kind in (*_WHOLE, "float", "double") or kind.startswith("decimal(")


def _whole_part(value: Column, divisor: int) -> Column:
    """Return a whole number divided by a divisor, rounded down.

    The quotient is exact: the dividend is a multiple of the divisor, and both are exact as DOUBLE.
    """
    from pyspark.sql import functions as F  # noqa: N812

    return ((value - F.pmod(value, F.lit(divisor))) / F.lit(divisor)).cast("bigint")


def _fault(code: str, message: str, next_step: str = _CORRECT) -> OdError:
    return OdError(code, message, next_step=next_step)
