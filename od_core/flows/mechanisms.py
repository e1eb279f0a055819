"""Define the mechanisms for flows, and choose one by name.

A mechanism says which cells are measured, and how noisy counts become estimates. :data:`MECHANISMS` has all of them:
``inftda`` and ``inftda_refined``, and the baselines of [boninsegna2025inftda, section 5].
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar, Literal

from od_core.errors import OdError
from od_core.flows.arrays import Integers
from od_core.flows.estimators import ESTIMATES, LEAVES, Estimator, find_estimator
from od_core.flows.projection.onto_parents import ORDERS, Order, project_children, project_children_euclidean
from od_core.meaning.features import list_given_options
from od_core.registry import Registry, refuse_unknown

Measures = Literal["every_level", "all_leaves", "present_leaves"]
"""The cells that a mechanism measures. ``every_level`` measures every level of the flow tree, top first; the cells of a
level are the children of the nodes that the level above released. ``all_leaves`` measures every public pair of zones
once. ``present_leaves`` measures the pairs of zones with trips, and drops noisy counts below a threshold."""


class Mechanism:
    """What a mechanism measures, and how it makes estimates of noisy counts.

    The defaults are those of the mechanisms in [boninsegna2025inftda, section 5].

    Examples:
        >>> [mechanism.name for mechanism in (InfTDARefined(), InfTDA(), TDAL2(), TDALinf())]
        ['inftda_refined', 'inftda', 'tda_l2', 'tda_linf']
    """

    name: ClassVar[str]
    """Name in plans and certificates."""

    measures: ClassVar[Measures] = "every_level"
    """Cells that the mechanism measures."""

    most_pairs: ClassVar[int | None] = None
    """Largest number of public pairs of zones that the mechanism accepts; None if there is no limit."""

    default_conversion: ClassVar[str] = "tight"
    """Accounting method that is used if the budget does not name one."""

    default_shares: ClassVar[str] = "uniform"
    """Rule that divides the budget among the measured levels if the budget does not name one."""

    refines: ClassVar[bool] = False
    """True if final estimates use all levels, and not only their own level and the levels above."""

    finds_areas: ClassVar[bool] = False
    """True if the areas of the last levels are found in the records, and those below a threshold are dropped."""

    keep_all_cap: int = 0
    leaves: str = "chebyshev"
    u: Fraction = Fraction(3, 2)
    estimate: str = "least_squares"
    segment_profile: Fraction | None = None
    """Options of :class:`InfTDARefined`, with the values that they have for all other mechanisms."""

    noise_distribution: str = "gaussian"
    """Option of :class:`InfTDARefined`: the noise of each measured level."""

    threshold: str = "least"
    """Option of :class:`StabilityHistogram`; no other mechanism has a threshold."""

    @property
    def options(self) -> dict[str, str]:
        """Options by name, as public text, for the plan and the certificate.

        By default, there are none; override this if the mechanism has options.
        """
        return {}

    @property
    def features(self) -> frozenset[str]:
        """Names of what a plan with this mechanism has, as ``od_core/meaning/support.yaml`` lists them."""
        return list_given_options(
            inftda_refined=self.refines,
            vanilla_gauss=self.measures == "all_leaves",
            stability_histogram=self.measures == "present_leaves",
            inftda_stability=self.finds_areas,
            empirical_bayes=self.leaf_dial is not None,
            shrunk=self.shrinks,
            u=self.u != Mechanism.u,
            segment_profile=self.segment_profile,
            laplace=self.has_laplace_noise and not self.finds_areas,
        )

    def with_noise(self, _distribution: str) -> Mechanism:
        """Return the mechanism with another distribution of its noise.

        By default, return the mechanism as it is; override this if an option names the distribution.
        """
        return self

    @property
    def has_laplace_noise(self) -> bool:
        """True if each measured level has Laplace noise, which is charged in epsilon; Gaussian noise costs rho."""
        return self.noise_distribution == "laplace"

    @property
    def estimator(self) -> Estimator:
        """How the measurements of all levels become one estimate, if the mechanism refines."""
        return find_estimator(self.options)

    @property
    def shrinks(self) -> bool:
        """True if the estimates of totals may learn from all nodes of a level."""
        return self.estimator.leaf_bytes > 0

    @property
    def learns_from_levels(self) -> bool:
        """True if estimates may learn from all nodes of a level, so that all measurements must fit into memory."""
        return self.shrinks or self.segment_profile is not None

    @property
    def leaf_dial(self) -> Fraction | None:
        """Option ``u`` of leaves that are estimated by empirical Bayes; otherwise None."""
        return self.u if self.leaves == "empirical_bayes" else None

    def project(self, noisy: Integers, totals: Integers, offsets: Integers) -> Integers:
        """Return the estimated counts of the children of all parents; shape (children,), as ``noisy``.

        By default, return the noisy counts, for mechanisms that measure the leaves alone. A mechanism that measures
        every level must override this: the counts are then integers of at least 0, and the children of each parent sum
        to the parent's total. For the arguments, see :func:`od_core.flows.projection.onto_parents.check_parents`.
        """
        return noisy


@dataclass(frozen=True)
class InfTDA(Mechanism):
    """InfTDA: a top-down pass that projects the children of each node with IntOpt, which minimises the largest change.

    Attributes:
        order: the order in which IntOpt lowers counts that sum to more than their parent: ``ascending`` lowers the
            smallest first (fewer false positives, as in [boninsegna2025inftda]), ``descending`` lowers the largest
            first (fewer false negatives).

    Examples:
        >>> plan_release(geography, unit=unit, budget=budget, mechanism=InfTDA()).mechanism.name
        'inftda'
    """

    order: Order = "ascending"

    name: ClassVar[str] = "inftda"

    def __post_init__(self) -> None:
        refuse_unknown("order", self.order, ORDERS, code="OD-INTOPT-ORDER", next_step="choose ascending or descending")

    @property
    def options(self) -> dict[str, str]:
        """Options by name, as public text."""
        return {"order": self.order}

    def project(self, noisy: Integers, totals: Integers, offsets: Integers) -> Integers:
        """Return the counts that IntOpt gives the children of each parent."""
        return project_children(noisy, totals, offsets, self.order)


KEEP_ALL_CAP = 5_000_000
"""Default of ``keep_all_cap``."""


@dataclass(frozen=True)
class InfTDARefined(InfTDA):
    """InfTDA, followed by least squares over all measured levels.

    It has less error than InfTDA at the same epsilon and delta (``docs/explanation/estimator.md``).

    Attributes:
        order: See :class:`InfTDA`.
        keep_all_cap: Largest number of public leaf pairs for which no node is dropped before all levels are measured.
            With breakdowns, a leaf pair counts once for its total and once for each category. If there are more, each
            node that is estimated as 0 is dropped with all nodes below it. This does not affect the charge, since a
            level is one query however many of its nodes are measured.
        leaves: How the trips of a node are divided among its leaves. ``chebyshev`` applies IntOpt, as on every other
            level. ``empirical_bayes`` (``od_core.flows.estimation.empirical_bayes``) has less error on real flows, but
            not on data in which the count of one cell says nothing about the others.
        estimate: How the measurements of all levels become one estimate. ``least_squares`` uses the measurements on the
            path of a node. ``shrunk`` (``od_core.flows.estimation.shrinkage``) also learns from all other nodes, and
            needs whole levels in memory. With segments, it estimates the totals. With ``leaves: empirical_bayes``, it
            uses a mixture of deviations at every level instead, and gives small numbers in lumps. This has much less
            error if most pairs of zones have no trips, and more if all have some. ``auto``
            (``od_core.flows.estimation.rule_choice``) chooses between all of these by the error that held-out noise
            shows.
        u: Used with ``empirical_bayes`` only. The smallest number of trips that a small leaf receives, in standard
            deviations of its noise, unless its parent has less; 1/10 to 100. A larger u causes fewer false positives
            and more false negatives.
        segment_profile: Used with segments only. Moves the trips of each node in a category towards those that its
            parent's division among categories predicts (``od_core.flows.estimation.refinement``), by at most
            this number of standard deviations of the noise, 1/10 to 100. This has less error if the parts of an area
            have similar divisions, but the results are biased. None, the default, moves nothing.
        noise_distribution: ``gaussian``, or ``laplace`` for discrete Laplace noise and a pure epsilon, without delta.
            Laplace noise grows with the number of measured levels, so a release of flows needs ``tree="both"``.

    Examples:
        >>> shrunk = InfTDARefined(estimate="shrunk", leaves="empirical_bayes")
        >>> plan_release(geography, unit=unit, budget=budget, mechanism=shrunk).spent == plan.spent
        True
    """

    keep_all_cap: int = KEEP_ALL_CAP
    leaves: str = "chebyshev"
    estimate: str = "least_squares"
    u: Fraction = Fraction(3, 2)
    segment_profile: Fraction | None = None
    noise_distribution: str = "gaussian"

    name: ClassVar[str] = "inftda_refined"
    default_conversion: ClassVar[str] = "exact"
    default_shares: ClassVar[str] = "geography"
    refines: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.keep_all_cap, str) and self.keep_all_cap.isdecimal():  # option values in plans are text
            object.__setattr__(self, "keep_all_cap", int(self.keep_all_cap))
        if isinstance(self.keep_all_cap, bool) or not isinstance(self.keep_all_cap, int) or self.keep_all_cap < 0:
            raise _make_option_error("keep_all_cap must be a whole number of leaf pairs, at least 0")
        choices = (
            ("leaf estimator", self.leaves, LEAVES),
            ("estimate", self.estimate, ESTIMATES),
            ("noise distribution", self.noise_distribution, NOISE_DISTRIBUTIONS),
        )
        for what, name, allowed in choices:
            step = f"choose {', '.join(allowed[:-1])} or {allowed[-1]}"
            refuse_unknown(what, name, allowed, code="OD-MECHANISM-OPTION", next_step=step)
        if self.estimate == "auto" and self.leaves != "chebyshev":
            raise _make_option_error(
                "estimate: auto chooses how leaves are estimated, so leaves must be chebyshev",
                "leave out the option leaves",
            )
        object.__setattr__(self, "u", _parse_deviations("u", self.u))
        if self.segment_profile is not None:
            object.__setattr__(self, "segment_profile", _parse_deviations("segment_profile", self.segment_profile))

    @property
    def options(self) -> dict[str, str]:
        """Options by name, as public text. Options added after version 0.1.0 are left out if they have no effect."""
        options = super().options | {"keep_all_cap": str(self.keep_all_cap)}
        if self.estimate != "least_squares":
            options["estimate"] = self.estimate
        if self.segment_profile is not None:
            options["segment_profile"] = str(self.segment_profile)
        if self.noise_distribution != "gaussian":
            options["noise_distribution"] = self.noise_distribution
        return options if self.leaf_dial is None else options | {"leaves": self.leaves, "u": str(self.leaf_dial)}

    def with_noise(self, distribution: str) -> Mechanism:
        """Return the mechanism with the noise ``distribution``, one of :data:`NOISE_DISTRIBUTIONS`."""
        return replace(self, noise_distribution=distribution)


NOISE_DISTRIBUTIONS = ("gaussian", "laplace")
"""Distributions of the noise of measured levels, by name."""


def _parse_deviations(name: str, value: object) -> Fraction:
    """Return an option that is a number of standard deviations, given as a number or as text, exactly.

    Raises OdError if it is not a number from 1/10 to 100.
    """
    try:
        deviations = Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        deviations = Fraction(0)  # which is out of range
    if not Fraction(1, 10) <= deviations <= 100:
        raise _make_option_error(f"{name} must be a number of standard deviations from 1/10 to 100")
    return deviations


def _make_option_error(message: str, next_step: str = "correct the option of the mechanism") -> OdError:
    """Return the error for an invalid option of a mechanism."""
    return OdError("OD-MECHANISM-OPTION", message, next_step=next_step)


@dataclass(frozen=True)
class TDAL2(Mechanism):
    """A top-down pass that changes the noisy counts by the least sum of squares, and then rounds with the same sums.

    The TopDown algorithm of the US census differs in two ways. It weights squares by inverse variance, which makes no
    difference if all children of a node have equal noise. It rounds by a second optimisation.

    Examples:
        >>> TDAL2().name
        'tda_l2'
    """

    name: ClassVar[str] = "tda_l2"
    project = staticmethod(project_children_euclidean)


@dataclass(frozen=True)
class TDALinf(Mechanism):
    """A top-down pass that minimises the same distance as InfTDA, with a general solver (HiGHS).

    Several integer tables can be optimal. IntOpt, the projection of InfTDA, takes the excess from the smallest counts;
    this one chooses regardless of the counts. A comparison with InfTDA shows how much accuracy and speed IntOpt
    gains.

    Examples:
        >>> TDALinf().name
        'tda_linf'
    """

    name: ClassVar[str] = "tda_linf"
    most_pairs: ClassVar[int | None] = 100_000_000  # above it, the solver takes minutes

    def project(self, noisy: Integers, totals: Integers, offsets: Integers) -> Integers:
        """Return integers of at least 0 that sum to each parent's total, with the least largest change, by a solver."""
        from od_core.flows.projection.linear_programs import project_children_by_solver  # importing SciPy takes 0.5 s

        return project_children_by_solver(noisy, totals, offsets)


@dataclass(frozen=True)
class VanillaGauss(Mechanism):
    """Discrete Gaussian noise on every public pair of zones, released as measured.

    The released counts are unbiased, and some are negative. The leaves have the whole budget. Nothing is projected, so
    the table does not sum to the true number of trips. At a level above the leaves, the noise of all leaf pairs below a
    node adds up [boninsegna2025inftda, Proposition 1].

    Examples:
        >>> VanillaGauss().name
        'vanilla_gauss'
    """

    name: ClassVar[str] = "vanilla_gauss"
    measures: ClassVar[Measures] = "all_leaves"
    most_pairs: ClassVar[int | None] = 50_000_000  # nearly every pair is in the table and takes 16 bytes of memory


THRESHOLDS = ("least", "bun_nissim_stemmer")
"""Rules of the threshold of the stability histogram, by name."""


@dataclass(frozen=True)
class StabilityHistogram(Mechanism):
    """Discrete Laplace noise on the pairs of zones with trips, and a threshold below which pairs are dropped.

    This is the stability histogram of [bun2019simultaneous], as in [boninsegna2025inftda, Theorem 8]. It never releases
    a pair without a true trip. Its guarantee is (epsilon, delta) and has no rho. Delta bounds the probability that a
    pair with trips of only one privacy unit is released (``docs/explanation/noise.md``).

    Attributes:
        threshold: The rule of the threshold. ``least`` is the least integer that keeps delta. ``bun_nissim_stemmer`` is
            that of the paper, 1 + s ln(2 / delta) with the noise scale s, rounded up. It hides more pairs. A plan is
            refused if this threshold does not keep delta, which happens for units with several trips.

    Examples:
        >>> StabilityHistogram().name
        'stability_histogram'
    """

    threshold: str = "least"

    name: ClassVar[str] = "stability_histogram"
    measures: ClassVar[Measures] = "present_leaves"

    def __post_init__(self) -> None:
        step = f"choose {' or '.join(THRESHOLDS)}"
        refuse_unknown("threshold", self.threshold, THRESHOLDS, code="OD-MECHANISM-OPTION", next_step=step)

    @property
    def options(self) -> dict[str, str]:
        """Options by name, as public text; empty for the default, as in earlier versions."""
        return {} if self.threshold == "least" else {"threshold": self.threshold}


@dataclass(frozen=True)
class InfTDAStability(InfTDA):
    """InfTDA for zones that no public list has: stability-based noise at the levels whose areas are in the records.

    Public levels are measured as in :class:`InfTDA`, with discrete Laplace noise. At a level of found areas, noise is
    added to the children with trips alone, and those below the threshold of the level are dropped, as by
    :class:`StabilityHistogram`. The trips of the dropped ones are in the remainder of their parent, which has a code
    that ends with ``*``. The guarantee is (epsilon, delta); found levels have equal parts of delta
    (``docs/explanation/unknown-zones.md``). This is the future work of [boninsegna2025inftda, section 6].

    Examples:
        >>> states = Geography.from_frame(pd.DataFrame({"state": ["CA", "GA"]}), levels=["state"])
        >>> airports = {"found": {"airport": None}, "mechanism": InfTDAStability()}
        >>> plan = plan_release(states, unit=unit, budget=Budget(epsilon=1, delta="1e-6"), **airports)
        >>> plan.spent.epsilon, plan.spent.delta
        (Fraction(1, 1), Fraction(1, 1000000))
    """

    noise_distribution: ClassVar[str] = "laplace"  # type: ignore[misc]  # no option here

    name: ClassVar[str] = "inftda_stability"
    finds_areas: ClassVar[bool] = True


COMPARED_MECHANISMS: tuple[Mechanism, ...] = (InfTDA(), InfTDARefined(), InfTDARefined(estimate="auto"), TDAL2())
"""Mechanisms that are compared when a team decides on one: those whose releases can be published.

TDA with a general solver has the errors of InfTDA, and takes longer.
"""

MECHANISMS: Registry[Mechanism] = Registry(
    "flows",
    {
        kind.name: kind
        for kind in (InfTDA, InfTDARefined, TDAL2, TDALinf, VanillaGauss, StabilityHistogram, InfTDAStability)
    },
)
