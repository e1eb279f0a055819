"""Define flows that follow from published releases alone, so that they cost no budget: sums and learned estimates."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from od_core.errors import OdError
from od_core.flows.release import Release
from od_core.flows.released_flows import ReleasedFlows
from od_core.geography.flow_tree import FlowTree


class DerivedFlows(ReleasedFlows):
    """Flows that follow from published releases alone. They are read as a release is.

    Attributes:
        releases: the releases, in the order of their periods.
    """

    releases: tuple[Release, ...]

    @property
    def tree(self) -> FlowTree:
        """The flow tree, which all releases have."""
        return self.releases[0].tree

    @property
    @abstractmethod
    def exact_trips(self) -> int | None:
        """The total number of trips if it is exact, otherwise None."""


D = TypeVar("D", bound=DerivedFlows)


def releases_of(named: Mapping[str, Any], facts: Iterable[str]) -> tuple[Release, ...]:
    """Return releases of flows, which must have the same public facts.

    Args:
        named: the releases, by the names that messages use.
        facts: names of the facts of :func:`_facts` that all must share.

    Raises:
        OdError: one of them is not a release of flows, or differs from the first in one of the facts.
    """
    for name, release in named.items():
        if not isinstance(release, Release):
            raise not_of_flows(name, "not a release of flows")
    (first, expected), *others = [(name, _facts(release)) for name, release in named.items()]
    for fact in facts:
        if unlike := [name for name, own in others if own[fact] != expected[fact]]:
            raise OdError(
                "OD-DERIVED-OTHER",
                f"{fact} of {', '.join(unlike)} {'differs' if len(unlike) == 1 else 'differ'} from {first}",
                next_step=f"choose releases in which these do not differ: {', '.join(facts)}",
            )
    return tuple(named.values())


def not_of_flows(name: str, kind: str) -> OdError:
    """Return the OdError for a release that nothing can be derived from, because of what it is."""
    return OdError(
        "OD-DERIVED-KIND",
        f"{name} is {kind}; flows can be derived only from releases of flows",
        next_step="name releases of flows; for a derived one, name the releases that it is made of",
    )


AREAS = ("the areas of the origins", "the areas of the destinations", "the order of the flow tree")
"""Facts that releases share if their flow trees are the same."""

UNIT, BREAKDOWNS = "the privacy unit", "the breakdowns"


def _facts(release: Release) -> dict[str, object]:
    """Return public facts of a release, by the words for them."""
    plan, unit = release.plan, release.plan.unit
    areas = (plan.tree.origin.digest, plan.tree.destination.digest, plan.tree.order)
    return {
        **dict(zip(AREAS, areas, strict=True)),
        UNIT: (unit.kind, unit.neighbours, unit.column, unit.contribution_bound, unit.max_weight),
        BREAKDOWNS: plan.breakdowns,
    }
