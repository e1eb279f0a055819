"""Types of columns as messages name them: a whole type may hold values of records, as an enumeration's does."""

from __future__ import annotations

import re


def base_name(kind: object) -> str:
    """The name of a type of a data frame, without what it is made of: fields, values, fill values, units.

    >>> base_name("struct<home: string>"), base_name("Sparse[float64, 3.5]"), base_name("decimal(9,2)")
    ('struct', 'Sparse', 'decimal')
    """
    return re.split(r"[<(\[]", str(kind), maxsplit=1)[0]
