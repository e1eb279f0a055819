"""Confidential: limit the counted trips of each user to the contribution bound m.

All trips of a user above the bound are dropped before anything is counted. The trips of a user are sorted by an
HMAC-SHA256, and the first m are counted. Under unit ``user_year``, fewer are counted if the year allows no more
(:mod:`od_core.ledger.user_counters`). The HMAC covers the user id, the period, the counted fields, and a number that
distinguishes trips of this user with equal fields. So the choice depends neither on the order of the records nor on the
records of other users. The key is chosen without using the data. With the same key, the same trips are chosen when the
release is run again. One SQL text applies the rule to records in files and in memory.

If trips are also counted by segment, trips with equal fields may differ in their segments. A keyed hash of the segment
then decides which of them gets which number. So the bound keeps as many trips of each leaf pair as without segments.

See ``docs/explanation/privacy.md``.
"""

from __future__ import annotations

import pyarrow as pa

from od_core.errors import OdError
from od_core.privacy.unit import PrivacyUnit, whole_match

IS_USER_ID = r"[^\t\n\f\r \p{Z}]"
"""Regular expression, for RE2 and Java, for one visible character. A valid user id has at least one."""

_BLOCK = 64
"""Block length of SHA-256 in bytes. The key is padded with zeros to this length (RFC 2104)."""


def secret_table(key: bytes, period: str) -> pa.Table:
    """Confidential: return the relation ``secret``, which has one row with the key and the period.

    The SQL reads them from this relation, so they appear in no query text and no query plan. The key is stored as the
    two padded keys of HMAC. Raises OdError if the key is shorter than 32 bytes, or longer than 64.
    """
    if not 32 <= len(key) <= _BLOCK:
        raise OdError(
            "OD-KEY-LENGTH",
            "the key that selects users' trips must have 32 to 64 bytes",
            next_step="use ConfidentialFolder.key()",
        )
    padded = key.ljust(_BLOCK, b"\0")
    inner, outer = (bytes(byte ^ mask for byte in padded) for mask in (0x36, 0x5C))
    fields = {"inner_key": pa.array([inner], pa.binary()), "outer_key": pa.array([outer], pa.binary())}
    return pa.table({**fields, "period": [period]})


def id_patterns(unit: PrivacyUnit) -> tuple[str, ...]:
    """Return the regular expressions, for RE2 and Java, each of which must match a part of a valid user id."""
    return (IS_USER_ID,) if unit.id_pattern is None else (IS_USER_ID, whole_match(unit.id_pattern))


def no_user_ids(what: str) -> OdError:
    """Return the OdError for a column whose type cannot be that of user ids.

    Floats are refused, because different ids may be rounded to the same float.
    """
    return OdError(
        "OD-TRIPS-USER-ID",
        f"{what}; user ids are text or whole numbers",
        next_step="read or write the user ids as text",
    )
