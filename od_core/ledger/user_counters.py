"""Confidential: store how many trips of each user the releases of a year count, for a unit of a year.

Each release has a file of counters, with one row for each user of whom it has a valid trip. A user is named by a keyed
hash. When a release is counted, a user may have at most m trips, and at most what M leaves after the other periods of
the year, in each of which a user has used the largest number that any release of it counts.

The files are written before anything is drawn from the counts. Before the first draw,
:meth:`UserCounters.check_counts_and_bounds` checks the bounds over all files of the year. See
``docs/explanation/person-year.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from od_core.errors import NOTHING_SPENT, STAYS_CHARGED, OdError
from od_core.files.duckdb_session import SqlMacros, make_parquet_sql, open_scratch_database
from od_core.files.durable import write_durably
from od_core.files.table_writers import write_batches
from od_core.ledger.confidential import ConfidentialFolder
from od_core.ledger.ledger import Ledger
from od_core.ledger.release_key import ReleaseKey
from od_core.ledger.staged_files import Counted, compute_input_identity, hold_to_input, read_stored_identity
from od_core.periods import Length, Period
from od_core.privacy.domain import list_periods_of_year, name_declared_year

if TYPE_CHECKING:
    from od_core.privacy.unit import PrivacyUnit

USER_COLUMNS = ("user_high", "user_low")
"""Columns of the keyed hash of a user: its first 60 bits and the next 60."""

SCHEMA = pa.schema([*((name, pa.int64()) for name in USER_COLUMNS), ("counted", pa.int32()), ("trips", pa.int64())])
"""Columns of a file of counters, which is sorted by user: the hash, the counted trips, and all valid trips."""

_ALLOWANCE_SCHEMA = pa.schema([*((name, pa.int64()) for name in USER_COLUMNS), ("allowed", pa.int32())])
"""Columns of :attr:`Allowances.table`."""

_SQL = SqlMacros(Path(__file__).with_name("user_counters.sql"), parquet_rows=make_parquet_sql)

_COUNTER_FOLDER = "user-counters"  # with a hyphen, so no series has this name


@dataclass(frozen=True, repr=False)
class Allowances:
    """Confidential: the largest number of trips of each user that a release may count.

    Attributes:
        table: columns ``user_high``, ``user_low`` and ``allowed``; users of whom less than ``others`` is allowed.
        others: number of trips that are allowed of any other user.
    """

    table: pa.Table
    others: int


@dataclass(frozen=True, repr=False)
class UserCounters:
    """Confidential: the counters of one release, and those of the other releases of its year.

    Attributes:
        confidential, ledger, key: folder of the files, ledger that records which releases were drawn, and the release.
        domain, unit: name of the data set, and its unit, which is of a year.
        elementary, year: length of the elementary period, and the text that declares when a year begins; see
            :func:`od_core.privacy.domain.list_periods_of_year`.
    """

    confidential: ConfidentialFolder
    ledger: Ledger
    key: ReleaseKey
    domain: str
    unit: PrivacyUnit
    elementary: Length
    year: str

    def compute_allowances(self) -> Allowances:
        """Return how many trips of each user the release may count.

        If the release was drawn, these are as many as it counted, so counting it again gives the same counts.
        Otherwise, they are the bound m of the unit and what M leaves after the other periods of the year. Raises
        OdError if counters of a drawn release of the year are missing or changed, or were made with another key.
        """
        if self.ledger.is_drawn(self.key):
            counted = self._verify_counters(self.key)
            columns = [*USER_COLUMNS, "counted"]
            return Allowances(
                pq.read_table(counted, columns=columns).rename_columns([*USER_COLUMNS, "allowed"]), others=0
            )
        files = self._list_checked_files(left_out=self._find_elementary_period(self.key))
        allowed = (
            self._run_query(_SQL["allowances"](files, self.unit), files) if files else _ALLOWANCE_SCHEMA.empty_table()
        )
        return Allowances(allowed, others=self.unit.contribution_bound)

    def store_or_compare(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Store durably how many trips of each user the release counts; if it was drawn, compare them instead.

        ``batches`` have the columns of :data:`SCHEMA`, and rows that are sorted by user. One row group at a time is in
        memory. Raises OdError if the release was drawn from other counters.
        """
        if not self.ledger.is_drawn(self.key):
            schema = SCHEMA.with_metadata({"key": self.confidential.compute_key_name()})
            path = self._locate_counters(self.key)
            self.confidential.make_subfolder(path.parent)
            write_durably(path, lambda file: write_batches(file, schema, batches, compression="snappy"))
        elif self.confidential.compute_fingerprint(_iterate_columns(batches)) != self._read_drawn_fingerprint(self.key):
            raise OdError(
                "OD-REPLAY-INPUT-CHANGED",
                f"the records of {self.key} have other users, or other numbers of their trips, than when it began",
                next_step=f"restore the records, or release them as revision {self.key.revision + 1}, which is charged"
                " again",
                spent=STAYS_CHARGED,
            )

    def hold_to_input(self, counted: Counted) -> None:
        """Store the fingerprints of the counted input and its counters, or check them if the release was drawn.

        Raises OdError as :func:`od_core.ledger.staged_files.hold_to_input` does.
        """
        drawn = self.ledger.is_drawn(self.key)
        hold_to_input(self.confidential, self.key, counted, drawn=drawn, counters=self.compute_fingerprint(self.key))

    def check_counts_and_bounds(self, counted: Counted) -> None:
        """Raise OdError unless the counted input and its counters were written together and are within the bounds.

        A process may have ended between writing the counters and writing the counts. Counts of another attempt would
        then have trips that no counter records. :meth:`hold_to_input` has stored the fingerprints of both.

        Raises OdError, too, if a user has more counted trips than the unit allows, the counters do not sum to the trips
        that the release counts, or as in :meth:`compute_allowances`.
        """
        step = "run the whole release, which counts its records again"
        identity = compute_input_identity(self.confidential, counted, self.compute_fingerprint(self.key))
        if read_stored_identity(self.confidential, self.key) != identity:
            message = f"the counts of {self.key} and the counters of its users were not written together"
            raise OdError("OD-YEAR-COUNTERS", message, next_step=step)
        files = self._list_checked_files()
        query = _SQL["are_within"](files, self.unit, self._locate_counters(self.key), counted.total)
        if not self._compute_value(query, files):
            message = f"the counters of users of {self.key} and the counts do not agree, or exceed max_trips_year"
            raise OdError("OD-YEAR-COUNTERS", message, next_step=step)

    def count_uncounted_trips(self, max_trips: int) -> int:
        """Confidential: return how many trips of the release are not counted, of at most ``max_trips`` of each user.

        Further trips of a user are ignored, which bounds the sensitivity. The file of counters must have been checked,
        as :func:`od_core.ledger.measurements.begin_release` does.
        """
        path = self._locate_counters(self.key)
        return int(self._compute_value(_SQL["uncounted"](path, max_trips), {"": [path]}))

    def _find_elementary_period(self, key: ReleaseKey) -> str:
        """Return the text of the elementary period of a release. Under a unit of a year, a release has only one."""
        (part,) = Period(key.period).split_into(self.elementary)
        return part.text

    @cached_property
    def _parts(self) -> tuple[Period, ...]:
        """Elementary periods of the year."""
        return list_periods_of_year(Period(self._find_elementary_period(self.key)), self.elementary, self.year)

    @property
    def _folder(self) -> Path:
        """Folder of the counters of the year."""
        return self.confidential.path / _COUNTER_FOLDER / self.domain / name_declared_year(self._parts, self.year)

    def _locate_counters(self, key: ReleaseKey) -> Path:
        """Return the path of the file of counters of a release."""
        return self._folder / self._find_elementary_period(key) / f"{key.release}.{key.period}.r{key.revision}.parquet"

    def _list_checked_files(self, left_out: str | None = None) -> dict[str, list[Path]]:
        """Return the files of counters of the year by elementary period, after checking each.

        ``left_out`` is the elementary period of a release that is about to be counted. The result has no files of this
        period, and the release's own file is not checked, because it is written again. Raises OdError if a file is
        damaged or was made with another key, or that of a drawn release is missing or changed.
        """
        year = sorted(part.text for part in self._parts)
        verified = {self._verify_counters(key) for key in self._list_other_drawn_releases(year)}
        files = {part: sorted((self._folder / part).glob("[!.]*.parquet")) for part in year}  # not temporary files
        unchecked = set() if left_out is None else {self._locate_counters(self.key)}
        for path in chain.from_iterable(files.values()):
            if path not in unchecked:
                self._check_file(path, is_verified=path in verified)
        return {part: paths for part, paths in files.items() if paths and part != left_out}

    def _list_other_drawn_releases(self, year: Sequence[str]) -> list[ReleaseKey]:
        """Return the other drawn releases of the data set whose elementary period is one of ``year``."""
        drawn = self.ledger.list_drawn_periods(self.domain).items()
        return [key for key, periods in drawn if key != self.key and set(year).intersection(periods)]

    def _check_file(self, path: Path, *, is_verified: bool) -> None:
        """Raise OdError if a file of counters was made with another key or is damaged.

        ``is_verified`` says that the file is known not to be damaged.
        """
        if not is_verified:
            _refuse_damaged_file(path)
        if (pq.read_schema(path).metadata or {}).get(b"key") != self.confidential.compute_key_name().encode():
            raise self._make_other_key_error(f"the counters of users in {path.name}")

    def _verify_counters(self, key: ReleaseKey) -> Path:
        """Return the path of the file of counters of a drawn release.

        Raises OdError if the file is missing, has changed, or was made with another key.
        """
        fingerprint = self._read_drawn_fingerprint(key)
        # The key is compared first, because another key also gives another fingerprint.
        if read_stored_identity(self.confidential, key).get("key") != self.confidential.compute_key_name():
            raise self._make_other_key_error(f"the counters of users of {key}")
        if self.compute_fingerprint(key) != fingerprint:
            raise self._make_lost_counters_error(
                f"the counters of users of {key} have changed", "the confidential folder"
            )
        return self._locate_counters(key)

    def compute_fingerprint(self, key: ReleaseKey) -> str:
        """Return the fingerprint (keyed hash) of the stored counters of a release. Raises OdError if there are none."""
        path = self._locate_counters(key)
        make_error = self._make_lost_counters_error if self.ledger.is_drawn(key) else _make_recount_error
        if not path.exists():
            raise make_error(f"the counters of users of {key} are missing", "the confidential folder")
        try:
            with pq.ParquetFile(path) as file:
                return self.confidential.compute_fingerprint(_iterate_columns(file.iter_batches()))
        except (pa.ArrowException, OSError):  # Arrow raises OSError for damaged pages
            raise make_error(f"the counters of users of {key} are damaged", "the confidential folder") from None

    def _read_drawn_fingerprint(self, key: ReleaseKey) -> str:
        """Return the fingerprint of the counters from which a release was drawn. Raises OdError if there is none."""
        stored = read_stored_identity(self.confidential, key).get("counters")
        if stored is None:
            raise self._make_lost_counters_error(
                f"{key} was drawn without counters of users", "the confidential folder"
            )
        return str(stored)

    def _make_other_key_error(self, what: str) -> OdError:
        """Return the OdError for counters that were made with another key; ``what`` begins its message."""
        restored = "confidential/hmac.key as it was then (keep the present one for releases that began with it)"
        return self._make_lost_counters_error(f"{what} were made with another key than the present one", restored)

    def _make_lost_counters_error(self, message: str, restored: str) -> OdError:
        """Return the OdError for counters of a drawn release that cannot be used; ``restored`` is what to restore."""
        return OdError(
            "OD-YEAR-COUNTERS-LOST",
            message,
            next_step=f"restore {restored} from a backup; without it, no further release of the year is counted",
            spent=STAYS_CHARGED if self.ledger.list_level_kinds(self.key) else NOTHING_SPENT,
        )

    def _compute_value(self, query: str, files: dict[str, list[Path]]) -> Any:
        """Return the value that a query over files of counters has as its only result; see :meth:`_run_query`."""
        return self._run_query(query, files)[0][0].as_py()

    def _run_query(self, query: str, files: dict[str, list[Path]]) -> pa.Table:
        """Return the result of a query over files of counters, which need not fit in memory.

        ``files`` are those that the query names, grouped by any text. The query can read no other file.
        """
        folder = self.confidential.make_subfolder(self._folder)
        with open_scratch_database(folder, *chain.from_iterable(files.values())) as connection:
            return connection.sql(query).to_arrow_table()


def _iterate_columns(batches: Iterable[pa.RecordBatch]) -> Iterator[list[NDArray[np.int64]]]:
    """Yield, for each batch of counters, its columns as arrays of 64-bit integers; shape (rows,) each."""
    for batch in batches:
        yield [column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False) for column in batch.columns]


def _refuse_damaged_file(path: Path) -> None:
    """Read the file of counters of a release that is not drawn to its end, and raise OdError if this fails."""
    try:
        with pq.ParquetFile(path) as file:
            for _ in file.iter_batches():
                pass
    except (pa.ArrowException, OSError):
        raise _make_recount_error(f"the counters of users in {path.name} are damaged", path.name) from None


def _make_recount_error(message: str, restored: str) -> OdError:
    """Return the OdError for unusable counters of a release that is not drawn.

    The release can be counted again, or ``restored`` be restored from a backup.
    """
    step = f"run that whole release again, which counts its records; or restore {restored} from a backup"
    return OdError("OD-YEAR-COUNTERS", message, next_step=step)
