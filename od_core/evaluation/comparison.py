"""Compare mechanisms on known flows, and show the results in tables, as Markdown and in figures."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import cycle, product
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from od_core.errors import OdError
from od_core.evaluation.known_flows import KnownFlows, list_synthetic_data_sets
from od_core.evaluation.metrics import (
    bound_largest_errors,
    compute_area_total_errors,
    make_leaf_nodes,
    sum_trips_by_zone,
)
from od_core.extras import require
from od_core.files.durable import PUBLIC_FILE_MODE, make_folder, write_durably
from od_core.flows.mechanisms import InfTDA, Mechanism, StabilityHistogram
from od_core.flows.plan import ReleasePlan, plan_release
from od_core.flows.release import run_plan
from od_core.geography.geography import Geography
from od_core.ledger.measurements import MemoryMeasurements
from od_core.noise.backends import resolve_noise_source
from od_core.parallel import choose_thread_count
from od_core.privacy.budget import Budget
from od_core.privacy.neighbours import NO_FAULTS
from od_core.privacy.unit import PrivacyUnit
from od_core.publication.templates import render_data, render_template
from od_core.records.counts import TripCounts

if TYPE_CHECKING:
    from multiprocessing.synchronize import Event

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
    Contender("inftda, descending", InfTDA("descending")),
    Contender("stability_histogram, the paper's threshold", StabilityHistogram("bun_nissim_stemmer")),
)
"""Default contenders, compared at equal (epsilon, delta). They also have equal rho, except that ``inftda_refined`` has
another rho, and that stability histograms have none."""

EPSILONS = ("0.1", "1", "10")
NUMBER_OF_RUNS = 10
NOISE = "table"

TOO_LARGE = "OD-MECHANISM-TOO-LARGE"
"""Error code with which the plan of a mechanism refuses a data set that is too large."""


@dataclass(frozen=True)
class Run:
    """One release of a data set by a contender at an epsilon (decimal text), whose errors are measured.

    ``number`` counts from 1 among the runs with the same data set, contender and epsilon.
    """

    data_set: str
    contender: Contender
    epsilon: str
    number: int

    def locate_result_file(self, folder: Path) -> Path:
        """Return the path of the file with the result of this run in the folder of a comparison."""
        parts = (self.data_set, self.contender.label, f"epsilon {self.epsilon}", f"run {self.number}")
        return folder / (".".join(re.sub(r"[^\w.]+", "_", part) for part in parts) + ".json")


def list_runs(
    data_sets: Iterable[str],
    contenders: Sequence[Contender] = CONTENDERS,
    *,
    epsilons: Sequence[str] = EPSILONS,
    number: int = NUMBER_OF_RUNS,
) -> list[Run]:
    """Return the runs of a comparison, ordered by data set.

    Each combination of the names ``data_sets``, contenders and epsilons (decimal text) has ``number`` runs.
    """
    cases = product(data_sets, contenders, epsilons, range(1, number + 1))
    return [Run(data_set, contender, epsilon, run) for data_set, contender, epsilon, run in cases]


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
    resumed. Each of the ``workers`` is a process of one thread, so that times can be compared, with one data set in
    memory at a time.

    Args:
        runs: runs ordered by data set; see :func:`list_runs`.
        folder: folder of the result files.
        data_sets: picklable functions that make the data sets, by name.
        progress: called for every run with a result, and with True if the run was not skipped.

    Raises:
        OdError: a mechanism fails, or a data set cannot be made. Files that are already written stay. If a mechanism
            refuses a data set because of its size, the refusal is written to the file of the run instead.
    """
    make_folder(folder)
    for left_behind in folder.glob(".*.tmp"):  # left by a process that died while writing
        left_behind.unlink()
    context = get_context("spawn")
    ended = context.Event()
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_begin_worker, initargs=(ended,)) as pool:
        runs_of_futures = {pool.submit(_make_run, run, folder, data_sets[run.data_set]): run for run in runs}
        try:
            for future in as_completed(runs_of_futures):
                was_made = future.result()
                if progress is not None:
                    progress(runs_of_futures[future], was_made)
        finally:
            ended.set()  # the pool cannot cancel the runs that it holds ready for its workers
            pool.shutdown(cancel_futures=True)


def _begin_worker(ended: Event) -> None:
    """Limit this worker process to one thread, and let it end when the parent process ends or is killed.

    This process ignores an interrupt from the keyboard and finishes its run. The parent process, which gets the
    interrupt too, then sets ``ended``, so that this process makes no further run.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["OD_THREADS"] = "1"
    _end_events.append(ended)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Wait until the parent process ends, then end this process."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # otherwise workers of a killed parent wait for ever


_end_events: list[Event] = []
"""In a worker process, the event that its parent process needs no further run; otherwise empty."""

_loaded_data_sets: dict[str, KnownFlows] = {}
"""The data set that this process has in memory, by name; at most one."""

_prepared_plans: set[str] = set()
"""Digests of the plans that this process has run, and for which code and noise tables are therefore ready."""


def _make_run(run: Run, folder: Path, make_data_set: Callable[[], KnownFlows]) -> bool:
    """Make a run in a worker process, write its file, and return True.

    Return False, without a run, if the file exists for the same plan and data, or if the parent process needs no
    further run. If the mechanism refuses the data set because of its size, the file has the refusal.
    """
    if any(event.is_set() for event in _end_events):
        return False
    if run.data_set not in _loaded_data_sets:
        _loaded_data_sets.clear()  # free memory before the next one is made
        _loaded_data_sets[run.data_set] = make_data_set()
    data, path = _loaded_data_sets[run.data_set], run.locate_result_file(folder)
    plan = None
    record: dict[str, object] = {
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
        record |= measure_release(plan, data)
    text = json.dumps(record, indent=1) + "\n"
    write_durably(path, lambda file: file.write_text(text, encoding="utf-8"), mode=PUBLIC_FILE_MODE)
    return True


def measure_release(plan: ReleasePlan, data: KnownFlows) -> dict[str, object]:
    """Run one release of known flows, and return what was measured, as JSON-ready facts of a result file.

    These are its time in seconds, threads, peak memory, error bounds, biases of the largest zones and errors by level.
    Before the first run of a plan, a single trip is released, so that the measured time includes neither compilation
    nor the computation of noise tables.
    """
    noise = resolve_noise_source(NOISE)
    if plan.digest not in _prepared_plans:
        one_trip = TripCounts(data.trips.rank[:1], np.arange(2, dtype=np.int64))
        run_plan(plan, one_trip, noise, MemoryMeasurements())
        _prepared_plans.add(plan.digest)
    can_measure_memory = reset_peak_memory()
    start = time.perf_counter()
    release = run_plan(plan, data.trips, noise, MemoryMeasurements())
    seconds = time.perf_counter() - start
    true = sum_trips_by_zone(plan.tree, make_leaf_nodes(plan.tree, data.trips))
    released = sum_trips_by_zone(plan.tree, release.leaves)
    area_errors = compute_area_total_errors(true, released)
    return {
        "mechanism": plan.mechanism.name,
        "rho": None if plan.has_threshold else str(plan.spent.rho),
        "bound": bound_largest_errors(plan, data.trips.total),
        "threads": choose_thread_count(),
        "seconds": seconds,
        "peak_memory_gigabytes": read_peak_memory_gigabytes() if can_measure_memory else None,
        **{f"largest_bias_{row['side']}": row["largest_bias"] for row in area_errors},
        "levels": data.truth.compute_errors(release.leaves),
    }


_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def read_peak_memory_gigabytes() -> float | None:
    """Return the peak memory of this process since the last reset, in 10^9 bytes; None if the system cannot tell."""
    try:
        lines = _STATUS.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("VmHWM"):
            _, kibibytes, _ = line.split()
            return int(kibibytes) * 1024 / 1e9
    return None


def reset_peak_memory() -> bool:
    """Reset the recorded peak memory of this process, and return whether the system can do so."""
    try:
        _CLEAR.write_text("5", encoding="utf-8")  # 5 resets VmHWM: proc(5)
    except OSError:
        return False
    return True


METRICS = ("max_abs_error", "mean_abs_error", "false_discovery_rate", "false_negative_rate")
BIASES = ("largest_bias_origin", "largest_bias_destination")
MEASURED = ("seconds", "peak_memory_gigabytes", *BIASES)

CASE = ["data_set", "contender", "epsilon"]

TABLE_COLUMNS = [
    *(*CASE, "level", "runs", "rho", "bound"),
    *(f"{figure}_{name}" for figure in (*METRICS, *MEASURED) for name in ("median", "min", "max")),
]
"""Columns of the result of :func:`read_comparison_results`, in order."""

_KNOWN = {
    "data_set": (*list_synthetic_data_sets(), "us_flights"),
    "contender": tuple(contender.label for contender in CONTENDERS),
}
"""Known data sets and contenders, in the order in which they are listed."""


def read_comparison_results(folder: Path) -> pd.DataFrame:
    """Return errors, times and memory of the runs that :func:`compare` wrote to a folder.

    Returns:
        One row per data set, contender, epsilon and level, with these columns:

        - data_set, contender (label of the mechanism), epsilon (text) and level;
        - runs: number of runs;
        - rho: the rho that a run spent, as exact text; None if the mechanism's cost has no rho;
        - bound: bound of the largest absolute error, which holds with probability 0.95; missing if none is known;
        - max_abs_error, mean_abs_error, false_discovery_rate and false_negative_rate, as in :func:`od_core.evaluate`,
          each as three columns with the suffixes ``_median``, ``_min`` and ``_max`` over the runs;
        - seconds, peak_memory_gigabytes, largest_bias_origin and largest_bias_destination (the bias of the largest
          zones' totals, as in :func:`od_core.evaluate_area_totals`), with the same suffixes and the same values at
          every level. The biases are missing if an earlier version made a run.

    Raises:
        OdError: runs of the same data set, contender and epsilon have different plans or data.
    """
    names = [*CASE, "plan_digest", "data_digest", "rho", *MEASURED]
    rows = []
    for record in _read_run_files(folder):
        if "levels" in record:  # otherwise, the mechanism refused the data set
            common = {name: record.get(name, np.nan) for name in names}
            bounds = record["bound"] or [None] * len(record["levels"])
            rows += [common | {"bound": bound} | level for level, bound in zip(record["levels"], bounds, strict=True)]
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


def read_refusals(folder: Path) -> pd.DataFrame:
    """Return the data sets that a mechanism refused because of their size: one row per data set, contender and epsilon.

    The columns are data_set, contender (label of the mechanism), epsilon (text) and refused (the reason).
    """
    rows = [
        {name: record[name] for name in (*CASE, "refused")} for record in _read_run_files(folder) if "refused" in record
    ]
    return pd.DataFrame(rows, columns=[*CASE, "refused"]).drop_duplicates(CASE, ignore_index=True)


def _read_run_files(folder: Path) -> list[dict[str, Any]]:
    """Return the records of all run files, sorted by data set, contender, epsilon and number.

    Known data sets and contenders are in the order of their lists. Others follow, by name.
    """

    def make_sort_key(record: Mapping[str, Any]) -> tuple[object, ...]:
        positions = []
        for name, known in _KNOWN.items():
            value = record[name]
            position = known.index(value) if value in known else len(known)
            positions.append((position, value))
        return (*positions, Fraction(record["epsilon"]), record["number"])

    records = [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")]
    return sorted(records, key=make_sort_key)


LEAVES = (*METRICS[1:], *BIASES, "seconds", "peak_memory_gigabytes")
PERCENT = (*METRICS[2:], *BIASES)
NOTHING = "-"

ITALY = "italy"
"""Name of our synthetic data set with the numbers of zones and trips of the published data. Compare magnitudes only."""


def render_comparison_tables(data_sets: Iterable[KnownFlows], results: pd.DataFrame, refused: pd.DataFrame) -> str:
    """Return all tables of a comparison of mechanisms as a Markdown page, whose template is ``comparison.txt``.

    The first table is as [boninsegna2025inftda, Table 1]. The cells of the others are "median (min-max)" of the runs.
    ``results`` and ``refused`` are those of :func:`read_comparison_results` and :func:`read_refusals`.
    """
    described = []
    for data in data_sets:
        tree, trips = data.tree, data.trips
        sizes = (trips.total, len(trips.rank), tree.cells(tree.depth))
        described.append([data.name, data.marking, *map(_format_number, sizes), tree.depth])
    by_case = results.groupby(["data_set", "epsilon"], sort=False)
    return render_template(
        "comparison.txt",
        data_sets=described,
        cases=[{"data_set": name, "epsilon": epsilon, **_make_case_tables(rows)} for (name, epsilon), rows in by_case],
        refused=list(refused.itertuples()),
        published=read_published_results() if ITALY in set(results["data_set"]) else [],
    )


def read_published_results() -> list[dict[str, Any]]:
    """Return the results on Italian commuters that [boninsegna2025inftda] published; see the file of the data."""
    results: list[dict[str, Any]] = render_data("published_comparison.yaml")
    return results


def _make_case_tables(rows: pd.DataFrame) -> dict[str, object]:
    """Return the facts of the two tables of one data set and epsilon, whose results are ``rows``.

    ``contenders`` are the labels. Each line of ``errors`` has a level, and its largest error with each contender. Each
    line of ``leaves`` has a contender, its ``LEAVES`` at the lowest level, its number of runs and its rho.
    """
    contenders = list(dict.fromkeys(rows["contender"]))
    errors = []
    for level, rows_of_level in rows.groupby("level"):
        cells = {row["contender"]: _format_spread(row, "max_abs_error") for _, row in rows_of_level.iterrows()}
        errors.append([level, *(cells.get(contender, NOTHING) for contender in contenders)])
    leaves = []
    for _, row in rows[rows["level"] == rows["level"].max()].iterrows():
        rho = f"{float(Fraction(row['rho'])):.4g}" if isinstance(row["rho"], str) else NOTHING
        leaves.append([row["contender"], *(_format_spread(row, figure) for figure in LEAVES), row["runs"], rho])
    return {"contenders": contenders, "errors": errors, "leaves": leaves}


def _format_spread(row: pd.Series, figure: str) -> str:
    """Return the text ``median (min-max)`` of a figure, such as ``seconds``, over the runs of a row of results.

    It is the median alone if all three have the same text, and ``-`` if one is missing. Shares are in percent.
    """
    values = [row[f"{figure}_{name}"] for name in ("median", "min", "max")]
    if any(pd.isna(value) for value in values):
        return NOTHING
    texts = [f"{100 * value:.1f}" if figure in PERCENT else _format_number(value) for value in values]
    median, minimum, maximum = texts
    return median if median == minimum == maximum else f"{median} ({minimum}-{maximum})"


def _format_number(value: float) -> str:
    """Return a number of at least 0 as text: whole if it is whole or at least 100, else with 3 significant digits."""
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


STYLES = {
    "inftda": ("#0072B2", "o"),
    "tda_l2": ("#E69F00", "s"),
    "tda_linf": ("#009E73", "^"),
    "vanilla_gauss": ("#666666", "D"),
    "stability_histogram": ("#CC79A7", "v"),
    "inftda_refined": ("#D55E00", "P"),
    "inftda_refined, rho of the others": ("#56B4E9", "X"),
    "inftda, descending": ("#332288", "<"),
    "stability_histogram, the paper's threshold": ("#882255", ">"),
}
"""Colour and mark of each known contender (compared mechanism), by label.

Colour-blind readers can distinguish the colours [okabe2008colour]; the marks serve print without colour."""

OTHER_STYLES = (("#000000", "*"), ("#8C510A", "p"), ("#5E3C99", "h"), ("#A6761D", "8"))

SYNTHETIC = ("binary complete", "binary dense", "binary sparse", "random complete", "random dense", "random sparse")
SPARSE = ("binary sparse", "random sparse")

ERROR, DISCOVERIES, SECONDS = "max_abs_error", "false_discovery_rate", "seconds"
TITLES = {ERROR: "largest error (trips)", DISCOVERIES: "false discovery rate (%)", SECONDS: "time (seconds)"}

BOUNDED = ("inftda", "vanilla_gauss", "stability_histogram")
"""Mechanisms whose error bounds are drawn. The bound of ``inftda`` also holds for ``tda_l2`` and ``tda_linf``."""
BOUND_LABEL = "bounds, probability 0.95"

MARKS: Any = {"markersize": 3.5, "linewidth": 0.9, "elinewidth": 0.9, "capsize": 1.5}

STYLE_SHEET = Path(__file__).with_name("figures.mplstyle")
"""Style sheet of Matplotlib for all figures."""

LEAST_WIDTH, LEGEND_ENTRY = 5.8, 2.9
"""Smallest width of a figure, and width of the longest legend entry, in inches."""

Styles = dict[str, tuple[str, str]]
"""Colour and mark of every compared mechanism in a figure, by label and in the order of the legend."""

Panel = Callable[["Axes", pd.DataFrame, Styles], None]
"""Function that draws the results of one data set and one epsilon on axes."""


def draw_figures(table: pd.DataFrame, folder: Path) -> list[Path]:
    """Draw every figure for which :func:`read_comparison_results` returned data, and return the paths of the files.

    They are ``figure-3-<data set>`` for each data set, ``figure-4-errors``, ``figure-5-false-discoveries`` and
    ``figure-6-times``, each as .svg and .png. Marks are medians of the runs, and bars extend from the smallest to the
    largest value [boninsegna2025inftda, Figures 3 to 6]. The same table gives the same SVG, byte for byte, with the
    same version of Matplotlib.
    """
    require("bundle")
    from matplotlib import style

    folder.mkdir(parents=True, exist_ok=True)
    data_sets = list(dict.fromkeys(table["data_set"]))
    figures: dict[str, Callable[[], Figure]] = {
        f"figure-3-{name.replace(' ', '-')}": partial(make_figure_3, table, name) for name in data_sets
    }
    if set(data_sets) & set(SYNTHETIC):
        figures |= {
            "figure-4-errors": partial(make_figure_by_level, table, SYNTHETIC, ERROR),
            "figure-6-times": partial(make_figure_6, table),
        }
    if set(data_sets) & set(SPARSE):
        figures["figure-5-false-discoveries"] = partial(make_figure_by_level, table, SPARSE, DISCOVERIES)
    paths = []
    with style.context(STYLE_SHEET):
        for name, draw in figures.items():
            figure = draw()
            vector, raster = folder / f"{name}.svg", folder / f"{name}.png"
            figure.savefig(vector, metadata={"Date": None})  # the date would change the bytes
            figure.savefig(raster, dpi=160, metadata={"Software": None})
            paths += [vector, raster]
    return paths


def make_figure_3(table: pd.DataFrame, data_set: str) -> Figure:
    """Return the figure of one data set in the table of :func:`draw_figures`, with one column of panels per epsilon.

    The rows of panels have the largest error by level, the false discovery rate by level, and the time of a release.
    """
    rows = table[table["data_set"] == data_set]
    shortest, longest = np.log10([rows["seconds_min"].min(), rows["seconds_max"].max()])
    # The axis spans whole decades, since only decades have labels.
    whole_decades = 10 ** float(np.floor(shortest)), 10 ** float(np.floor(longest) + 1)
    panels: list[tuple[str, Panel]] = [
        (TITLES[metric], partial(_draw_metric_by_level, metric)) for metric in (ERROR, DISCOVERIES)
    ]
    panels.append(("", partial(_draw_times_by_contender, whole_decades)))
    return _draw_panels_by_epsilon([(title, rows, panel) for title, panel in panels])


def make_figure_by_level(table: pd.DataFrame, wanted: Sequence[str], metric: str) -> Figure:
    """Return a figure of one metric by level: figure 4 of the largest errors, or figure 5 of the false discoveries.

    It has one row per wanted data set in the table of :func:`draw_figures`, and one column per epsilon.
    """
    panel = partial(_draw_metric_by_level, metric)
    lines: list[tuple[str, pd.DataFrame, Panel]] = []
    for name in wanted:
        rows = table[table["data_set"] == name]
        if len(rows):
            lines.append((f"{name}\n{TITLES[metric]}", rows, panel))
    return _draw_panels_by_epsilon(lines)


def make_figure_6(table: pd.DataFrame) -> Figure:
    """Return a figure of release times by epsilon for synthetic data sets in the table of :func:`draw_figures`."""
    from matplotlib.figure import Figure

    names = [name for name in SYNTHETIC if name in set(table["data_set"])]
    styles = _choose_styles(table[table["data_set"].isin(names)])
    columns = min(3, len(names))
    lines = math.ceil(len(names) / columns)
    figure = Figure(figsize=(max(2.8 * columns + 0.5, LEAST_WIDTH), 2.2 * lines + 0.8), layout="constrained")
    grid = figure.subplots(lines, columns, sharey=True, squeeze=False)
    for axes in grid.flat[len(names) :]:
        axes.set_visible(False)
    for axes, name in zip(grid.flat, names, strict=False):
        axes.set_title(name)
        rows = table[table["data_set"] == name]
        epsilons = sorted(set(rows["epsilon"]), key=Fraction)
        for label, shift in _iterate_shifts(styles):
            times = rows[rows["contender"] == label].drop_duplicates("epsilon")  # each level states the same time
            if len(times):
                places = times["epsilon"].map(epsilons.index) + 1.5 * shift
                _draw_marks(axes, styles[label], times, SECONDS, places, linestyle="none")
        axes.set_yscale("log")
        axes.set_xticks(range(len(epsilons)), [f"ε = {epsilon}" for epsilon in epsilons])
        axes.grid(visible=False, axis="x")
    for line in grid:
        line[0].set_ylabel(TITLES[SECONDS])
    _draw_legend(figure, styles)
    return figure


def _draw_panels_by_epsilon(lines: Sequence[tuple[str, pd.DataFrame, Panel]]) -> Figure:
    """Return a figure with one row of panels per (title, results, panel function), and one column per epsilon."""
    from matplotlib.figure import Figure

    styles = _choose_styles(pd.concat([rows for _, rows, _ in lines]))
    epsilons = sorted({epsilon for _, rows, _ in lines for epsilon in rows["epsilon"]}, key=Fraction)
    figure = Figure(figsize=(max(2.7 * len(epsilons) + 0.9, LEAST_WIDTH), 1.9 * len(lines) + 0.9), layout="constrained")
    grid = figure.subplots(len(lines), len(epsilons), sharey="row", squeeze=False)
    for line, (title, rows, panel) in zip(grid, lines, strict=True):
        for axes, epsilon in zip(line, epsilons, strict=True):
            panel(axes, rows[rows["epsilon"] == epsilon], styles)
        line[0].set_ylabel(title)
    for axes, epsilon in zip(grid[0], epsilons, strict=True):
        axes.set_title(f"ε = {epsilon}")
    for above, below in zip(grid[:-1].flat, grid[1:].flat, strict=True):
        if above.get_xlabel() == below.get_xlabel():  # the lowest of equal axes has the label for all
            above.set_xlabel("")
    _draw_legend(figure, styles)
    return figure


def _draw_metric_by_level(metric: str, axes: Axes, rows: pd.DataFrame, styles: Styles) -> None:
    """Draw ``metric`` (largest error or false discovery rate) by level, with the bounds of the largest errors.

    ``rows`` are the results of one data set and epsilon. The scale of the largest error is linear up to 1 trip, and
    then logarithmic.
    """
    for label, shift in _iterate_shifts(styles):
        results = rows[rows["contender"] == label].sort_values("level")
        if len(results):
            _draw_marks(axes, styles[label], results, metric, results["level"] + shift)
        if len(results) and metric == ERROR and label in BOUNDED:
            bounds = results.dropna(subset="bound")
            colour, _ = styles[label]
            axes.plot(bounds["level"], bounds["bound"], linestyle="--", color=colour, linewidth=0.9, zorder=1)
    if metric == ERROR:
        axes.set_yscale("symlog", linthresh=1)
    axes.autoscale(axis="y")  # to the data of this panel, too: the panel before has fixed the scale that they share
    axes.set_ylim(bottom=-0.4 if metric == ERROR else -4, top=max(axes.get_ylim()[1], 10))  # do not cut off marks at 0
    last = int(rows["level"].max()) if len(rows) else 0
    levels_per_tick = 4 if last > 8 else 1
    axes.set_xticks(range(0, last + 1, levels_per_tick))
    axes.set_xlabel("level of the flow tree")


def _draw_times_by_contender(limits: tuple[float, float], axes: Axes, rows: pd.DataFrame, styles: Styles) -> None:
    """Draw the times of releases at one epsilon, one line per mechanism.

    ``limits`` are the ends of the time axis, in seconds.
    """
    for position, (label, style) in enumerate(styles.items()):
        times = rows[rows["contender"] == label].head(1)  # each level states the same time
        if len(times):
            _draw_marks(axes, style, times, SECONDS, [position], across=True)
    labels = [label.replace(", ", ",\n") if len(label) > 20 else label for label in styles]
    axes.set_yticks(range(len(styles)), labels, fontsize=6.5, linespacing=1)
    axes.set_ylim(len(styles) - 0.5, -0.5)
    axes.set_xscale("log")
    axes.set_xlim(*limits)
    axes.xaxis.set_minor_formatter("")
    axes.set_xlabel(TITLES[SECONDS])


def _draw_marks(
    axes: Axes,
    style: tuple[str, str],
    rows: pd.DataFrame,
    metric: str,
    places: Any,
    *,
    across: bool = False,
    **line: Any,
) -> None:
    """Draw the medians of a metric, with bars from the least to the largest value.

    Args:
        style: colour and marker.
        places: positions of the rows on the other axis: numbers, one for all rows or one each.
        across: True if the values are on the horizontal axis.
        line: further options of ``Axes.errorbar``.
    """
    factor = 100 if metric == DISCOVERIES else 1  # shares are drawn in percent
    spread = (factor * rows[f"{metric}_{name}"].to_numpy(dtype=float) for name in ("median", "min", "max"))
    median, minimum, maximum = spread
    bars = np.array([median - minimum, maximum - median])
    colour, marker = style
    options = {"color": colour, "marker": marker, **line, **MARKS}
    if across:
        axes.errorbar(median, places, xerr=bars, **options)
    else:
        axes.errorbar(places, median, yerr=bars, **options)


def _iterate_shifts(styles: Styles) -> Iterator[tuple[str, float]]:
    """Yield each mechanism's label and horizontal offset, in units of the axis, which keeps bars apart."""
    distance = 0.08
    middle = (len(styles) - 1) / 2
    for position, label in enumerate(styles):
        yield label, (position - middle) * distance


def _draw_legend(figure: Figure, styles: Styles) -> None:
    """Draw one legend below all panels, with an entry for bounds if a bound is drawn."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=colour, marker=marker, markersize=5, linewidth=1, label=label)
        for label, (colour, marker) in styles.items()
    ]
    lines = [line for axes in figure.axes for line in axes.lines]
    if any(line.get_linestyle() == "--" and np.size(line.get_xdata()) for line in lines):  # only bounds are dashed
        handles.append(Line2D([], [], color="#222222", linestyle="--", linewidth=1.1, label=BOUND_LABEL))
    figure.legend(handles=handles, loc="outside lower center", ncols=min(3, int(figure.get_figwidth() // LEGEND_ENTRY)))


def _choose_styles(rows: pd.DataFrame) -> Styles:
    """Return colour and mark of every mechanism in the rows, by label: those in ``STYLES`` first, then all others."""
    labels = list(dict.fromkeys(rows["contender"]))
    known = {label: style for label, style in STYLES.items() if label in labels}
    other_labels = [label for label in labels if label not in STYLES]
    return known | dict(zip(other_labels, cycle(OTHER_STYLES), strict=False))
