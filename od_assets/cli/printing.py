"""Print tables, plans, releases and their guarantees on the command line."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from jinja2 import DictLoader, Environment, StrictUndefined, is_undefined
from rich.table import Table
from rich.text import Text

from od_assets.terminal import WRONG, console, print_json
from od_core.flows.estimators import ESTIMATORS
from od_core.periods import Period
from od_core.privacy.accounting import compute_tight_epsilon, format_promise, format_rounded_down, format_rounded_up
from od_core.publication.number_formats import format_rounded, format_trips_rounded_up

if TYPE_CHECKING:  # importing Dagster or pandas takes half a second
    import pandas as pd

    from od_assets.runs.jobs import Outcome
    from od_assets.runs.period_status import ReleaseStatus
    from od_assets.series.series import G, P, Series
    from od_core import Plan, Spent
    from od_core.meaning.subject import Subject
    from od_core.published.derived import PublishedFlows
    from od_core.published.explanation import Explanation

_NUMBER = re.compile(r"-?[\d,]+(\.\d+)?(e-?\d+)?")
"""Pattern of the text of a number."""

_TEXTS = tomllib.loads(Path(__file__).with_name("texts.toml").read_text(encoding="utf-8"))


def print_status(rows: list[ReleaseStatus], *, may_run: bool = True, every: bool = False) -> None:
    """Print the state of releases, and which settings were changed since they were published or begun.

    Releases of a series that follow each other in the same state share a row, and periods that are not begun are only
    named, unless ``every`` release has its own row. ``may_run`` says whether a run may be working on a release that is
    only begun.
    """
    ranges = rows if every else _merge_consecutive_releases(rows)
    not_begun = [] if every else [row["release"] for row in ranges if row["state"] == "not begun"]
    shown = [row for row in ranges if row["release"] not in not_begun]
    if shown:
        print_table("releases", shown)
    if not_begun:
        say("status.not_begun", names=not_begun)
    if not may_run:
        _print_stopped_releases([row["release"] for row in rows if row["state"] == "begun"])
    _print_changed_settings([row for row in rows if row["settings_changed"]])


def _print_stopped_releases(begun: Sequence[str]) -> None:
    """Print that releases are begun and nobody works on them, and how they go on."""
    for release in begun:
        say("status.begun", release=release)
    if begun:
        console.print("Run such a period again: it reads back what was measured.")


def _print_changed_settings(rows: Sequence[ReleaseStatus]) -> None:
    """Print which settings of releases were changed since they were published or begun."""
    for row in rows:
        names = [name.replace("_", " ") for name in row["settings_changed"] or ()]
        console.print(format_sentence("status.changed", names=names, **row), soft_wrap=True)
    if rows:
        say("status.stays")


_LEFT_FIELDS: tuple[Literal["data_set_rho_left", "data_set_epsilon_left"], ...] = (
    "data_set_rho_left",
    "data_set_epsilon_left",
)
"""Fields of what a data set has left, of which one is stated."""


def _merge_consecutive_releases(rows: Iterable[ReleaseStatus]) -> list[ReleaseStatus]:
    """Return rows in which one row stands for consecutive periods of a series and revision in the same state.

    The rows must be in the order of their periods. A merged row names the first and the last period, and has the least
    that the data set has left in any of them.
    """
    from od_core.ledger.release_key import ReleaseKey  # imports NumPy

    ranges: list[ReleaseStatus] = []
    group_before = end_before = None
    for row in rows:
        key = ReleaseKey.parse(row["release"])
        period = Period(key.period)
        may_differ = {"release", *_LEFT_FIELDS}
        if row["state"] == "waits":
            may_differ.add("waits_for")
        group = key.release, key.revision, {name: fact for name, fact in row.items() if name not in may_differ}
        if group == group_before and period.first == end_before:
            merged = ranges[-1]
            first = merged["release"].partition(" to ")[0].removesuffix(f"/r{key.revision}")
            merged["release"] = f"{first} to {key.period}/r{key.revision}"
            for name in _LEFT_FIELDS:
                known = [left for left in (merged[name], row[name]) if left is not None]
                merged[name] = min(known, default=None)
        else:
            ranges.append(row.copy())
        group_before, end_before = group, period.end
    return ranges


@cache
def make_sentence_templates() -> Environment:
    """Return the environment of Jinja with the sentences of ``texts.toml`` as templates, such as ``plan.spends``.

    Its filters format numbers, and keep a missing value missing.
    """
    texts: dict[str, str] = {}
    for group, sentences in _TEXTS["sentences"].items():
        texts |= {f"{group}.{name}": text for name, text in sentences.items()}
    environment = Environment(loader=DictLoader(texts), undefined=StrictUndefined, trim_blocks=True)  # noqa: S701  # text for a terminal
    number_filters: dict[str, Callable[..., str]] = {
        "above": format_rounded_up,
        "below": format_rounded_down,
        "rounded": format_rounded,
        "trips": format_trips_rounded_up,
        "percent_at_most": partial(_format_percent, rounding=ROUND_CEILING),
        "percent_at_least": partial(_format_percent, rounding=ROUND_FLOOR),
        "percent_about": partial(_format_percent, rounding=ROUND_HALF_EVEN),
    }
    environment.filters |= {name: partial(_format_if_known, formatter) for name, formatter in number_filters.items()}
    environment.filters |= {"quoted": repr, "promise": lambda spent: format_promise(spent.epsilon, spent.delta)}
    return environment


def _format_if_known(formatter: Callable[..., str], value: Any, *options: object) -> str | None:
    """Return the text of a formatter for a number; None if the value is None, undefined in a template, or NaN."""
    if value is None or is_undefined(value) or math.isnan(value):
        return None
    return formatter(value, *options)


def _format_percent(value: float, rounding: str) -> str:
    """Return a probability in percent, rounded to four significant digits in the mode ``rounding``."""
    return f"{Context(prec=4, rounding=rounding).create_decimal(100 * Decimal(repr(value))).normalize():f} %"


def format_sentence(name: str, /, **values: object) -> str:
    """Return a sentence of ``texts.toml`` with the given values. A ``subject`` also provides its ``nouns``."""
    if "subject" in values:
        values["nouns"] = cast("Subject", values["subject"]).nouns
    return " ".join(make_sentence_templates().get_template(name).render(values).split())


def say(name: str, ending: str = "", /, **values: object) -> None:
    """Print a sentence of ``texts.toml``, filled in with values, and an ending such as an empty line."""
    console.print(format_sentence(name, **values) + ending)


def print_frame(title: str, frame: pd.DataFrame) -> None:
    """Print a data frame as :func:`print_rows` does."""
    print_rows(title, frame.to_dict("records"))


def print_rows(title: str, rows: Sequence[Mapping[Any, object]]) -> None:
    """Print rows with the same columns as a table, without columns that have no value.

    If the table is wider than the console, print each row as a line of names and values instead.
    """
    shown = {}
    for column in rows[0] if rows else ():
        texts = [_format_cell(row[column]) for row in rows]
        if {*texts} != {"-"}:
            shown[str(column).replace("_", " ")] = texts
    table = Table(title=title, title_justify="left")
    for heading, texts in shown.items():
        is_numeric = all(_NUMBER.fullmatch(text) for text in texts if text != "-")
        table.add_column(heading, justify="right" if is_numeric else "left", overflow="fold")
    lines = list(zip(*shown.values(), strict=True))
    for line in lines:
        table.add_row(*line)
    unlimited = console.options.update(width=9999)
    if console.measure(table, options=unlimited).minimum <= console.width:
        console.print(table)
        return
    console.print(title)  # the table would break words and numbers
    _, *headings = shown
    for first, *others in lines:
        named = [f"{heading} {text}" for heading, text in zip(headings, others, strict=True)]
        console.print(f"- {first}", *named, sep="; ")


def print_table(name: str, rows: Iterable[object]) -> None:
    """Print a table of ``texts.toml``, which has a title, and headings with expressions on ``row``."""
    table = dict(_TEXTS["tables"][name])
    title = table.pop("title")
    columns = {
        heading: make_sentence_templates().compile_expression(expression) for heading, expression in table.items()
    }
    print_rows(title, [{heading: expression(row=row) for heading, expression in columns.items()} for row in rows])


def _format_cell(value: object) -> str:
    """Return the text of a cell, with thousands separators in numbers; a dash for a missing value."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return "-" if math.isnan(value) else f"{value:,.6g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


_MAX_PAIRS_FOR_AUTO = 4_000_000
"""Largest number of pairs of zones for which ``estimate: auto`` is suggested: above it, it takes many seconds."""


def print_plan(series: Series[P, G], plan: Plan, *, verbose: bool) -> None:
    """Print what one period would spend, and what could be read in it.

    If ``verbose``, add the noise, the expected errors and the exact charge of each step, and the conversions between
    rho and epsilon.
    """
    from od_core.meaning.subject import Subject  # imports NumPy

    subject = Subject.from_plan(plan, series.about_facts)
    say("plan.spends", "\n", name=series.name, domain=series.domain, plan=plan)
    if subject.is_of_year:
        console.print(f"{describe_cost_of_year(series, plan, subject)}\n", soft_wrap=True)
    if plan.known_to_within:
        _print_accuracy(plan, subject, verbose=verbose)
    else:
        console.print("\n".join(plan.verdicts()), "\n", sep="")
    console.print(f"Meaning of a row of the records: {series.columns.row}.\n")
    if verbose:
        exact = plan.to_frame()
        if not subject.nouns.has_pairs:
            exact = exact.drop(columns="destination_level", errors="ignore")
            exact = exact.rename(columns={"origin_level": "area_level"})
        bounds = {name: exact[name].map(format_rounded_up) for name in ("rho", "epsilon") if name in exact}
        print_frame(f"{series.name}: what one period measures", exact.assign(**bounds))
        say("plan.budget", "\n", spent=plan.spent, plan=plan)


def describe_cost_of_year(series: Series[P, G], plan: Plan, subject: Subject) -> str:
    """Return sentences on what a year of releases like this one costs, and what it would cost without its bound.

    If the number of uncounted trips is measured, they say how well it is known.
    """
    from od_core.flows.interval_ends import DEVIATIONS  # imports NumPy

    periods = len(series.domain.periods_of_year(series.periods.first))
    rho = plan.rho_of_year(plan.spent, periods)
    rho_without_bound = periods * plan.spent.rho
    uncounted = plan.uncounted_step
    return format_sentence(
        "plan.year",
        subject=subject,
        plan=plan,
        periods=periods,
        bounded=rho,
        epsilon=compute_tight_epsilon(rho, plan.spent.delta),
        unbounded=rho_without_bound,
        other=compute_tight_epsilon(rho_without_bound, plan.spent.delta),
        times=f"{math.sqrt(rho_without_bound / rho):.3g}",
        width=None if uncounted is None else f"{math.ceil(DEVIATIONS * math.sqrt(uncounted.variance)):,}",
    )


def name_levels(steps: pd.DataFrame) -> pd.Series:
    """Return the name of what each step of a plan measures, such as ``state x region by mode``.

    ``steps`` is the table of the steps (``plan.to_frame()``).
    """
    names = steps["origin_level"]
    if (steps["destination_level"] != "all").any():
        names = names + " x " + steps["destination_level"]
    if "breakdown" in steps:
        names = names + steps["breakdown"].map(lambda name: f" by {name}" if name else "")
    return names


def _print_accuracy(plan: Any, subject: Subject, *, verbose: bool) -> None:
    """Print how exactly a number of each level is known, and advice on other choices of a plan.

    If ``verbose``, also print noise and expected errors.
    """
    nouns = subject.nouns
    steps = plan.to_frame()
    levels = name_levels(steps)
    widths = levels.map(plan.known_to_within, "ignore")
    columns = {"level": levels, "cells" if plan.segments else nouns.pairs: steps["public_cells"]}
    columns["90 % interval, about ±"] = widths.map(format_trips_rounded_up, "ignore")
    if verbose:
        columns["noise of one measurement"] = steps["standard_deviation"].map(format_rounded)
        columns["expected error"] = steps["expected_error"].map(format_rounded)
    print_frame(f"Accuracy of {nouns.cells}, in {nouns.counted}", steps[[]].assign(**columns))
    say("plan.intervals", "\n", subject=subject, plan=plan)
    if verbose:
        say("plan.errors", "\n", subject=subject)
    found = plan.find_less_error()
    if found is not None:
        other, error_ratio = found
        say("plan.choice", "\n", plan=plan, other=other, percent=math.ceil(100 * error_ratio))
    if plan.mechanism.shrinks or plan.mechanism.leaf_dial is not None:
        declared = plan.mechanism.estimator.texts["name"]
        say("plan.learns", "\n", subject=subject, stated=ESTIMATORS["least_squares"].texts["name"], declared=declared)
    elif plan.mechanism.refines and plan.tree.cells(plan.tree.depth) <= _MAX_PAIRS_FOR_AUTO:
        say("plan.auto", "\n", subject=subject)


def print_outcome(outcome: Outcome, *, explain: bool = False) -> None:
    """Print in a few lines what is published, how well it is known, what it cost and where it is, or why it is not.

    If ``explain``, the whole guarantee, the levels and the checks come first.
    """
    from od_core.meaning.subject import Subject  # imports NumPy
    from od_core.publication.bundle_files import REPORT  # imports pandas

    facts, kind, release = outcome.facts, outcome.kind, outcome.release
    if kind is None:
        refused = "stays as it was published; this run was refused." if facts.get("was_public") else "is not published."
        console.print(facts["release"], Text(refused, style=WRONG))
        for line in facts["failures"]:
            console.print(line, soft_wrap=True)
        return
    levels, plan, spent = kind.make_summary(release), release.plan, release.spent
    subject = Subject.from_plan(plan, facts.get("about", {}))
    facts = {**facts, "subject": subject}  # in place of the text of the certificate
    if explain:
        console.rule(facts["release"])
        print_guarantee(facts["guarantee"])
        console.print()
        print_frame(
            f"{subject.nouns.contents.capitalize()} by level",
            levels.assign(**levels.select_dtypes("float").map(format_rounded)),
        )
        print_table("checks", facts["checks"])
    say("run.published", **facts)
    if facts.get("settings_changed"):
        say("run.stays", **facts)
    finest = levels.to_dict("records")[max(plan.compared_levels, default=-1)]  # area totals follow the levels of flows
    say("run.contents", subject=subject, release=release, plan=plan, row=kind.make_row(release), last=finest)
    say("run.spent", **facts | {"spent": spent})
    print_promise(subject, spent)
    if facts["lost_draws"]:
        say("run.lost", lost=facts["lost_draws"], spent=spent, planned=plan.spent)
    for other in facts["unpublished"]:
        console.print(format_sentence("run.unpublished", **other), soft_wrap=True)
    console.print(f"Report: {facts['bundle']}/{REPORT}", soft_wrap=True)
    if explain:
        console.print(f"Database: {facts['database']}", soft_wrap=True)


def print_promise(subject: Subject, spent: Spent) -> None:
    """Print the promise of a spent budget in one sentence: how well anybody can guess what one unit did."""
    from od_core.privacy.posterior import Guarantee

    say("promise.short", subject=subject, best_guess=Guarantee.from_spent(spent).bound_guess_probability())


def print_guarantee(guarantee: dict[str, str]) -> None:
    """Print each sentence of a guarantee with its name: first what is protected, what is public, and what is not."""
    first_names = [name for name in ("protected", "public", "not_protected") if name in guarantee]
    for name in dict.fromkeys([*first_names, *guarantee]):  # each name once
        console.print(f"{name.replace('_', ' ').capitalize()}: {guarantee[name]}")


def print_derived(found: PublishedFlows, table: str, *, as_json: bool) -> None:
    """Print what published derived flows protect, the releases they are made of in a table, and their bundle."""
    if as_json:
        facts = {"release": str(found.key), "bundle": str(found.folder), "published_now": found.is_new}
        print_json(facts | {"certificate": found.certificate})
        return
    from od_core.publication.certificate import read_subject  # imports NumPy

    sources = zip(found.certificate["sources"], found.flows.releases, strict=True)
    print_table(table, [source | {"trips": int(release.leaves.trips.sum())} for source, release in sources])
    leaves = found.flows.leaves
    numbers = {"trips": f"{int(leaves.trips.sum()):,}", "pairs": f"{len(leaves):,}"}
    say("derived.published", key=found.key, is_new=found.is_new, subject=read_subject(found.certificate), **numbers)
    console.print(f"Bundle: {found.folder}\n", soft_wrap=True)
    print_guarantee(found.certificate["guarantee"])


def print_explanation(found: Explanation) -> None:
    """Print what a release protected, what an attacker learns, and what other decisions would have cost."""
    console.rule(str(found.facts.key))
    console.print(found.said["protected"])
    console.print(f"{found.said['spent']}\n")
    print_table("losses", found.losses())
    console.print(f"{found.facts.said['limit']}\n")
    console.print(f"{found.said['statement']}\n")
    print_table("beliefs", found.beliefs())
    say("explain.guess", "\n")
    print_table("persons", found.persons())
    console.print(f"Not protected: {found.facts.sentence('not_protected')}\n")
    if found.chosen is None:  # a derived release: the decisions were those on its sources
        say("explain.decisions", names=[source["release"] for source in found.facts.sources])
        return
    choices = (found.chosen, *found.others)
    print_table("choices", choices)
    say("explain.choices", choices=choices, subject=found.facts.subject)
    for note in dict.fromkeys(choice.note for choice in choices if choice.note):
        choices_named = " / ".join(choice.choice for choice in choices if choice.note == note)
        console.print(f"- {choices_named}: {note}.")
