"""Name releases by series, period and revision."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath

from od_core.errors import OdError
from od_core.periods import Period
from od_core.privacy.domain import NAME


@dataclass(frozen=True, order=True)
class ReleaseKey:
    """The identity of a release; its text form is ``us_flights/2001-06/r1``.

    Attributes:
        release: name of the release series.
        period: text of a :class:`od_core.periods.Period`, such as ``2001-06`` for a month.
        revision: 1 or more. Each new revision is drawn again and charged again.

    Raises:
        OdError: the name, period or revision is not valid.

    Examples:
        >>> str(ReleaseKey("flights", "2001-06", 2))
        'flights/2001-06/r2'
    """

    release: str
    period: str
    revision: int = 1

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.release):
            raise _make_key_error(
                f"release name {self.release!r} must contain only lower-case letters, digits and underscores"
            )
        _parse_period(self.period)
        if isinstance(self.revision, bool) or not isinstance(self.revision, int) or self.revision < 1:
            raise _make_key_error("the revision is not a whole number of at least 1")

    def __str__(self) -> str:
        return f"{self.release}/{self.period}/r{self.revision}"

    @classmethod
    def parse(cls, text: str) -> ReleaseKey:
        """Return the key whose text form is ``text``. Raises OdError if ``text`` is not the text form of a key."""
        match text.split("/"):
            case [release, period, revision] if re.fullmatch(r"r[1-9][0-9]*", revision):
                return cls(release, period, int(revision[1:]))
        raise _make_key_error(f"{text!r} does not have the form us_flights/2001-06/r1")

    @property
    def folder(self) -> PurePosixPath:
        """Relative path of the release's folder, which is the same below every root folder."""
        return PurePosixPath(str(self))


def select_earlier_releases(key: ReleaseKey, others: Iterable[ReleaseKey]) -> list[ReleaseKey]:
    """Return those of ``others`` whose period ends before that of ``key`` begins, the newest period first.

    Of equal periods, the higher revision is first.
    """
    first_day = _parse_period(key.period).first
    earlier = []
    for other in others:
        end = _parse_period(other.period).end
        if end <= first_day:
            earlier.append((end, other.revision, other))
    return [other for _end, _revision, other in sorted(earlier, reverse=True)]


_parse_period = lru_cache(maxsize=1 << 14)(Period)
"""Return the period of a text. It is cached, because many keys have the same period."""


def _make_key_error(message: str) -> OdError:
    """Return the OdError for a key that is not valid."""
    return OdError("OD-RELEASE-KEY", message, next_step="correct the name, period or revision of the release")
