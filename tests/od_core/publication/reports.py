"""A small release of every kind, from real noise, with its report; its codes are markup that a careless page runs."""

import functools
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd

from od_core import Balance, Budget, Geography, MapGrid, PrivacyUnit, release_flows, release_group_sizes, release_stops
from od_core.flows.publishing.kind import FLOWS
from od_core.group_sizes.publishing import GROUP_SIZES
from od_core.ledger.release_key import ReleaseKey
from od_core.publication.certify import build_certificate
from od_core.publication.kind import Kind, ReleaseContext
from od_core.stops.publishing import STOPS
from tests.od_core.publication.examples import CHECKS, RECORD

EVIL = ("<script>alert(1)</script>", '"><img src=x onerror=alert(2)>', "a&amp;b'</title>", "]]><b>")
"""Codes of zones that would be markup, were they not written as text."""

PLACES = {"latitude": ["45", "46.5", "-20", "10"], "longitude": ["170", "-170", "179.5", "-178"]}
ZONES = pd.DataFrame({"region": ["<i>r</i>", "<i>r</i>", "s", "s"], "zone": list(EVIL), **PLACES}, dtype=object)
"""On both sides of the meridian where degrees begin anew."""


def geography(*, located: bool = True) -> Geography:
    return Geography.from_frame(ZONES, ["region", "zone"], coordinates=("latitude", "longitude") if located else None)


@dataclass(frozen=True)
class Reported:
    """A release, and what its report is made from."""

    kind: Kind[Any]
    release: Any
    certificate: dict[str, Any]
    context: ReleaseContext[Any]

    @property
    def text(self) -> str:
        return self.kind.render_report(self.release, self.certificate, self.context)


def flows(seed: int = 1, size: int = 60, **changes: Any) -> Any:
    generator = np.random.default_rng(seed)
    ends = {side: generator.choice(EVIL, size) for side in ("origin", "destination")}
    trips = pd.DataFrame({**ends, "trips": generator.integers(0, 200, size)})
    given = {"unit": PrivacyUnit("trip"), "budget": Budget(rho=2, delta="1e-8"), "noise": "table"} | changes
    return release_flows(trips, given.pop("geography", geography()), **given, fault_threshold=0)


def groups() -> Any:
    generator = np.random.default_rng(2)
    areas, sizes = generator.choice(EVIL, 80), generator.integers(0, 12, 80)
    table = pd.DataFrame({"group": [f"g{k}" for k in range(80)], "area": areas, "size": sizes})
    given = {"unit": PrivacyUnit("trip"), "budget": Budget(2), "mechanism": "cumulative"}
    return release_group_sizes(table, geography(), **given, top_code=10)


def stops() -> Any:
    points = np.random.default_rng(3).integers(0, 8, (300, 4))
    grid = MapGrid(-10, 30, 40, 60, 8, ("<b>home", "work"))
    return release_stops(points, grid, unit=PrivacyUnit("trip"), budget=Budget(2))


def reported(release: Any, kind: Kind[Any], previous: Any = None) -> Reported:
    key = ReleaseKey("small", "2001-06")
    facts = build_certificate(kind, release, key, "survey", CHECKS, record=RECORD)
    earlier = ReleaseKey("small", "2001-05")
    before = None if previous is None else (earlier, previous)
    then = {} if previous is None else build_certificate(kind, previous, earlier, "survey", CHECKS, record=RECORD)
    balance = Balance("survey", "2001-06", Fraction(9), Fraction(4), dict.fromkeys("abc", Fraction(1)), 0)
    return Reported(kind, release, facts, ReleaseContext(balance, before, then))


@functools.cache
def examples() -> dict[str, Reported]:
    """One of every kind."""
    made = (flows(), groups(), stops())
    previous = (flows(seed=7), None, None)
    each = zip((FLOWS, GROUP_SIZES, STOPS), made, previous, strict=True)
    return {kind.contents: reported(release, kind, before) for kind, release, before in each}
