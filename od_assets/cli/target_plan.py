"""Plan from public tables: forecasts, the least budget for targets, and what bounds of a user's trips would cut."""

import glob
import json
import math
import os
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pandas as pd
import yaml

from od_assets.cli.declare import as_mapping, as_number, format_yaml_block, refuse_unwritable_file, write_text
from od_assets.cli.printing import format_sentence, name_levels, print_frame, print_table, say
from od_assets.project import find_current_project
from od_assets.resources.folders import Folders
from od_assets.series.reading import (
    SERIES_TABLE,
    SeriesSource,
    find_series,
    list_series,
    read_unchecked_attributes,
    refuse_unlisted,
    select_declaration_files,
)
from od_assets.series.section import substitute_environment_variables
from od_assets.series.series import G, P, Series
from od_assets.terminal import WRONG, console, print_json
from od_core import OdError, Plan, PrivacyUnit, ReleaseKey, ReleasePlan
from od_core.evaluation import forecast
from od_core.evaluation.known_flows import KnownFlows
from od_core.evaluation.targets import CHANCE, Target, TargetBudget, find_target_budget, with_amount
from od_core.flows.optimal_shares import MIN_SHARE
from od_core.flows.publishing.kind import FLOWS
from od_core.flows.step import Segments
from od_core.ledger.balance import Balance, find_least_balance
from od_core.periods import Period
from od_core.privacy.accounting import format_rounded_up, parse_exact_fraction
from od_core.privacy.budget import Cap, Usage
from od_core.publication.certificate import Certificate
from od_core.publication.number_formats import format_rounded
from od_core.publication.read_back import read_bundle_certificate
from od_core.published.opening import find_bundle_folders

SIMULATED = 200
"""Number of simulated releases by which the budget for targets is corrected, if none is asked for."""

SYNTHETIC = "synthetic"
"""Name with which the synthetic table is asked for."""


def choose_public_table(series: Series[P, G], plan: ReleasePlan, stated: str | None = None) -> tuple[KnownFlows, str]:
    """Return a public table that stands for the true flows, and sentences on it.

    Args:
        stated: ``synthetic``, a published release such as ``us_flights/2001-06/r1``, or the path of a file of public
            flows with the columns origin, destination and trips. None takes the newest published flows of the data set
            over the areas of the plan, if possible of the series itself, or else a synthetic table. Releases without
            trips are skipped, because they do not show the errors of flows.

    Raises:
        OdError: the file is confidential or cannot be read, or no release of that name has the areas of the plan.
    """
    chosen = _choose_release(series, plan, stated)
    if chosen is not None:
        key, folder = chosen
        release = FLOWS.open(folder)
        flows = release.counts if plan.tree.has_one_side else release.flows
        flows = flows[flows[flows.columns[-1]] > 0]
        table = KnownFlows.from_frame(str(key), "public", flows, plan.tree.origin, plan.tree.destination)
        return table, format_sentence("table.published", key=key)
    if stated is None or stated == SYNTHETIC:
        table = forecast.make_synthetic_table(plan.tree.origin, plan.tree.destination)
        numbers = {"trips": f"{table.trips.total:,}", "pairs": f"{len(table.trips.rank):,}"}
        is_one = plan.tree.origin.digest == plan.tree.destination.digest
        return table, format_sentence("table.synthetic", data_set=series.domain.name, is_one=is_one, **numbers)
    table = _read_table(series, plan, stated)
    return table, format_sentence("table.file", name=table.name)


def _choose_release(series: Series[P, G], plan: ReleasePlan, stated: str | None) -> tuple[ReleaseKey, Path] | None:
    """Return the key and the folder of the published release that stands for the true flows; None if none does.

    ``stated`` is as in :func:`choose_public_table`.
    """
    if stated == SYNTHETIC:
        return None
    published = list(_iterate_published_flows(plan))
    if stated is not None:
        return next(((key, folder) for key, folder, _ in published if str(key) == stated), None)
    data_set_releases = {
        key: folder
        for key, folder, certificate in published
        if certificate["data_set"] == series.domain.name and certificate["contents"]["trips"] > 0
    }
    if not data_set_releases:
        return None
    newest = max(data_set_releases, key=lambda key: (key.release == series.name, key.period, key.revision, key.release))
    return newest, data_set_releases[newest]


def _read_table(series: Series[P, G], plan: ReleasePlan, stated: str) -> KnownFlows:
    """Return the table of public flows in a file. Raises OdError if the file is confidential or cannot be read."""
    path = Path(stated)
    refuse_records(path)
    if not path.is_file():
        message = f"{stated} is neither a file nor a published release of flows over the areas of {series.name}"
        step = "give the path of a table of public flows, a published release, or synthetic"
        raise OdError("OD-TABLE-PUBLIC", message, next_step=step)
    try:
        return KnownFlows.from_frame(path.name, "public", path, plan.tree.origin, plan.tree.destination)
    except OdError as error:
        if error.code != "OD-TRIPS-ROWS":
            raise
        raise error.with_changes(
            next_step="call the number of trips trips, or leave only origin and destination"
        ) from None


def refuse_records(path: Path) -> None:
    """Raise OdError if a path is a file of records of any declared release, or is in the confidential folder.

    Links to such files are refused, too. Raises OdError also if a table of series cannot be read, because its records
    are then not known.
    """
    project = find_current_project()
    real_path = path.resolve()
    confidential = (project.var / "confidential").resolve()
    if confidential in real_path.parents or _is_one_of_files(real_path, confidential.rglob("*")):
        raise _make_confidential_error(path, "it is in the confidential folder")
    for table in select_declaration_files(SERIES_TABLE):
        refuse_unlisted(table)
    for source in list_series():
        for declared in _read_record_paths(source):
            if _is_among_declared(real_path, project.root / Path(declared)):
                raise _make_confidential_error(path, f"{source.name} declares it as records")


def _is_among_declared(path: Path, declared: Path) -> bool:
    """Return whether a file is among the declared files of records, or below a declared folder.

    In a declared path, both a field in braces and * stand for any part of a name.
    """
    fixed_parts = re.split(r"\{.*?\}|\*", os.path.realpath(declared))
    expression = "[^/]*".join(map(re.escape, fixed_parts))
    if any(re.fullmatch(expression, str(candidate)) for candidate in (path, *path.parents)):
        return True
    pattern = "*".join(map(glob.escape, fixed_parts))
    files = [*glob.glob(pattern), *glob.glob(f"{pattern}/**", recursive=True)]  # noqa: PTH207  # absolute; follows links
    return _is_one_of_files(path, map(Path, files))


def _iterate_published_flows(plan: ReleasePlan) -> Iterator[tuple[ReleaseKey, Path, Certificate]]:
    """Yield the key, folder and certificate of each published release of flows over the areas of a plan."""
    areas = {"origin": plan.tree.origin.digest, "destination": plan.tree.destination.digest}
    for key, folder in find_bundle_folders(Folders().releases).items():
        try:
            certificate = read_bundle_certificate(folder)
        except OdError:
            continue  # verification reports faults of bundles
        if certificate.get("format") == FLOWS.format and certificate["geographies"] == areas:
            yield key, folder, certificate


def _read_record_paths(source: SeriesSource) -> Iterator[str]:
    """Yield the paths of the files of records that a series declares, also if its declaration has faults.

    Raises OdError if a value of its row is missing, which may be a part of the path.
    """
    try:
        pending = read_unchecked_attributes(source)
    except OdError:
        if source.row is not None:
            raise
        return  # od-release doctor states the fault
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending += value
        elif isinstance(value, dict):
            pending += value.values()
            if isinstance(value.get("files"), str):
                try:
                    yield substitute_environment_variables(value["files"])
                except ValueError:
                    continue  # without its variable, no file is named


def _is_one_of_files(path: Path, files: Iterable[Path]) -> bool:
    """Return whether a path leads to the same file as one of some paths: itself, by a link or as another hard link."""
    return path.is_file() and any(file.is_file() and file.samefile(path) for file in files)


def _make_confidential_error(path: Path, why: str) -> OdError:
    """Return the error for a table that is confidential, and so cannot stand for the true flows."""
    message = f"{path.name} is confidential: {why}, and a choice that follows from records would reveal them"
    step = "give a table that is public, such as a published release, or synthetic"
    return OdError("OD-TABLE-CONFIDENTIAL", message, next_step=step)


_ROW_NAMES = [*forecast.COLUMNS[:3], "breakdown"]
"""Columns that identify a row; the last one is there only if the release has segments."""


@dataclass(frozen=True, eq=False)
class Forecast:
    """The expected errors of a series at the declared epsilon and at other values of epsilon.

    Attributes:
        table: name of the table that is taken as the true flows, which is synthetic or published.
        source: sentences on that table and its consequences for the forecast.
        runs: number of simulated releases at each epsilon.
        errors: table with the columns epsilon, rho and declared, followed by the columns of
            :func:`od_core.evaluation.forecast.forecast`.
    """

    release: str
    table: str
    is_synthetic: bool
    source: str
    runs: int
    errors: pd.DataFrame

    def facts(self) -> dict[str, object]:
        """Return the forecast as a JSON-ready dictionary."""
        facts_of_fields = {name: fact for name, fact in vars(self).items() if name != "errors"}
        return facts_of_fields | {"forecast": json.loads(self.errors.to_json(orient="records", double_precision=15))}

    def make_tables(self) -> dict[str, pd.DataFrame]:
        """Return tables to print, by title: errors by level, by number of trips of a flow, and by epsilon."""
        declared = self.errors["declared"]
        is_total = self.errors["size_class"] == forecast.ALL_SIZES
        row_names = [name for name in _ROW_NAMES if name in self.errors]
        by_level = self.errors[declared & is_total][[*row_names, *forecast.COLUMNS[4:]]]
        by_size = _pivot_errors(self.errors[declared & ~is_total], "size_class")
        by_epsilon = _pivot_errors(self.errors[is_total], "epsilon")
        by_epsilon.columns = [name if name in _ROW_NAMES else f"epsilon {name:g}" for name in by_epsilon]
        return {
            f"{self.release}: expected errors over all cells of a level": by_level,
            "Mean absolute error by the number of trips of a cell": by_size[
                [name for name in (*row_names, *forecast.CLASS_NAMES) if name in by_size]
            ],
            "Mean absolute error over all cells, by epsilon": by_epsilon,
        }

    def write(self, folder: Path) -> None:
        """Write the table to ``forecast.csv`` and a figure to ``forecast.svg``; create the folder if needed."""
        folder.mkdir(parents=True, exist_ok=True)
        self.errors.to_csv(folder / "forecast.csv", index=False, lineterminator="\r\n")
        totals = self.errors[self.errors["breakdown"] == forecast.TOTALS] if "breakdown" in self.errors else self.errors
        forecast.draw_forecast(totals, folder / "forecast.svg")


def make_forecast(
    series: Series[P, G], plan: Plan, epsilons: Sequence[str] | None = None, runs: int | None = None
) -> Forecast:
    """Return the forecast of a declared plan. It reads no record, true count or ledger, and spends nothing.

    Args:
        epsilons: further values of epsilon; by default, :data:`od_core.evaluation.forecast.EPSILONS`, except for those
            with too wide noise.
        runs: number of simulated releases at each epsilon; by default, :data:`od_core.evaluation.forecast.RUNS`.

    Raises:
        OdError: the series does not release flows; or as in :func:`od_core.evaluation.forecast.forecast`.
    """
    step = "see docs/explanation/group-sizes.md or docs/explanation/stops.md for measured errors"
    plan = require_flow_plan(series, plan, "forecasts", step)
    table, source = choose_public_table(series, plan)
    runs = forecast.RUNS if runs is None else runs
    declared = plan.spent.epsilon if plan.budget.epsilon is None else plan.budget.epsilon

    def forecast_at_epsilon(planned: ReleasePlan, epsilon: Fraction, *, is_declared: bool) -> pd.DataFrame:
        errors = forecast.forecast(planned, table, runs)
        facts = {"epsilon": float(epsilon), "rho": float(planned.charge.as_rho), "declared": is_declared}
        return pd.concat([pd.DataFrame(facts, index=errors.index), errors], axis=1)

    frames = [forecast_at_epsilon(plan, declared, is_declared=True)]
    left_out = []
    for epsilon in epsilons or forecast.EPSILONS:
        exact = parse_exact_fraction("epsilon", epsilon)
        if exact == plan.budget.epsilon:
            continue  # it is the declared one, which is forecast already
        try:
            frames.append(forecast_at_epsilon(forecast.with_epsilon(plan, exact), exact, is_declared=False))
        except OdError as error:
            if epsilons or error.code != forecast.TOO_WIDE:
                raise
            left_out.append(epsilon)
    errors = pd.concat(frames).sort_values("epsilon", kind="stable", ignore_index=True)
    if plan.segments is not None:
        source += f" {format_sentence('table.segments')}"
    if left_out:
        source += f" {format_sentence('table.left_out', left_out=left_out)}"
    return Forecast(series.name, table.name, table.marking == SYNTHETIC, source, runs, errors)


def require_flow_plan(series: Series[P, G], plan: Plan, what: str, step: str) -> ReleasePlan:
    """Return the plan if it is one of flows. Otherwise, raise OdError: ``what`` is available only for flows.

    ``step`` is the next step of the error.
    """
    message = f"{series.name} is a release of {series.kind.contents}; {what} are available only for flows"
    flow_plan: ReleasePlan = plan.require_forecastable(OdError("OD-FORECAST-KIND", message, next_step=step))
    return flow_plan


def _pivot_errors(errors: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return a table of mean absolute errors, with a column for each value of ``column``.

    It has a row for each combination of the columns in :data:`_ROW_NAMES`.
    """
    row_names = [name for name in _ROW_NAMES if name in errors]
    wide = errors.pivot_table(index=row_names, columns=column, values="mean_abs_error", sort=False)
    return wide.reset_index().rename_axis(columns=None)


class PayablePeriods(NamedTuple):
    """For how many periods of a series the remaining cap pays the budget of a plan.

    Attributes:
        periods: declared periods; of a series without an end, those that have ended, or else the first one.
        paid: number of periods for which the cap pays, without those that are published already.
        balance: the balance of the period that is not published and has the least left now.
    """

    periods: tuple[Period, ...]
    paid: int
    balance: Balance


def count_payable_periods(series: Series[P, G], plan: Plan, published: Container[str] = ()) -> PayablePeriods:
    """Return for how many periods of a series the remaining cap pays. Nothing is charged or stored.

    ``published`` has the texts of periods that need no further budget. Raises OdError as
    :meth:`od_core.ledger.ledger.Ledger.count_payable_periods` does.
    """
    periods = tuple(series.periods.list_declared_periods()) or (series.periods.first,)
    due = [period for period in periods if period.text not in published]
    with Folders().open_ledger_or_empty() as ledger, ledger.trial():
        ledger.declare(series.domain)
        balances = ledger.find_balances(series.domain.name, [period.text for period in due or periods], plan)
        paid = ledger.count_payable_periods(series.name, series.domain, plan, due)
        return PayablePeriods(periods, paid, find_least_balance(balances.values()))


_REMEDY = "plan with wider tolerances, or raise the cap and state a reason, and plan again"
"""Next step if the cap does not allow the budget."""

_DIGITS = 4
"""Number of significant digits of the declared epsilon or rho, which is rounded up."""


@dataclass(frozen=True, eq=False)
class TargetPlan:
    """The smallest budget that meets some targets, as a plan of one period.

    Attributes:
        source: sentence on the table that stands for the true flows.
        plan: plan of one period with this budget.
        usage: what one release uses of the cap of the data set, in rho or in epsilon.
        nearest: targets with wider tolerances that the cap allows; None if the cap allows the targets themselves, or
            if no tolerance of at most 100 % is wide enough.
        payable: the periods, and for how many the cap pays.
    """

    release: str
    source: str
    found: TargetBudget
    plan: ReleasePlan
    usage: Usage
    nearest: tuple[Target, ...] | None
    payable: PayablePeriods

    @property
    def fits(self) -> bool:
        """Whether the cap allows one release."""
        return self.usage.fits

    @property
    def fields(self) -> dict[str, object]:
        """The fields of the declaration that state the budget: ``privacy`` and, with segments, ``segment_share``.

        There are none if the cap does not allow the budget, because such a declaration is refused.
        """
        if not self.fits:
            return {}
        budget, share = self.plan.budget, self.found.segment_share
        numbers = {"epsilon": budget.epsilon, "rho": budget.rho, "delta": budget.delta or None}
        promise = {name: _format_number(number) for name, number in numbers.items() if number is not None}
        conversion = {} if budget.conversion is None else {"conversion": budget.conversion}
        privacy = {**promise, **conversion, "shares": list(map(_format_number, self.found.shares))}
        return {"privacy": privacy} | ({} if share is None else {"segment_share": str(share)})

    def facts(self) -> dict[str, object]:
        """Return the plan as a JSON-ready dictionary."""
        measure = self.found.measure
        return {
            "release": self.release,
            "source": self.source,
            "rho": str(self.plan.spent.rho),
            "epsilon": str(self.plan.spent.epsilon),
            f"cap_{self.usage.measure}": str(self.usage.cap),
            "fits": self.fits,
            "periods": len(self.payable.periods),
            "periods_paid": self.payable.paid,
            "nearest_targets": None if self.nearest is None else list(map(str, self.nearest)),
            "runs": self.found.runs,
            "gap": self.found.gap,
            "targets": [
                {
                    "target": str(cost.target),
                    "flows": cost.flows,
                    measure: cost.amount,
                    f"{measure}_alone": cost.alone,
                    f"{measure}_without": cost.without,
                    "binds": cost.binds,
                }
                for cost in self.found.costs
            ],
            "levels": json.loads(self.plan.to_frame().to_json(orient="records")),
            **self.fields,
        }


def plan_for_targets(
    series: Series[P, G], plan: Plan, targets: Sequence[str], table: str | None, runs: int
) -> TargetPlan:
    """Return the smallest budget that meets targets, from public facts and a public table. Reads no record.

    Args:
        plan: plan of one period with the declared budget.
        targets: texts of the targets; see :meth:`Target.parse`.
        runs: number of releases to simulate at a time; 0 for none.

    Raises:
        OdError: the series does not release flows; a target or the table is refused; or no budget is found.
    """
    plan = require_flow_plan(series, plan, "targets", "choose epsilon by od-release plan")
    if runs < 0:
        raise OdError("OD-FORECAST-RUNS", "the number of runs is below 0", next_step="request 0 runs or more")
    parsed = [Target.parse(text, plan.tree, plan.breakdowns) for text in targets]
    flows, source = choose_public_table(series, plan, table)
    budget = find_target_budget(plan, parsed, flows, runs)
    chosen = _plan_with_budget(budget, plan)
    usage = series.domain.cap.compute_usage(chosen.charges)
    nearest = None
    if not usage.fits:
        nearest = _find_nearest_targets(plan, parsed, flows, runs, series.domain.cap)
    payable = count_payable_periods(series, chosen)
    return TargetPlan(series.stated_name, source, budget, chosen, usage, nearest, payable)


def print_target_plan(planned: TargetPlan, *, as_json: bool) -> None:
    """Print the smallest budget that meets the targets, or how wide they must be for the cap, as text or as JSON.

    The text also has the cost of each target, the share and the expected error of each level, the public table that was
    simulated and, if the cap allows the release, the section ``privacy`` to declare.
    """
    if as_json:
        print_json(planned.facts())
        return
    budget = planned.found
    periods, paid, _ = planned.payable
    say("target.budget", spent=planned.plan.spent, usage=planned.usage)
    if planned.fits:
        sentence = format_sentence("target.payable", periods=periods, paid=paid)
        console.print(sentence, style="" if paid else WRONG, soft_wrap=True)
        if paid < len(periods):
            say("target.revisions", remedy=_REMEDY)
    else:
        console.print("The cap does not allow it.", style=WRONG)
        if planned.nearest is None:
            console.print("No tolerance of at most 100 % is wide enough for the cap.")
        else:
            console.print("With the whole cap, these targets can be met:")
            for target in planned.nearest:
                console.print(f"  {target}", soft_wrap=True)
    console.print()
    print_table("targets", budget.costs)
    say("target.rounded", "\n", measure=budget.measure)
    levels = planned.plan.to_frame()
    amounts = [float(charge.select_amount(budget.measure)) for charge in planned.plan.charges[: len(levels)]]
    shares = [f"{amount / sum(amounts):.3g}" for amount in amounts]
    errors = levels["expected_error"].map(format_rounded)
    columns = {"level": name_levels(levels), f"share of {budget.measure}": shares, "expected error": errors}
    print_frame("Levels", pd.DataFrame(columns))
    if any(0 < share <= 1.001 * MIN_SHARE for share in budget.shares):  # the least share, up to rounding
        say("target.least")
    console.print(planned.source, soft_wrap=True)
    say("target.simulated", runs=budget.runs, chance=f"{100 * CHANCE:g}")
    if planned.fits:
        console.print(f"\nDeclare it so:\n{format_yaml_block(planned.fields)}", soft_wrap=True)
    else:
        console.print(f"\nNo declaration is printed, because a run would refuse it: {_REMEDY}.", soft_wrap=True)


def write_declaration(planned: TargetPlan, path: Path) -> None:
    """Write the declaration of the series to ``path``, with the planned budget and otherwise unchanged.

    Raises OdError if the cap does not allow the budget, the declaration has no section ``privacy`` of its own, or the
    file cannot be written.
    """
    if not planned.fits:
        measure, cap, needed = planned.usage
        message = (
            f"one release of {planned.release} with these targets needs {measure} {format_rounded_up(needed)}, which"
            f" exceeds the cap {format_rounded_up(cap)}"
        )
        raise OdError("OD-LEDGER-CAP", message, next_step=_REMEDY)
    source = find_series(planned.release)
    text = source.path.read_text(encoding="utf-8")
    changed_text = None if source.row is not None else replace_yaml_fields(text, planned.fields)
    if changed_text is None:
        message = f"{source.describe()} has no section privacy of its own"
        raise OdError("OD-CONFIG", message, next_step="copy the printed section")
    with refuse_unwritable_file(path.name, "choose another path"):
        write_text(path, changed_text)


def replace_yaml_fields(text: str, fields: Mapping[str, object]) -> str | None:
    """Return a YAML declaration with other values of some fields of its attributes. All else stays, also comments.

    Return None if the declaration lacks the first of the fields, or the attributes are not written as a block. Other
    fields that it lacks are written before the first one.

    Args:
        text: text of the declaration.
        fields: new values, by name of the field.
    """
    expected = _parse_yaml(text)
    first_name = next(iter(fields))
    for name, value in fields.items():
        pairs = _find_yaml_section(yaml.compose(text, Loader=yaml.SafeLoader), "attributes")
        found = {key.value: (key, node) for key, node in pairs}
        if first_name not in found:
            return None
        key, node = found[name if name in found else first_name]
        indent, start = key.start_mark.column, key.start_mark.index
        replacement = format_yaml_block({name: value}, indent).strip()
        if isinstance(value, dict):
            replacement = f"{name}:\n{format_yaml_block(value, indent + 2)}".rstrip("\n")
        if name in found:
            text = f"{text[:start]}{replacement}{text[_find_yaml_end(node) :]}"
        else:
            text = f"{text[:start]}{replacement}\n{' ' * indent}{text[start:]}"
        expected["attributes"][name] = value
    return text if _parse_yaml(text) == expected else None


def _find_yaml_end(node: yaml.Node) -> int:
    """Return the index of the first character after a node, where comments after a block are not part of it.

    PyYAML counts them as part, so the end is that of the last value that is not a block.
    """
    while isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        node = node.value[-1][1] if isinstance(node, yaml.MappingNode) else node.value[-1]
    end: int = node.end_mark.index
    return end


def _find_yaml_section(node: yaml.Node | None, name: str) -> list[tuple[yaml.Node, yaml.Node]]:
    """Return the pairs of keys and values of a section of a mapping in YAML; empty if it has no such section."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    section = next((value for key, value in pairs if key.value == name), None)
    return list(section.value) if isinstance(section, yaml.MappingNode) else []


def _parse_yaml(text: str) -> Any:
    """Return the value of YAML text; None if it cannot be parsed."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return None


def _plan_with_budget(found: TargetBudget, plan: ReleasePlan) -> ReleasePlan:
    """Return a plan with the found budget, rounded up to :data:`_DIGITS` digits, and its share for segments.

    The budget is stated as the declared one is, as epsilon or rho. An epsilon of Laplace noise is the found one. An
    epsilon of Gaussian noise is the first that spends the found rho, in steps of a thousandth from the epsilon of rho.
    """
    with_budget = partial(forecast.with_budget, plan, segments=_choose_segments(found, plan))
    shares = found.shares
    rho = Fraction(found.amount)
    rounded = Fraction(format_rounded_up(rho, _DIGITS))
    if found.measure == "epsilon":
        return with_budget(replace(plan.budget, epsilon=rounded, shares=shares))
    if plan.budget.epsilon is None:
        return with_budget(replace(plan.budget, rho=rounded, shares=shares))
    epsilon = with_budget(replace(plan.budget, epsilon=None, rho=rho, shares=shares)).spent.epsilon
    while True:  # a conversion rounds rho down, and the exact one stops at the first rho with a larger epsilon
        epsilon = Fraction(format_rounded_up(epsilon, _DIGITS))
        chosen = with_budget(replace(plan.budget, epsilon=epsilon, shares=shares))
        if chosen.spent.rho >= rho:
            return chosen
        epsilon *= Fraction(1001, 1000)


def _choose_segments(found: TargetBudget, plan: ReleasePlan) -> Segments | None:
    """Return the breakdowns of a plan with the share of a found budget; None if the plan has no breakdowns."""
    if plan.segments is None or found.segment_share is None:
        return plan.segments
    return replace(plan.segments, share=found.segment_share)


def _format_number(number: Fraction) -> str:
    """Return a number as a decimal of at most 12 digits if it is equal to one, and otherwise as a fraction."""
    decimal = f"{float(number):.12g}".replace("e-0", "e-")
    return decimal if Fraction(decimal) == number else str(number)


_MAX_CORRECTIONS = 4
"""Largest number of rounds in which simulations correct the part of the cap that targets may use."""

_MAX_WIDENINGS = 8
"""Largest number of steps in which the factor of the tolerances is found."""


def _find_nearest_targets(
    plan: ReleasePlan, targets: Sequence[Target], known: KnownFlows, runs: int, cap: Cap
) -> tuple[Target, ...] | None:
    """Return targets that the cap allows: all tolerances are wider by about the smallest common factor.

    In each round, targets are found without simulations for an allowed part of the cap. Simulations of ``runs``
    releases then correct this part, until they need nearly the whole cap and no more. Return None if a relative
    tolerance would be above 100 %, or no round finds targets within the cap.
    """

    def compute_usage(some_targets: Sequence[Target], runs: int = 0) -> Usage:
        distinct = {str(target): target for target in some_targets}  # wide tolerances may be equal after rounding
        budget = find_target_budget(plan, list(distinct.values()), known, runs)
        segments = _choose_segments(budget, plan)
        return cap.compute_usage(with_amount(plan, budget.amount, budget.shares, segments).charges)

    usage_of_targets = compute_usage(targets)
    allowed_part = 1.0
    nearest = None
    for _ in range(_MAX_CORRECTIONS):
        widened = _widen_targets(targets, usage_of_targets, allowed_part, compute_usage)
        if widened is None or runs == 0:
            return widened
        used_part = _compute_part(compute_usage(widened, runs)) / 0.999  # the rounded budget is within the cap, too
        if used_part <= 1:
            nearest = widened
            if used_part > 0.9:  # near enough
                break
        allowed_part /= used_part
    return nearest


def _compute_part(usage: Usage) -> float:
    """Return the part of the cap that is used; above 1 if the cap does not allow it."""
    return float(usage.used / usage.cap)


def _widen_targets(
    targets: Sequence[Target],
    usage: Usage,
    allowed_part: float,
    compute_usage: Callable[[Sequence[Target]], Usage],
) -> tuple[Target, ...] | None:
    """Return targets with tolerances that are wider by about the smallest factor for which a part of the cap suffices.

    Return None if no factor suffices with which all relative tolerances are at most 100 %.

    Args:
        usage: what the targets use of the cap.
        allowed_part: the part of the cap; 1 for the whole cap.
        compute_usage: function that returns what some targets use of the cap.
    """
    # The largest factor, with which the widest relative tolerance is 100 %.
    max_factor = min((1 / float(target.within) for target in targets if target.is_relative), default=math.inf)
    factor = 1.0
    smallest_sufficient = math.inf
    nearest = None
    for _ in range(_MAX_WIDENINGS):
        # Tolerances are in proportion to 1 / epsilon or 1 / root(rho). A little more, so that the rounded budget is
        # within the cap.
        power = 1 if usage.measure == "epsilon" else 0.5
        excess = _compute_part(usage) / allowed_part
        wider_factor = min(factor * excess**power * 1.001, max_factor)
        if wider_factor == factor:
            break
        factor = wider_factor
        widened = tuple(target.with_scaled_tolerance(factor) for target in targets)
        usage = compute_usage(widened)
        part = _compute_part(usage) / allowed_part
        if part <= 1 and factor < smallest_sufficient:
            smallest_sufficient = factor
            nearest = widened
            if part > 0.98:  # near enough
                break
    return nearest


def compare_contribution_bounds(
    series: Series[P, G], plan: Plan, users: list[str], table: str | None, bounds: list[str], runs: int | None
) -> dict[str, Any]:
    """Return the simulated errors of a series with several bounds of a user's trips, and the best bounds.

    No record is read, and nothing is spent.

    Args:
        users: texts on how users travel; see :func:`od_core.evaluation.forecast.parse_users`.
        table: public table that stands for the true flows; see :func:`choose_public_table`.
        bounds: texts such as ``m=10,c=1``; if there are none, usual bounds around the declared ones are compared.
        runs: number of simulated releases for each of the bounds; by default, that of forecasts.

    Returns:
        A JSON-ready dictionary on what was simulated: ``bounds`` has a row for each of the bounds, ``best`` is the row
        with the smallest error of all trips, and ``best_of_people`` that of rows that count people.

    Raises:
        OdError: the series does not release flows of users, or not by measuring every level; an option is refused; or
            the noise is too large for simulations.
    """
    plan = require_flow_plan(series, plan, "bounds of users' trips", "choose max_trips by od-release plan")
    if not plan.unit.is_of_users or plan.has_threshold:
        message = "bounds of trips are compared for units of users, and mechanisms that measure every level"
        raise OdError("OD-BOUNDS-UNIT", message, next_step="declare a unit of users in the file of the data set")
    if not users or (runs is not None and runs < 1):
        step = "give --users, as in --users '60: 2x9 4x1', and at least one run"
        raise OdError("OD-BOUNDS-USERS", "it is not stated how users travel, or there are no runs", next_step=step)
    known, source = choose_public_table(series, plan, table)
    trips = forecast.UserTrips.simulate(known, plan, list(map(forecast.parse_users, users)))
    periods = len(series.domain.periods_of_year(series.periods.first)) if plan.unit.max_trips_year else 1
    units: Iterable[PrivacyUnit] = [_parse_bounds(plan.unit, stated) for stated in bounds]
    if not bounds:
        units = forecast.iterate_candidate_contribution_bounds(plan.unit, periods)
    rows: list[forecast.ErrorsOfBounds] = []
    for unit in units:
        plan_with_bounds = forecast.with_contribution_bounds(plan, unit, periods)
        within_bounds = trips.mark_trips_within_bounds(unit, periods)
        rows.append(
            forecast.simulate_errors_of_contribution_bounds(
                plan_with_bounds, trips, within_bounds, runs or forecast.RUNS
            )
        )
    rows_of_people = [row for row in rows if row["c"] == 1]  # a pair of zones has one trip of a user at most
    return {
        "release": series.name,
        "source": f"{source} {format_sentence('bounds.drawn')}",
        "periods": periods,
        "users": int(trips.user.max()) + 1,
        "trips": len(trips.rank),
        "levels": plan.tree.level_names,
        "bounds": rows,
        "best": _find_best_bounds(rows, "error"),
        "best_of_people": _find_best_bounds(rows_of_people, "error_of_counted"),
    }


def _find_best_bounds(
    rows: Sequence[forecast.ErrorsOfBounds], error: Literal["error", "error_of_counted"]
) -> forecast.ErrorsOfBounds | None:
    """Return the row with the smallest error of leaves; of equal ones, rounded to 0.01, the one that cuts fewest trips.

    Return None if there are no rows. ``error`` is the field with the errors by level, coarse to fine.
    """
    return min(rows, key=lambda row: (round(row[error][-1], 2), row["cut"]), default=None)


def print_contribution_bounds(found: Mapping[str, Any], *, as_json: bool) -> None:
    """Print the result of :func:`compare_contribution_bounds`, and advice on it, as text or as JSON."""
    advice = format_sentence("bounds.advice", **found)
    if as_json:
        print_json({**found, "advice": advice})
        return
    print_table("bounds", found["bounds"])
    for sentence in (format_sentence("bounds.columns", **found), found["source"], f"\n{advice}"):
        console.print(sentence, soft_wrap=True)


def _parse_bounds(unit: PrivacyUnit, stated: str) -> PrivacyUnit:
    """Return a unit with stated bounds such as ``m=10,c=1``. Raises OdError if they are no bounds, or are not valid.

    m is the bound of a user's trips, c of those between a pair of zones, and M of those in a year. Without c, there is
    no bound of pairs; m and M are the declared ones if they are left out.
    """
    given = {name: as_number(number) for name, number in as_mapping(stated).items()}
    if not given.keys() <= {"m", "c", "M"}:
        raise OdError("OD-BOUNDS-GRID", f"{stated!r} are no bounds", next_step="give, for example, --bound m=10,c=1")
    changed = {
        "max_trips": given.get("m", unit.max_trips),
        "max_trips_pair": given.get("c"),
        "max_trips_year": given.get("M", unit.max_trips_year),
    }
    return replace(unit, **changed)  # type: ignore[arg-type]  # it checks
