"""Collect the results of a comparison of mechanisms in one table."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd

from od_core.errors import OdError
from od_core.evaluation.comparison import CONTENDERS
from od_core.evaluation.known_flows import published_data_sets

METRICS = ("max_abs_error", "mean_abs_error", "false_discovery_rate", "false_negative_rate")
MEASURED = ("seconds", "peak_memory_gigabytes")

CASE = ["data_set", "contender", "epsilon"]

TABLE_COLUMNS = [
    *(*CASE, "level", "runs", "rho", "bound"),
    *(f"{figure}_{name}" for figure in (*METRICS, *MEASURED) for name in ("median", "min", "max")),
]
"""Columns of the result of :func:`table`, in order."""

_DATA_SETS = tuple(published_data_sets(Path()))
_LABELS = tuple(contender.label for contender in CONTENDERS)


def table(folder: Path) -> pd.DataFrame:
    """Return errors, times and memory of the runs that :func:`od_core.evaluation.comparison.compare` wrote to a folder.

    Returns:
        One row per data set, contender, epsilon and level, with these columns:

        - data_set, contender (label of the mechanism), epsilon (text) and level;
        - runs: number of runs;
        - rho: the rho that a run spent, as exact text; None if the mechanism's cost has no rho;
        - bound: bound of the largest absolute error, which holds with probability 0.95; missing if none is known;
        - max_abs_error, mean_abs_error, false_discovery_rate and false_negative_rate, as in :func:`od_core.evaluate`,
          each as three columns with the suffixes ``_median``, ``_min`` and ``_max`` over the runs;
        - seconds and peak_memory_gigabytes, with the same suffixes and the same values at every level.

    Raises:
        OdError: runs of the same data set, contender and epsilon have different plans or data.
    """
    rows = [row for record in _records(folder) if "levels" in record for row in _levels(record)]
    if not rows:
        return pd.DataFrame(columns=TABLE_COLUMNS)
    groups = pd.DataFrame(rows).groupby([*CASE, "level"], sort=False)
    _refuse_mixed(groups[["plan_digest", "data_digest"]].nunique().max(axis=1))
    result = groups[["rho", "bound"]].first()
    result.insert(0, "runs", groups.size())
    figures = groups[[*METRICS, *MEASURED]].agg(["median", "min", "max"])
    figures.columns = figures.columns.map("_".join)
    return result.join(figures).reset_index()


def refusals(folder: Path) -> pd.DataFrame:
    """Return the runs in a folder of a comparison in which a mechanism refused a data set because of its size.

    Returns:
        One row per data set, contender and epsilon, with the columns data_set, contender (label of the mechanism),
        epsilon (text) and refused (the reason).
    """
    rows = [{name: record[name] for name in (*CASE, "refused")} for record in _records(folder) if "refused" in record]
    return pd.DataFrame(rows, columns=[*CASE, "refused"]).drop_duplicates(CASE, ignore_index=True)


def _records(folder: Path) -> list[dict[str, Any]]:
    """Return the content of all run files, sorted by data set, contender, epsilon and number of the run.

    Known data sets and contenders are in the order of their lists. All others come last.
    """
    records = [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")]
    return sorted(records, key=_place)


def _place(record: dict[str, Any]) -> tuple[Any, ...]:
    data_set, label = record["data_set"], record["contender"]
    return (
        *_position(data_set, _DATA_SETS),
        *_position(label, _LABELS),
        Fraction(record["epsilon"]),
        record["number"],
    )


def _position(name: str, known: tuple[str, ...]) -> tuple[int, str]:
    return (known.index(name) if name in known else len(known), name)


def _levels(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one row of the table of runs for each level of a run."""
    names = [*CASE, "plan_digest", "data_digest", "rho", *MEASURED]
    common = {name: record[name] for name in names}
    bounds = record["bound"] or [None] * len(record["levels"])
    return [common | {"bound": bound} | level for level, bound in zip(record["levels"], bounds, strict=True)]


def _refuse_mixed(kinds: pd.Series) -> None:
    if (kinds > 1).any():
        case = kinds.index.to_frame(index=False).iloc[int(kinds.to_numpy().argmax())]
        raise OdError(
            "OD-EVALUATION-MIXED",
            f"the runs of {case['contender']} on {case['data_set']} at epsilon {case['epsilon']} do not all have"
            " the same plan and the same data",
            next_step="run the comparison again into the same folder, or into an empty one",
        )
