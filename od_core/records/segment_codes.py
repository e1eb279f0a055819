"""Confidential: number the categories of records, with one code for all breakdowns.

The code of a record has one digit for each breakdown: the position of the record's category in its list. The first
breakdown has the most significant digit. So records are sorted and counted by a single number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from od_core.geography.codes import positions
from od_core.records.segments import Breakdown


def segment_codes(columns: Sequence[pd.Series], breakdowns: Sequence[Breakdown], records: int) -> NDArray[np.int32]:
    """Return the code of each record, or -1 if a category is missing or not listed; shape (records,).

    If its breakdown has a category ``unknown``, such a record has this category instead.

    Args:
        columns: for each breakdown, the categories of the records.
        breakdowns: the breakdowns, at most ``MOST_BREAKDOWNS``.
        records: number of records.
    """
    code, is_listed = np.zeros(records, dtype=np.int32), np.ones(records, dtype=np.bool_)
    for column, breakdown in zip(columns, breakdowns, strict=True):
        category = positions(column, breakdown.categories)
        if breakdown.unknown is not None:
            category[category < 0] = breakdown.categories.index(breakdown.unknown)
        is_listed &= category >= 0
        code = code * np.int32(len(breakdown.categories)) + category
    return np.where(is_listed, code, np.int32(-1))


def by_category(
    code: NDArray[np.integer[Any]], at: int, breakdowns: Sequence[Breakdown]
) -> Iterator[NDArray[np.int64]]:
    """Yield, for each category of a breakdown, the positions of its records in ascending order.

    Args:
        code: code of each record, at least 0; shape (records,).
        at: position of the breakdown.
        breakdowns: all breakdowns.
    """
    sizes = [len(one.categories) for one in breakdowns]
    category = (code // prod(sizes[at + 1 :]) % sizes[at]).astype(np.uint8)  # NumPy sorts bytes in linear time
    order = np.argsort(category, kind="stable")
    ends = np.cumsum(np.bincount(category, minlength=sizes[at]))
    yield from np.split(order, ends[:-1])
