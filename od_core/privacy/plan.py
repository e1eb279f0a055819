"""Define the base class of the plans of all kinds of releases, of their steps, and the count of uncounted trips.

A step is one vector query to which noise is added. A plan has the steps of a release, in order, and their cost.

For a unit of a year, a release may also measure how many trips the contribution bounds leave out, as one noisy
number, whose charges add up over a year in full; see ``docs/explanation/person-year.md``.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self, TypeVar, cast

from od_core.errors import OdError
from od_core.files.durable import compute_facts_digest
from od_core.noise.opendp import MAX_VARIANCE
from od_core.notebook import Shown
from od_core.privacy.accounting import Number, format_promise, format_rounded_up, parse_exact_fraction
from od_core.privacy.budget import Budget, Charge, Spent, make_charge_error, refuse_wrong_charge
from od_core.privacy.domain import Charged, bound_rho_of_year
from od_core.privacy.neighbours import Acceptance, Neighbours, NodeSizes
from od_core.privacy.stability import compute_laplace_reach, compute_laplace_variance, compute_stability_threshold
from od_core.privacy.unit import PrivacyUnit
from od_core.registry import Registry

if TYPE_CHECKING:
    import pandas as pd

Instance = TypeVar("Instance")

Table = Literal["flows", "counts", "group sizes", "boxes"]
"""What a release has; counts are flows of one hierarchy."""

EARLIER = "earlier"
"""Name of a plan's fact on earlier releases of the series. It is no setting: it is fixed when a release is reserved."""


@dataclass(frozen=True)
class Step(ABC):
    """A planned query: a vector of counts that is measured with noise once and charged once.

    Attributes:
        level: for a tree, the level that the step measures; otherwise the number of the step in the release.

    Examples:
        >>> [step.level for step in plan.steps]
        [0, 1, 2, 3, 4]
    """

    level: int

    @property
    def number(self) -> int:
        """Number of the step, by which the ledger and the files of measurements identify it within the release."""
        return self.level

    @property
    def by_segment(self) -> bool:
        """True if the step counts the trips of a level by the categories of a breakdown."""
        return False

    @property
    @abstractmethod
    def charge(self) -> Charge:
        """Charge that the ledger reserves for one draw."""

    @property
    @abstractmethod
    def variance_bound(self) -> Fraction:
        """Upper bound of the variance of the noise. A plan is refused if the noise backend cannot draw with it."""

    @property
    @abstractmethod
    def noise_facts(self) -> dict[str, Any]:
        """Sensitivity, and variance or scales of the noise, as JSON-ready public facts; fractions are exact text."""

    def facts(self) -> dict[str, Any]:
        """Return the step as JSON-ready public facts; fractions are exact text."""
        return {"level": self.level, **self.noise_facts, **self.charge.facts()}


@dataclass(frozen=True)
class GaussianStep(Step):
    """A query that is measured with discrete Gaussian noise, such as one level [boninsegna2025inftda, Algorithm 1].

    Attributes:
        level: level of the flow tree; 0 is the root.
        sensitivity_squared: the squared L2 sensitivity of the whole query.
        variance: variance of the noise, exact.
        node_sizes: under a pair cap, sizes of the nodes of the level, from which the sensitivity follows.

    Raises:
        OdError: The variance is not above 0, or the noise is too wide for 64 bits.
    """

    sensitivity_squared: int
    variance: Fraction
    node_sizes: NodeSizes = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        if self.variance <= 0:
            raise make_plan_error("a step needs a variance")
        if self.variance > MAX_VARIANCE:
            message = "the budget is too small for noise of 64 bits"
            raise OdError("OD-BUDGET-RHO", message, next_step="raise epsilon or rho")

    @property
    def rho(self) -> Fraction:
        """Exact rho of one draw of the noise."""
        return Fraction(self.sensitivity_squared) / (2 * self.variance)

    @cached_property
    def charge(self) -> Charge:
        """Charge of one draw of the noise, in rho."""
        return Charge(rho=self.rho)

    @property
    def variance_bound(self) -> Fraction:
        """Upper bound of the variance of the noise, which is the variance itself, because it is known exactly."""
        return self.variance

    @property
    def noise_facts(self) -> dict[str, Any]:
        """Squared L2 sensitivity, noise variance and node sizes, ready for JSON; the variance is exact text."""
        sizes = {"node_sizes": [list(pair) for pair in self.node_sizes]} if self.node_sizes else {}
        return {"sensitivity_squared": self.sensitivity_squared, "variance": str(self.variance), **sizes}


@dataclass(frozen=True)
class LaplaceStep(Step):
    """A query that is measured with discrete Laplace noise, and costs a pure epsilon (delta is 0).

    Attributes:
        sensitivity: L1 sensitivity of the query.
        epsilon: the exact charge.
        scales: purpose and exact scale of each noise distribution that is fixed before the first draw. The probability
            of k is proportional to exp(-|k| / scale). If there is only one purpose, it is empty text.
        widest: upper bound of the scales that depend on a draw; 0 if there are none.
    """

    sensitivity: int
    epsilon: Fraction
    scales: tuple[tuple[str, Fraction], ...]
    widest: Fraction = Fraction(0)

    @property
    def scale(self) -> Fraction:
        """Scale of the first noise distribution."""
        _purpose, first_scale = self.scales[0]
        return first_scale

    @property
    def charge(self) -> Charge:
        """The charge that the ledger reserves for one draw: ``epsilon``."""
        return Charge(epsilon=self.epsilon)

    @property
    def variance_bound(self) -> Fraction:
        """Upper bound of the variance of the noise: 2 scale^2 for the largest scale."""
        largest_scale = max(self.widest, *(scale for _purpose, scale in self.scales))
        return 2 * largest_scale**2

    @property
    def noise_facts(self) -> dict[str, Any]:
        """Sensitivity and exact scales of the noise by name, ready for JSON."""
        scales = {f"scale_of_{purpose}" if purpose else "scale": str(scale) for purpose, scale in self.scales}
        return {"sensitivity": self.sensitivity, **scales}


class Mechanism(Protocol):
    """The part of a mechanism that every plan publishes: its name and its options."""

    @property
    def name(self) -> str:
        """Name in plans and certificates."""
        ...

    @property
    def options(self) -> dict[str, str]:
        """The fields that are not None, by name, as public text for plan and certificate; True is ``true``."""
        options: dict[str, str] = {}
        for option in fields(self):  # type: ignore[arg-type]
            value = getattr(self, option.name)
            if value is not None:
                options[option.name] = str(value).lower() if isinstance(value, bool) else str(value)
        return options


@dataclass(frozen=True)
class DetailNoise:
    """The noise of the most detailed table of a plan.

    Attributes:
        scale: variance of Gaussian noise, or scale of Laplace noise.
        deviation: standard deviation of one measured number.
        error: expected error of the published flows; None if it is not defined.
        note: which pairs a mechanism with a threshold drops, or why the noise is not known; else empty.
        is_known: False if the noise depends on what is drawn first. The numbers then are those of another noise of the
            release, which have about the same ratios.
    """

    scale: Fraction
    deviation: float
    error: float | None = None
    note: str = ""
    is_known: bool = True

    @classmethod
    def from_laplace_scale(cls, scale: Fraction, note: str = "", *, is_known: bool = True) -> Self:
        """Return the noise of a table with discrete Laplace noise of this scale; ``note`` as in the attributes."""
        return cls(scale, math.sqrt(compute_laplace_variance(scale)), note=note, is_known=is_known)


class Plan(Shown, ABC):
    """The fixed list of steps of one release, with the public facts that determine it.

    Attributes:
        acceptance: rules that decide which records are counted, and which inputs are refused.
        protects_trips_alone: whether unit ``trip`` is the only unit of plans of this class.

    Examples:
        >>> plan.to_frame().columns.tolist()[:3], plan.spent.delta
        (['level', 'origin_level', 'destination_level'], Fraction(1, 100000000))
    """

    protects_trips_alone: ClassVar[bool] = True

    unit: PrivacyUnit
    budget: Budget
    mechanism: Mechanism
    acceptance: Acceptance

    def __repr__(self) -> str:
        """Return the class, the mechanism and the charge, and how to list the steps."""
        charge = ", ".join(f"{name} {value}" for name, value in self.charge.facts().items())
        return f"{type(self).__name__}({self.mechanism.name}, {charge}; .to_frame() lists its steps)"

    def _list_notebook_facts(self) -> dict[str, Any]:
        """Return the mechanism, the promise, and the plan's verdicts by what each is about."""
        verdicts = dict(verdict.split(": ", 1) for verdict in self.verdicts())
        return {"Mechanism": self.mechanism.name, "Promise": _format_unit_promise(self.spent, self.unit), **verdicts}

    @property
    @abstractmethod
    def table(self) -> Table:
        """What the release has: one of the words by which ``od_core/meaning/support.yaml`` lists what is supported."""

    @property
    def neighbours(self) -> Neighbours:
        """Definition of the neighbouring inputs, which the guarantee makes hard to distinguish."""
        return Neighbours(self.unit, self.acceptance)

    @property
    def features(self) -> frozenset[str]:
        """Names of the options that this plan has, as ``od_core/meaning/support.yaml`` lists them.

        By default, these are the names of the unit and of the budget. Plans with further options override this.
        """
        return self.unit.features | self.budget.features

    @property
    @abstractmethod
    def steps(self) -> Sequence[Step]:
        """All steps, in the order in which they are drawn. They follow from the other attributes."""

    @property
    def uncounted_step(self) -> UncountedStep | None:
        """Step that measures the number of trips that are not counted; None if the number is not measured.

        By default, it is not measured. Plans that can measure it override this.
        """
        return None

    @property
    def charged_steps(self) -> tuple[Step, ...]:
        """All steps that the ledger charges: those of the table, then that of the uncounted trips, if there is one."""
        return tuple(self.steps) if self.uncounted_step is None else (*self.steps, self.uncounted_step)

    @property
    def charges(self) -> list[Charge]:
        """Charges of all steps; see :meth:`od_core.privacy.budget.Cap.compute_usage`."""
        return [step.charge for step in self.charged_steps]

    @property
    def charge(self) -> Charge:
        """Charge of the whole release if each step is drawn once.

        The charge of several steps is the sum of their charges as rho or, if one of them has a delta, of their epsilons
        and of their deltas.
        """
        if len(self.charged_steps) == 1:
            return self.charged_steps[0].charge
        if delta := sum((charge.delta for charge in self.charges), start=Fraction(0)):
            return Charge(epsilon=sum((charge.epsilon for charge in self.charges), start=Fraction(0)), delta=delta)
        return Charge(rho=sum((step.charge.as_rho for step in self.charged_steps), start=Fraction(0)))

    @property
    def spent(self) -> Spent:
        """Budget that a release spends if each step is drawn once."""
        return self.compute_spent([1] * len(self.charged_steps))

    def compute_spent(self, draws: Sequence[int | Fraction]) -> Spent:
        """Return the budget that the draws of the steps have spent.

        ``draws`` states how many times each of :attr:`charged_steps` was drawn, including lost draws; it may be a
        fraction, if a damaged certificate states one. By default, the epsilons and the deltas of the draws are added
        up. Plans that charge rho override this.
        """
        rhos: list[Fraction] = []
        delta = epsilon = Fraction(0)
        for times, step in zip(draws, self.charged_steps, strict=True):
            rhos.append(times * step.charge.as_rho)
            delta += times * step.charge.delta
            epsilon += times * step.charge.epsilon
        return Spent(tuple(rhos), delta=delta, promise=epsilon)

    def list_noise_charges(self, spent: Spent) -> list[Charged]:
        """Return, for each of :attr:`charged_steps`, the public facts of its noise and the rho that its draws spent.

        ``spent`` is that of a release with this plan.
        """
        return [(step.noise_facts, rho) for step, rho in zip(self.charged_steps, spent.levels, strict=True)]

    def rho_of_year(self, spent: Spent, periods: int) -> Fraction:
        """Return an upper bound of the rho that a year of releases costs one user.

        A release in each of ``periods`` elementary periods spends ``spent``. The unit must be of a year.
        """
        max_trips, max_trips_pair = self.unit.bounds
        charges_by_period = [self.list_noise_charges(spent)] * periods
        return bound_rho_of_year(charges_by_period, max_trips, self.unit.max_trips_year or 0, max_trips_pair)

    @abstractmethod
    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row per step: the measured query, the noise and the charge."""

    @abstractmethod
    def replan(self, unit: PrivacyUnit, budget: Budget) -> Plan:
        """Return the plan of a release with the same public facts, but another unit and budget.

        Raises OdError if the library has no such release.
        """

    def detail_noise(self, _measured: Any = None) -> DetailNoise:
        """Return the noise of the most detailed table.

        By default, it is that of the last step, whose noise is Laplace noise of one scale; other plans override this.
        ``_measured`` are the measurements of a release, for overrides whose noise depends on what is drawn first.
        """
        facts = self.steps[-1].noise_facts
        note = f"what has a noisy count below {facts['threshold']} is dropped" if "threshold" in facts else ""
        return DetailNoise.from_laplace_scale(Fraction(facts["scale"]), note)

    @property
    def compared_levels(self) -> dict[int, str]:
        """Names, by level, of up to three levels at which simulated releases are compared.

        By default, there are none. Plans whose releases can be simulated override this.
        """
        return {}

    @property
    def compared_widths(self) -> tuple[float, ...]:
        """Widths of the noise by which plans are compared: the absolute noise exceeds each at most 1 time in 10.

        By default, there is one width, for a number of the most detailed table, or none if the noise of this table is
        not known before the first draw.
        """
        noise = self.detail_noise()
        return (float(compute_laplace_reach(noise.scale)),) if noise.is_known else ()

    @property
    def known_to_within(self) -> dict[str, float]:
        """Half width of the 90 % interval of the flows of each level, by name of the level.

        By default, the dictionary is empty. Plans from which the intervals follow override this.
        """
        return {}

    def iterate_variants(self) -> Iterator[tuple[str, Callable[[], Plan], str]]:
        """Yield the alternatives to this plan that only plans of this class have, such as another mechanism.

        By default, there are none; override this to add some. Other units and budgets are not among them, because all
        plans have these alternatives.

        Yields:
            Three items for each alternative: its description in words; a function that returns its plan, and raises
            OdError if the library has no such release; and a note to the reader, or an empty text.
        """
        yield from ()

    def as_reserved(self, _reserved: Mapping[str, Any]) -> Self:
        """Return the plan of a release that the ledger has reserved, given the facts of the plan in the reservation.

        By default, return this plan. Override this if an earlier version of the software made another plan of the same
        declaration, so that a release which that version began keeps its plan.
        """
        return self

    def find_less_error(self) -> tuple[Any, float] | None:
        """Return another plan with a smaller expected error, and the ratio of its error to that of this plan.

        By default, and if no such plan is known, return None. Plans that can compare themselves override this.
        """
        return None

    def with_earlier_evidence(self, _found: Callable[[], Mapping[str, Any] | None]) -> Self:
        """Return the plan with what earlier releases of its series showed; see :data:`EARLIER`.

        By default, a plan does not depend on earlier releases, and is returned as it is. Plans that depend on them
        override this, and call ``_found``, a function that reads bundles. It returns None if no evidence was found, or
        three items: ``release``, the key of the newest earlier release; ``estimation``, its rule; and ``evidence``.
        """
        return self

    def refuse_other_counts(self, _counted: int) -> None:
        """Raise OdError if public facts of the plan contradict the exact number of trips or members in the input.

        By default, do nothing; plans with such facts override this. The method is called before anything is charged.
        """

    def require_forecastable(self, refusal: OdError) -> Any:
        """Return the plan if its releases can be simulated. Otherwise, raise ``refusal``.

        By default, raise. Plans of flows override this.
        """
        raise refusal

    @abstractmethod
    def verdicts(self) -> list[str]:
        """Return sentences that say how accurate the numbers are, one per level or noise distribution.

        Each begins with what it is about and a colon. The sentences follow from the plan alone, and hold for every
        input. Numbers are rounded to the weaker statement.
        """

    def facts(self) -> dict[str, Any]:
        """Return the whole plan as JSON-ready public facts; fractions are exact text."""
        return {
            "unit": self.unit.kind,
            "neighbours": self.unit.neighbours,
            "acceptance": self.acceptance.facts(),
            "mechanism": self.mechanism.name,
            "mechanism_options": self.mechanism.options,
            **self._list_own_facts(),
            "steps": [step.facts() for step in self.charged_steps],
        }

    @cached_property
    def stored_facts(self) -> dict[str, Any]:
        """The facts after a round trip through JSON, to be compared with the facts of many releases."""
        facts: dict[str, Any] = json.loads(json.dumps(self.facts()))
        return facts

    @abstractmethod
    def _list_own_facts(self) -> dict[str, Any]:
        """Return the facts that only plans of this class have, ready for JSON. :meth:`facts` adds them to its own.

        With them, the facts decide the release: plans with equal facts give equal releases from the same draws.
        """

    @property
    def digest(self) -> str:
        """SHA-256 of the facts. If two plans have the same digest, the same draws give the same release."""
        return compute_facts_digest(self.facts())

    @property
    def counts_digest(self) -> str:
        """SHA-256 of the facts that decide the counts: all but :data:`EARLIER`, which is fixed at the reservation."""
        return compute_facts_digest({name: fact for name, fact in self.facts().items() if name != EARLIER})


def describe_laplace_noise(measured: str, scale: Fraction) -> str:
    """Return the sentence of :meth:`Plan.verdicts` for numbers with discrete Laplace noise of this scale.

    ``measured`` says in words what is measured, and begins the sentence.
    """
    return f"{measured}: the noise of one measured number is at most {compute_laplace_reach(scale):,}, 9 times in 10."


def read_plan_options(facts: Mapping[str, Any], mechanisms: Registry[Any]) -> dict[str, Any]:
    """Return the arguments, by name, that the planning functions of all kinds of releases have.

    Args:
        facts: result of :meth:`Plan.facts`.
        mechanisms: mechanisms for the kind of release, by name.
    """
    return {
        "unit": PrivacyUnit.from_facts(facts),
        "budget": Budget.from_facts(facts),
        "mechanism": mechanisms.make(facts["mechanism"], **facts["mechanism_options"]),
        "acceptance": Acceptance.from_facts(facts["acceptance"]),
    }


def with_fields(instance: Instance, **values: object) -> Instance:
    """Return a copy of a dataclass ``instance`` in which the named fields have the given values.

    If it already has all of these values, return the instance itself, which keeps its cached properties.
    """
    if all(getattr(instance, name) == value for name, value in values.items()):
        return instance
    changed: Instance = replace(cast("Any", instance), **values)
    return changed


@dataclass(frozen=True, eq=False, repr=False)
class PlannedRelease(Shown, ABC):
    """The result of a release of any kind. It prints as a summary, which a notebook shows as a small table.

    Attributes:
        plan: the plan, made before any data was read.
        spent: budget that was spent. For a release with a ledger, it includes lost draws.
        noise: name of the noise backend, or several names if the setting changed between two steps. None if the noise
            source is not a backend of this library: then the release has no guarantee.
        uncounted: noisy number of the trips that are not counted, if the plan measures it.

    Examples:
        >>> release.spent == release.plan.spent
        True
    """

    plan: Plan
    spent: Spent
    noise: str | None
    uncounted: int | None = field(default=None, kw_only=True)

    def __repr__(self) -> str:
        """Return the class, the mechanism and the charge, on one line."""
        charge = ", ".join(f"{name} {value}" for name, value in self.plan.charge.facts().items())
        return f"{type(self).__name__}({self.plan.mechanism.name}, {charge})"

    def __str__(self) -> str:
        """Return the summary, one line for each text."""
        return "\n".join(f"{name}: {text}" for name, text in self._describe_release().items())

    def _list_notebook_facts(self) -> dict[str, Any]:
        """Return the texts of the summary and the cost of the release, by name."""
        spent = self.spent
        cost = (
            format_promise(spent.epsilon, spent.delta)
            if spent.promise is not None
            else f"rho {format_rounded_up(spent.rho)}"
        )
        return {**self._describe_release(), "Cost": f"{cost} of the cap of its data set"}

    def _describe_release(self) -> dict[str, str]:
        """Return texts by name: what the release is, its guarantee, its levels, and the calls that read it."""
        contents, levels, reading_calls = self._describe_contents()
        guarantee = "none, because its noise is not of this library"
        if self.has_guarantee:
            guarantee = _format_unit_promise(self.spent, self.plan.unit)
        return {"Release": contents, "Guarantee": guarantee, "Levels": levels, "Read it": reading_calls}

    @abstractmethod
    def _describe_contents(self) -> tuple[str, str, str]:
        """Return three texts for a notebook: what the release is, its levels, and the calls that read it."""

    @property
    def has_guarantee(self) -> bool:
        """True if the noise came from a backend of this library."""
        return self.noise is not None


def _format_unit_promise(spent: Spent, unit: PrivacyUnit) -> str:
    """Return the promise of a release, with its privacy unit and neighbour relation, as text."""
    return f"{format_promise(spent.epsilon, spent.delta)} for unit {unit.kind}, {unit.neighbours} neighbours"


def check_charges(plan: Plan) -> None:
    """Check that the charge of each step is the cost of its noise, and that of the plan the sum of these.

    Raises:
        OdError: the charge of a step is not the cost of its noise at the unit's sensitivity, or is not in rho although
            the unit is of a year; or a threshold does not keep its delta. Or the charges of the steps do not sum to
            the charge of the plan.
    """
    neighbours = replace(plan.neighbours, unit=plan.unit)
    for step in plan.charged_steps:
        refuse_wrong_charge(step.noise_facts, step.charge)
    for step in plan.charged_steps:
        if not isinstance(step, UncountedStep):
            _check_sensitivity(step, neighbours, counts_leaf_pairs=plan.table in ("flows", "counts"))
    charges = [step.charge for step in plan.charged_steps]
    delta = sum(charge.delta for charge in charges)
    rho = sum(charge.epsilon for charge in charges) ** 2 / 2 if delta else sum(charge.as_rho for charge in charges)
    if (plan.charge.as_rho, plan.charge.delta) != (rho, delta):
        raise make_charge_error("the charge of the whole plan does not equal the sum of the charges of its steps")


def _check_sensitivity(step: Step, neighbours: Neighbours, *, counts_leaf_pairs: bool) -> None:
    """Raise OdError unless a step has the sensitivity, the kind of charge and the threshold that the unit needs.

    ``counts_leaf_pairs`` says that each trip of a unit is in exactly one of the counts of the step. Only then is the L1
    sensitivity checked.
    """
    unit, facts = neighbours.unit, step.noise_facts
    if step.charge.epsilon and unit.is_of_year:
        raise make_charge_error(f"a release of unit {unit.kind!r} is not charged in rho")
    expected = neighbours.sensitivity_squared(step.level, by_segment=step.by_segment)
    if facts.get("sensitivity_squared", expected) != expected:
        raise make_charge_error(f"the sensitivity of level {step.level} does not match the unit")
    expected = neighbours.absolute_sensitivity(step.level, by_segment=step.by_segment)
    if counts_leaf_pairs and facts.get("sensitivity", expected) != expected:
        raise make_charge_error(f"the sensitivity of level {step.level} does not match the unit")
    threshold, charge = facts.get("threshold"), step.charge
    if threshold is not None and threshold < compute_stability_threshold(unit, charge.epsilon, charge.delta):
        raise make_charge_error("the threshold does not keep epsilon and delta for the unit")


def make_plan_error(message: str) -> OdError:
    """Return the OdError for a plan whose steps do not follow from its unit, budget and mechanism."""
    step = "make plans with the plan functions of od_core; if you did, report this"
    return OdError("OD-PLAN-INVALID", message, next_step=step)


_MAX_UNCOUNTED_TRIPS = 10**6
"""Largest value of :attr:`Uncounted.max_trips`."""


@dataclass(frozen=True)
class Uncounted:
    """The declared measurement of the trips that are not counted.

    Attributes:
        share: its share of the budget of the release, above 0 and at most 1/2.
        max_trips: K, the largest number of trips of a user that are considered in a release.

    Raises:
        OdError: a number is out of its range.

    Examples:
        >>> Uncounted(share="1/20", max_trips=20).share
        Fraction(1, 20)
    """

    share: Fraction
    max_trips: int

    def __init__(self, share: Number, max_trips: int) -> None:
        exact = parse_exact_fraction("the share of the budget for uncounted trips", share)
        if not 0 < exact <= Fraction(1, 2):
            raise _make_uncounted_error(f"their share of the budget is {exact}; it must be above 0 and at most 1/2")
        if isinstance(max_trips, bool) or not isinstance(max_trips, int) or not 1 <= max_trips <= _MAX_UNCOUNTED_TRIPS:
            raise _make_uncounted_error(f"max_trips must be a whole number from 1 to {_MAX_UNCOUNTED_TRIPS:,}")
        object.__setattr__(self, "share", exact)
        object.__setattr__(self, "max_trips", max_trips)

    def check(self, unit: PrivacyUnit) -> None:
        """Raise OdError if the unit counts more than :attr:`max_trips` trips of a user in a period."""
        if self.max_trips < unit.contribution_bound:
            raise _make_uncounted_error(
                f"max_trips is {self.max_trips}, below the bound of {unit.contribution_bound} trips a period"
            )

    def make_step(self, number: int, rho: Fraction) -> UncountedStep:
        """Return the step that measures the trips, with the ``number`` in the release and a charge of ``rho``."""
        squared = self.max_trips**2
        variance = Fraction(squared) / (2 * rho)
        return UncountedStep(level=0, sensitivity_squared=squared, variance=variance, step_number=number)

    def facts(self) -> dict[str, Any]:
        """Return the declaration as JSON-ready public facts, which :meth:`from_facts` reads."""
        return {"share": str(self.share), "max_trips": self.max_trips}

    @classmethod
    def from_facts(cls, facts: dict[str, Any] | None) -> Uncounted | None:
        """Return the declaration whose :meth:`facts` are given; None for None."""
        return None if facts is None else cls(facts["share"], facts["max_trips"])


@dataclass(frozen=True)
class UncountedStep(GaussianStep):
    """The planned query of the number of trips that are not counted. Its level is 0, because it is of all trips.

    Attributes:
        sensitivity_squared: K^2, for both neighbour relations: a user who is replaced changes one number by at most K.
        step_number: number of the step within the release.
    """

    step_number: int

    @property
    def max_trips(self) -> int:
        """K, the largest number of trips of a unit, which is the sensitivity."""
        return math.isqrt(self.sensitivity_squared)

    @property
    def number(self) -> int:
        """Number of the step, by which the ledger and the files of measurements identify it within the release."""
        return self.step_number

    @property
    def noise_facts(self) -> dict[str, Any]:
        """The facts of a Gaussian step, with the sensitivity K."""
        return {"max_uncounted": self.max_trips, **super().noise_facts}


def compute_table_share(uncounted: Uncounted | None) -> Fraction:
    """Return the share of a release's budget for its table: all, or what the number of uncounted trips leaves."""
    return Fraction(1) if uncounted is None else 1 - uncounted.share


def _make_uncounted_error(message: str) -> OdError:
    """Return the OdError for a measurement of uncounted trips that is not valid."""
    message = f"uncounted records cannot be measured: {message}"
    return OdError("OD-UNCOUNTED", message, next_step="correct or leave out `uncounted`")
