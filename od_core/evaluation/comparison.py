"""Compare mechanisms on known flows, and write the results as tables, also as Markdown for a document."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from od_core.errors import OdError
from od_core.evaluation.known_flows import KnownFlows, synthetic_data_sets
from od_core.evaluation.metrics import bound_of
from od_core.files.durable import PUBLIC_FILE_MODE, make_folder, write_durably
from od_core.flows.mechanisms import Mechanism
from od_core.flows.plan import ReleasePlan, plan_release
from od_core.flows.release import run_plan
from od_core.geography.geography import Geography
from od_core.ledger.measurements import MemoryMeasurements
from od_core.noise.sources import noise_named
from od_core.parallel import threads
from od_core.privacy.budget import Budget
from od_core.privacy.neighbours import NO_FAULTS
from od_core.privacy.unit import PrivacyUnit
from od_core.publication.templates import filled, filled_data
from od_core.records.counts import TripCounts

DELTA = "1e-8"


@dataclass(frozen=True)
class Contender:
    """A mechanism with an accounting method that is compared with others under a label.

    Attributes:
        label: name of the contender in tables and figures.
        mechanism: name of a mechanism, or a mechanism with options.
        conversion: accounting method that converts (epsilon, delta) to rho; None for the mechanism's default. The
            mechanisms of [boninsegna2025inftda] use ``tight``, so a contender with ``tight`` spends the same rho.
    """

    label: str
    mechanism: str | Mechanism
    conversion: str | None = None

    def plan(self, geography: Geography, epsilon: str) -> ReleasePlan:
        """Return a plan for an epsilon (text): trips, bounded neighbours, delta 1e-8, number of trips an invariant."""
        return plan_release(
            geography,
            unit=PrivacyUnit("trip"),
            budget=Budget(epsilon, DELTA, conversion=self.conversion),
            mechanism=self.mechanism,
            acceptance=NO_FAULTS,  # as in the published mechanisms, where n is an invariant
        )


CONTENDERS = (
    *(Contender(name, name) for name in ("inftda", "tda_l2", "tda_linf", "vanilla_gauss", "stability_histogram")),
    Contender("inftda_refined", "inftda_refined"),
    Contender("inftda_refined, rho of the others", "inftda_refined", conversion="tight"),
)
"""Default contenders, compared at equal (epsilon, delta). They also have equal rho, except that ``inftda_refined`` has
another rho, and that ``stability_histogram`` has none."""

EPSILONS = ("0.1", "1", "10")
NUMBER_OF_RUNS = 5
NOISE = "table"

ONE_RUN = {("tda_linf", "italy"), ("tda_linf", "binary complete")}
"""Pairs of mechanism and data set with a single run, because they are slow (milliseconds of a solver per node)."""

ON_REQUEST = {("tda_linf", "italy")}
"""Pairs of mechanism and data set that run only on request, because they take hours."""

TOO_LARGE = "OD-MECHANISM-TOO-LARGE"
"""Error code with which the plan of a mechanism refuses a data set that is too large."""


@dataclass(frozen=True)
class Run:
    """One release of one data set by one contender (compared mechanism), whose errors are measured.

    Attributes:
        data_set: name of the data set.
        contender: the contender that releases the data set.
        epsilon: epsilon of the release, as decimal text.
        number: number of the run, from 1, among the runs with the same data set, contender and epsilon.
    """

    data_set: str
    contender: Contender
    epsilon: str
    number: int

    def path(self, folder: Path) -> Path:
        """Return the path of the file with the result of this run in the folder of a comparison."""
        parts = (self.data_set, self.contender.label, f"epsilon {self.epsilon}", f"run {self.number}")
        return folder / (".".join(re.sub(r"[^\w.]+", "_", part) for part in parts) + ".json")


def planned_runs(
    data_sets: Iterable[str],
    contenders: Sequence[Contender] = CONTENDERS,
    *,
    epsilons: Sequence[str] = EPSILONS,
    number: int = NUMBER_OF_RUNS,
    all_of_them: bool = False,
) -> list[Run]:
    """Return the runs of a comparison, ordered by data set.

    Each combination of the names ``data_sets``, contenders and epsilons (decimal text) has ``number`` runs, or one run
    for the pairs in :data:`ONE_RUN`. The pairs in :data:`ON_REQUEST` are included only if ``all_of_them`` is true.
    """
    runs = []
    for data_set, contender, epsilon in product(data_sets, contenders, epsilons):
        case = (contender.mechanism, data_set)
        if case not in ON_REQUEST or all_of_them:
            runs += [Run(data_set, contender, epsilon, n + 1) for n in range(1 if case in ONE_RUN else number)]
    return runs


def compare(
    runs: Iterable[Run],
    folder: Path,
    data_sets: Mapping[str, Callable[[], KnownFlows]],
    *,
    workers: int = 2,
    progress: Callable[[Run, bool], object] | None = None,
) -> None:
    """Make the runs whose results are missing, each with its own noise, and write the result of each run to its file.

    A run is not repeated if its file exists and has the same plan and data, so a comparison that was killed can be
    resumed. Each process has one data set in memory at a time.

    Args:
        runs: the runs of the comparison, ordered by data set; see :func:`planned_runs`.
        folder: folder of the result files.
        data_sets: functions that make the data sets, by name; they must be picklable.
        workers: number of processes. Each uses one thread, so that times can be compared.
        progress: function that is called for every run with a result, and with True if the run was not skipped.

    Raises:
        OdError: a mechanism fails, or a data set cannot be made. Files that are already written stay. If a mechanism
            refuses a data set because of its size, the refusal is written to the file of the run instead.
    """
    make_folder(folder)
    for left_behind in folder.glob(".*.tmp"):  # left by a process that died while writing
        left_behind.unlink()
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_begin_worker) as pool:
        waiting = {pool.submit(_make, run, folder, data_sets[run.data_set]): run for run in runs}
        try:
            for done in as_completed(waiting):
                made = done.result()
                if progress is not None:
                    progress(waiting[done], made)
        finally:
            pool.shutdown(cancel_futures=True)


def _begin_worker() -> None:
    """Limit this worker process to one thread, and end it when the parent process ends or is killed.

    An interrupt from the keyboard reaches it too. It finishes its run, and the parent process begins no other one.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["OD_THREADS"] = "1"
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # otherwise workers of a killed parent wait for ever


_loaded: dict[str, KnownFlows] = {}
"""The data set that this process has in memory, by name; at most one."""

_compiled: set[str] = set()
"""Digests of the plans that this process has run, and for which code and noise tables are therefore ready."""


def _make(run: Run, folder: Path, make: Callable[[], KnownFlows]) -> bool:
    """Make a run in a worker process and write its file. Returns False if the file already has this run's result."""
    if run.data_set not in _loaded:
        _loaded.clear()  # free memory before the next one is made
        _loaded[run.data_set] = make()
    data, path, plan = _loaded[run.data_set], run.path(folder), None
    record: dict[str, Any] = {
        "data_set": run.data_set,
        "data_digest": data.digest,
        "contender": run.contender.label,
        "epsilon": run.epsilon,
        "delta": DELTA,
        "number": run.number,
        "plan_digest": None,
    }
    try:
        plan = run.contender.plan(data.geography, run.epsilon)
        record["plan_digest"] = plan.digest
    except OdError as error:
        if error.code != TOO_LARGE:
            raise
        record["refused"] = error.message
    if path.exists() and record.items() <= json.loads(path.read_text(encoding="utf-8")).items():
        return False
    if plan is not None:
        record |= released(plan, data)
    text = json.dumps(record, indent=1) + "\n"
    write_durably(path, lambda file: file.write_text(text, encoding="utf-8"), mode=PUBLIC_FILE_MODE)
    return True


def released(plan: ReleasePlan, data: KnownFlows) -> dict[str, Any]:
    """Run one release of known flows, and return its time, threads, peak memory, error bounds and errors by level.

    Before the first run of a plan, a single trip is released, so that the measured time includes neither compilation
    nor the computation of noise tables.
    """
    noise = noise_named(NOISE)
    if plan.digest not in _compiled:
        one_trip = TripCounts(data.trips.rank[:1], np.arange(2, dtype=np.int64))
        run_plan(plan, one_trip, noise, MemoryMeasurements())
        _compiled.add(plan.digest)
    resets = reset_peak_memory()
    start = time.perf_counter()
    release = run_plan(plan, data.trips, noise, MemoryMeasurements())
    seconds = time.perf_counter() - start
    return {
        "mechanism": plan.mechanism.name,
        "rho": None if plan.has_threshold else str(plan.spent.rho),
        "bound": bound_of(plan, data.trips.total),
        "threads": threads(),
        "seconds": seconds,
        "peak_memory_gigabytes": peak_memory_gigabytes() if resets else None,
        "levels": data.truth.errors(release.leaves),
    }


_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak_memory_gigabytes() -> float | None:
    """Return the peak memory of this process since the last reset, in 10^9 bytes; None if the system cannot tell."""
    try:
        lines = _STATUS.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 / 1e9 for line in lines if line.startswith("VmHWM")), None)


def reset_peak_memory() -> bool:
    """Reset the recorded peak memory of this process, and return whether the system can do so."""
    try:
        _CLEAR.write_text("5", encoding="utf-8")
    except OSError:
        return False
    return True


METRICS = ("max_abs_error", "mean_abs_error", "false_discovery_rate", "false_negative_rate")
MEASURED = ("seconds", "peak_memory_gigabytes")

CASE = ["data_set", "contender", "epsilon"]

TABLE_COLUMNS = [
    *(*CASE, "level", "runs", "rho", "bound"),
    *(f"{figure}_{name}" for figure in (*METRICS, *MEASURED) for name in ("median", "min", "max")),
]
"""Columns of the result of :func:`table`, in order."""

_KNOWN = {
    "data_set": (*synthetic_data_sets(), "us_flights"),
    "contender": tuple(contender.label for contender in CONTENDERS),
}
"""Known data sets and contenders, in the order in which they are listed."""


def table(folder: Path) -> pd.DataFrame:
    """Return errors, times and memory of the runs that :func:`compare` wrote to a folder.

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
    common = [*CASE, "plan_digest", "data_digest", "rho", *MEASURED]
    rows = [
        {name: record[name] for name in common} | {"bound": bound} | level
        for record in _records(folder)
        if "levels" in record
        for level, bound in zip(record["levels"], record["bound"] or [None] * len(record["levels"]), strict=True)
    ]
    if not rows:
        return pd.DataFrame(columns=TABLE_COLUMNS)
    groups = pd.DataFrame(rows).groupby([*CASE, "level"], sort=False)
    kinds = groups[["plan_digest", "data_digest"]].nunique().max(axis=1)
    if (kinds > 1).any():
        data_set, contender, epsilon, _ = kinds.index[int(kinds.to_numpy().argmax())]
        raise OdError(
            "OD-EVALUATION-MIXED",
            f"the runs of {contender} on {data_set} at epsilon {epsilon} do not all have the same plan and the same"
            " data",
            next_step="run the comparison again into the same folder, or into an empty one",
        )
    result = groups[["rho", "bound"]].first()
    result.insert(0, "runs", groups.size())
    figures = groups[[*METRICS, *MEASURED]].agg(["median", "min", "max"])
    figures.columns = figures.columns.map("_".join)
    return result.join(figures).reset_index()


def refusals(folder: Path) -> pd.DataFrame:
    """Return the data sets that a mechanism refused because of their size: one row per data set, contender and epsilon.

    The columns are data_set, contender (label of the mechanism), epsilon (text) and refused (the reason).
    """
    rows = [{name: record[name] for name in (*CASE, "refused")} for record in _records(folder) if "refused" in record]
    return pd.DataFrame(rows, columns=[*CASE, "refused"]).drop_duplicates(CASE, ignore_index=True)


def _records(folder: Path) -> list[dict[str, Any]]:
    """Return the content of all run files, sorted by data set, contender, epsilon and number of the run.

    Known data sets and contenders are in the order of their lists. All others come last.
    """

    def place(record: dict[str, Any]) -> tuple[Any, ...]:
        listed = [(*known, record[name]).index(record[name]) for name, known in _KNOWN.items()]
        return (
            *zip(listed, (record[name] for name in _KNOWN), strict=True),
            Fraction(record["epsilon"]),
            record["number"],
        )

    return sorted((json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")), key=place)


LEAVES = ("mean_abs_error", "false_discovery_rate", "false_negative_rate", "seconds", "peak_memory_gigabytes")
PERCENT = ("false_discovery_rate", "false_negative_rate")
NOTHING = "-"

ITALY = "italy"
"""Name of our synthetic data set with the numbers of zones and trips of the published data. Compare magnitudes only."""


def tables_markdown(data_sets: Iterable[KnownFlows], results: pd.DataFrame, refused: pd.DataFrame) -> str:
    """Return all tables of a comparison of mechanisms as a Markdown page, whose template is ``comparison.txt``.

    The first table is as [boninsegna2025inftda, Table 1]. The cells of the others are "median (min-max)" of the runs.
    ``results`` and ``refused`` are those of :func:`table` and :func:`refusals`.
    """
    described = []
    for data in data_sets:
        tree, trips = data.tree, data.trips
        sizes = (trips.total, len(trips.rank), tree.cells(tree.depth))
        described.append([data.name, data.marking, *map(_number, sizes), tree.depth])
    by_case = results.groupby(["data_set", "epsilon"], sort=False)
    return filled(
        "comparison.txt",
        data_sets=described,
        cases=[{"data_set": name, "epsilon": epsilon, **_case(rows)} for (name, epsilon), rows in by_case],
        refused=list(refused.itertuples()),
        published=published_results() if ITALY in set(results["data_set"]) else [],
    )


def published_results() -> list[dict[str, Any]]:
    """Return the results on Italian commuters that [boninsegna2025inftda] published; see the file of the data."""
    results: list[dict[str, Any]] = filled_data("published_comparison.yaml")
    return results


def _case(rows: pd.DataFrame) -> dict[str, Any]:
    """Return the contenders, and the lines of the two tables, of one data set and epsilon."""
    contenders, errors = list(dict.fromkeys(rows["contender"])), []
    for level, some in rows.groupby("level"):
        cells = {row["contender"]: _spread(row, "max_abs_error") for _, row in some.iterrows()}
        errors.append([level, *(cells.get(contender, NOTHING) for contender in contenders)])
    leaves = []
    for _, row in rows[rows["level"] == rows["level"].max()].iterrows():
        rho = f"{float(Fraction(row['rho'])):.4g}" if isinstance(row["rho"], str) else NOTHING
        leaves.append([row["contender"], *(_spread(row, figure) for figure in LEAVES), row["runs"], rho])
    return {"contenders": contenders, "errors": errors, "leaves": leaves}


def _spread(row: Any, figure: str) -> str:
    """Return ``median (min-max)``, the median alone if all three have the same text, or ``-`` if they are missing."""
    values = [row[f"{figure}_{name}"] for name in ("median", "min", "max")]
    if pd.isna(values[0]):
        return NOTHING
    is_rate = figure in PERCENT
    median, least, most = (f"{100 * value:.1f}" if is_rate else _number(value) for value in values)
    return median if median == least == most else f"{median} ({least}-{most})"


def _number(value: float) -> str:
    """Return a number as text: rounded to an integer if whole or at least 100, else with three significant digits."""
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"
