"""Explain what an attacker learns from a release, and what other decisions would have cost.

Only the public bundle is read and, if it is at hand, the ledger. No record is read.

The decisions are the privacy unit, the neighbours, the contribution bound m, delta and epsilon. Each other choice is
planned twice by the functions that plan releases, from the release's public facts alone: with the same promise, which
needs other noise; and with the same noise in the most detailed table, which gives another promise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from od_core.errors import OdError
from od_core.ledger.balance import Balance, find_least_balance
from od_core.ledger.ledger import Ledger
from od_core.ledger.release_key import ReleaseKey
from od_core.meaning.subject import Subject
from od_core.noise.opendp import round_down_to_float
from od_core.privacy.accounting import format_rounded_up, round_up_to_float
from od_core.privacy.budget import Budget
from od_core.privacy.plan import Plan
from od_core.privacy.posterior import Guarantee
from od_core.privacy.unit import PrivacyUnit
from od_core.publication.templates import render_clauses, render_data
from od_core.published.documents import Facts
from od_core.published.opening import find_bundle_kind, open_bundle_folder

TRIPS_OF_A_USER = (2, 10)
"""Contribution bounds m of the alternatives in which the unit is a user, if it is a trip."""


@dataclass(frozen=True)
class Alternative:
    """Another choice for one decision, and its cost. A number that is not defined is None, and ``note`` says why.

    Attributes:
        decision: ``unit``, ``neighbours``, ``m``, ``delta`` or ``epsilon``.
        choice: the other choice in words.
        epsilon: promise if the noise of the most detailed table stays the same; rounded up.
        noise: standard deviation of the noise of one measured number of that table if the promise stays the same.
        times: ``noise`` as a multiple of the present one.
        error: with the same promise, the expected error of the most detailed published flows; None for other kinds.
        note: what else to know; empty if nothing.
    """

    decision: str
    choice: str
    epsilon: float | None = None
    noise: float | None = None
    times: float | None = None
    error: float | None = None
    note: str = ""


def describe_own_choice(
    plan: Plan, lost_draws: int = 0, measured: object = None, subject: Subject | None = None
) -> Alternative:
    """Return the plan itself as an alternative, with which the others are compared.

    Args:
        plan: plan of the release.
        lost_draws: number of lost draws. No alternative includes their cost, and a note says so if there are any.
        measured: measurements of the release, on which the noise of some plans depends.
        subject: what the release is about, in the publisher's words; by default in those of the plan.
    """
    lost = "what lost draws cost is in the promise above, and not in this table" if lost_draws else ""
    choice = render_clauses(subject or Subject.from_plan(plan))["choice"]
    alternative = Alternative("as released", choice, round_up_to_float(plan.spent.epsilon), note=lost)
    return _add_noise_and_error(plan, plan, alternative, measured)


def list_alternatives(plan: Plan, measured: object = None, subject: Subject | None = None) -> list[Alternative]:
    """Return other choices for each decision of a plan, with their costs. Only public facts are used.

    For ``measured`` and ``subject``, see :func:`describe_own_choice`.
    """
    others = []
    for choice in iterate_choices(plan, subject or Subject.from_plan(plan)):
        try:
            other = choice.replan(plan)
            is_of_epsilon = choice.decision == "epsilon"
            epsilon = None if is_of_epsilon else round_up_to_float(_find_equal_noise_epsilon(plan, other))
            stated = Alternative(choice.decision, choice.words, epsilon, note=choice.note)
            others.append(_add_noise_and_error(plan, other, stated, measured))
        except OdError as error:  # the library has no such release
            others.append(Alternative(choice.decision, choice.words, note=f"not defined: {error.message}"))
    return others


def _add_noise_and_error(plan: Plan, other: Plan, stated: Alternative, measured: object) -> Alternative:
    """Return the alternative ``stated`` with the noise and error of ``other``, the plan of its choice.

    The noise is compared with that of ``plan``. For ``measured``, see :func:`describe_own_choice`.
    """
    own_noise, other_noise = plan.detail_noise(measured), other.detail_noise(measured)
    note = "; ".join(text for text in (stated.note, other_noise.note) if text)
    times = other_noise.deviation / own_noise.deviation
    deviation = other_noise.deviation if other_noise.is_known else None
    return replace(stated, noise=deviation, times=times, error=other_noise.error, note=note)


def _find_equal_noise_epsilon(plan: Plan, other: Plan) -> Fraction:
    """Return the epsilon with which the other choice has the noise of the present plan in the most detailed table.

    All variances of a plan are inversely proportional to its rho, and all scales to its epsilon.
    """
    times = other.detail_noise().scale / plan.detail_noise().scale  # the scale of Gaussian noise is its variance
    if other.spent.promise is not None:
        budget = replace(other.budget, rho=None, epsilon=other.spent.epsilon * times)
    else:
        budget = replace(other.budget, epsilon=None, rho=other.spent.rho * times)
    return plan.replan(other.unit, budget).spent.epsilon


class Choice(NamedTuple):
    """Another choice for one decision on a plan, before it is planned.

    Attributes:
        decision: ``unit``, ``neighbours``, ``m``, ``delta`` or ``epsilon``.
        words: the other choice in words.
        unit, budget: the privacy unit and the budget with this choice.
        note: what else the choice changes; empty if there is nothing to note.
    """

    decision: str
    words: str
    unit: PrivacyUnit
    budget: Budget
    note: str = ""

    def replan(self, plan: Plan) -> Plan:
        """Return the plan with this choice. Raises OdError if the library has no such release."""
        return plan.replan(self.unit, self.budget)


def iterate_choices(plan: Plan, subject: Subject) -> Iterator[Choice]:
    """Yield the other choices for each decision of a plan, one at a time.

    All budgets are in epsilon, so that choices with the same epsilon and delta have the same promise.
    """
    unit, budget = plan.unit, plan.budget
    if budget.epsilon is None:
        budget = replace(budget, rho=None, epsilon=plan.spent.epsilon)
    with_default = replace(budget, conversion=None)
    if budget.conversion and plan.replan(unit, with_default).spent.rho == plan.spent.rho:
        budget = with_default  # a bundle states even the default conversion, and another unit may have a better one
    for other, note in _iterate_alternative_units(unit, subject):
        if plan.uncounted_step is not None and other.kind != unit.kind:
            note += f"; the number of uncounted {subject.nouns.records} is then not measured"
        yield Choice("unit", render_clauses(subject.with_unit(other))["choice"], other, budget, note)
    opposite = replace(unit, neighbours="unbounded" if unit.neighbours == "bounded" else "bounded")
    yield Choice("neighbours", opposite.neighbours, opposite, budget)
    yield from _iterate_alternative_bounds(unit, budget, subject)
    if budget.delta:
        for delta in (100 * budget.delta, budget.delta / 100):
            if delta < 1:
                yield Choice("delta", format_rounded_up(delta), unit, replace(budget, delta=delta))
    promised = budget.epsilon or plan.spent.epsilon
    for epsilon in (promised / 2, 2 * promised):
        yield Choice("epsilon", format_rounded_up(epsilon), unit, replace(budget, rho=None, epsilon=epsilon))


def _iterate_alternative_units(unit: PrivacyUnit, subject: Subject) -> Iterator[tuple[PrivacyUnit, str]]:
    """Yield the units that a release could have instead, with a note on each; none if records have weights."""
    nouns = subject.nouns
    if not unit.is_of_users:
        if unit.max_weight is None:
            for most in TRIPS_OF_A_USER:
                note = f"needs a user id; further {nouns.records} are not counted"
                yield PrivacyUnit("user", unit.neighbours, column="user", max_trips=most), note
        return
    yield PrivacyUnit("trip", unit.neighbours), f"protects each {nouns.record}, and not the {subject.owner}"
    if unit.is_of_year:
        of_period = replace(unit, kind="user_period", max_trips_year=None, id_pattern=None)
        yield of_period, f"a {subject.owner} is then protected period by period, with no bound for the year"
        return
    if unit.spans_periods:
        note = f"the losses of several periods then do not add up, and a {subject.owner} is protected period by period"
        yield replace(unit, kind="user_period"), note
        return
    yield replace(unit, kind="user"), "the losses of all periods then add up under one cap"


def _iterate_alternative_bounds(unit: PrivacyUnit, budget: Budget, subject: Subject) -> Iterator[Choice]:
    """Yield the choices with half and double the contribution bound of users or weights; none if there is no bound.

    If necessary, the bound of a year is raised to that of a period, and the bound of a pair lowered to it.
    """
    bound = unit.contribution_bound
    nouns = subject.nouns
    for other in sorted({max(bound // 2, 1), 2 * bound} - {bound}):
        records = nouns.record if other == 1 else nouns.records
        note = f"{'fewer' if other < bound else 'more'} {nouns.records} are counted"
        if subject.is_weighted:
            note = f"a heavy {nouns.record} counts {'less' if other < bound else 'more'}"
        choice = f"a weight of at most {other}" if subject.is_weighted else f"at most {other} {records}"
        if unit.max_weight is not None:
            yield Choice("m", choice, replace(unit, max_weight=other), budget, note)
        elif unit.is_of_users:
            year_bound = unit.max_trips_year and max(unit.max_trips_year, other)
            if year_bound is not None:
                choice += f" in a period and {year_bound} in the year"
            pair_bound = unit.max_trips_pair and min(unit.max_trips_pair, other)
            other_unit = replace(unit, max_trips=other, max_trips_year=year_bound, max_trips_pair=pair_bound)
            yield Choice("m", choice, other_unit, budget, note)


PRIORS = (Fraction(1, 1000), Fraction(1, 100), Fraction(1, 10), Fraction(1, 2), Fraction(9, 10))
"""Beliefs of an attacker before the release for which bounds are stated."""

USERS, RECORDS = (1, 2), (1, 2, 5, 10, 40)
"""Numbers of users, or of records of one person, for which bounds are stated."""


@dataclass(frozen=True, eq=False)
class Explanation:
    """A published release, explained.

    Attributes:
        facts: public facts on the release.
        balance: balance of the elementary period with the least remaining part of its cap; None if the ledger is not
            at hand.
        chosen: the release as it was planned; None for a derived release.
        others: other choices and their costs; empty for a derived release.

    Examples:
        >>> explanation = explain_release(bundle)
        >>> explanation.said["statement"].partition(".")[0]
        'An attacker compares two cases that differ in one unit'
        >>> [*explanation.beliefs()[0]]
        ['prior', 'posterior_at_least', 'posterior_at_most', 'best_guess_before', 'best_guess_after']
    """

    facts: Facts
    balance: Balance | None
    chosen: Alternative | None
    others: Sequence[Alternative]

    @cached_property
    def said(self) -> dict[str, str]:
        """Sentences: what was ``protected`` and ``spent``, and what the bounds on beliefs mean (``statement``)."""
        values = {"facts": self.facts, "certificate": self.facts.certificate, "balance": self.balance}
        return dict(render_data("explanation.yaml", **values))

    def losses(self) -> list[dict[str, object]]:
        """Return what is promised for a unit: first by everything that may be published, last by this release alone.

        Each dictionary has ``of``, the words that name the releases, and the numbers of :func:`_describe_promise`.
        """
        return [{"of": loss.of, **_describe_promise(loss.guarantee)} for loss in self.facts.losses]

    def beliefs(self) -> list[dict[str, float]]:
        """Return, for each prior, bounds of the posterior, and the probability that the best guess is right."""
        guarantee = self.facts.guarantee
        beliefs = []
        for prior in PRIORS:
            least, largest = guarantee.bound_posterior(prior)
            beliefs.append(
                {
                    "prior": float(prior),
                    "posterior_at_least": round_down_to_float(least),
                    "posterior_at_most": round_up_to_float(largest),
                    "best_guess_before": float(max(prior, 1 - prior)),
                    "best_guess_after": round_up_to_float(guarantee.bound_guess_probability(prior)),
                }
            )
        return beliefs

    def persons(self) -> list[dict[str, object]]:
        """Return the promise to a person with each of several numbers of privacy units (``units``).

        The other numbers are those of :func:`_describe_promise`.
        """
        guarantee = self.facts.guarantee
        numbers = USERS if self.facts.subject.is_of_users else RECORDS
        return [{"units": units, **_describe_promise(guarantee.scale_to_units(units))} for units in numbers]

    def to_facts(self) -> dict[str, object]:
        """Return the whole explanation as a JSON-ready dictionary."""
        values = {"facts": self.facts, "certificate": self.facts.certificate, "balance": self.balance}
        return dict(render_data("explanation.json", explanation=self, **values))


def explain_release(bundle: str | Path, ledger: Ledger | None = None) -> Explanation:
    """Explain a published release of any kind.

    Args:
        bundle: its folder or .zip file.
        ledger: the ledger that was charged, if it is at hand. A ledger that has another release, or none, is not used.

    Raises:
        OdError: the bundle does not exist, is damaged or incomplete, or contradicts its certificate.

    Examples:
        >>> explain_release(bundle).chosen.choice
        'one trip, bounded'
    """
    with open_bundle_folder(Path(bundle)) as folder:
        facts = Facts.from_bundle(folder)
        if facts.is_derived:
            return Explanation(facts, _find_least_balance(facts, ledger), None, ())
        release = find_bundle_kind(facts.certificate).open(folder)
    lost_draws = facts.certificate["spent"]["lost_draws"]
    return Explanation(
        facts,
        _find_least_balance(facts, ledger),
        chosen=describe_own_choice(release.plan, lost_draws, release.measured, facts.subject),
        others=list_alternatives(release.plan, release.measured, facts.subject),
    )


def _find_least_balance(facts: Facts, ledger: Ledger | None) -> Balance | None:
    """Return the balance of a release with the least remaining part of its cap.

    For derived flows, it is the one of the releases that they follow from. Return None if there is no ledger, or it is
    not the one to which they were charged.
    """
    if ledger is None:
        return None
    keys = [ReleaseKey.parse(source["release"]) for source in facts.sources] if facts.sources else [facts.key]
    stated_entry = None if facts.sources else facts.certificate.get("ledger")
    try:
        for key in keys:
            entry = ledger.record(key).entry
            if stated_entry is not None and (entry.number, entry.hash) != (stated_entry["entry"], stated_entry["hash"]):
                return None
        balances = [ledger.balance(facts.certificate["data_set"], key.period) for key in keys]
    except OdError:  # it is the ledger of another project
        return None
    return find_least_balance(balances)


def _describe_promise(guarantee: Guarantee | None) -> dict[str, float | None]:
    """Return the ``epsilon`` and ``delta`` of a promise, and the largest share of right guesses, ``best_guess_after``.

    The guesses are between two equally likely cases. All numbers are rounded up. Without a promise, epsilon and delta
    are None, and every guess may be right.
    """
    if guarantee is None:
        return {"epsilon": None, "delta": None, "best_guess_after": 1.0}
    promise = {
        "epsilon": guarantee.epsilon,
        "delta": guarantee.delta,
        "best_guess_after": guarantee.bound_guess_probability(),
    }
    return {name: round_up_to_float(value) for name, value in promise.items()}
