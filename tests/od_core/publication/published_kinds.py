"""A small release of every kind, published as the pipeline does it: ledger, bundle and database."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from od_core import Budget, Cap, Geography, Ledger, MapGrid, NoiseSource, PrivacyUnit, ReleaseKey, release_stops
from od_core.flows.mechanisms import MECHANISMS
from od_core.flows.publishing.kind import FLOWS
from od_core.group_sizes.publishing import GROUP_SIZES
from od_core.privacy.domain import PrivacyDomain
from od_core.publication.certificate import CheckResult
from od_core.publication.certify import build_certificate, read_release_context
from od_core.publication.kind import Kind
from od_core.published.publishing import Published, publish_release
from od_core.published.verification import verify_release
from od_core.stops.publishing import STOPS
from tests.od_core.doubles import ListedLaplace, SeededNoise
from tests.od_core.group_sizes.test_release import released
from tests.od_core.ledger import ledger_rows
from tests.od_core.publication.examples import ALL_FORMATS, released_trips

SUBJECTS = {"tables": "as_promised", "figures": "whole_numbers"}
CHECKS = [CheckResult(subject=subject, check=check, passed=True) for subject, check in SUBJECTS.items()]


def locations(root: Path, key: ReleaseKey) -> Published:
    """Where a release is below a folder like ``var``."""
    return Published.from_folder(root, key)


def faults(place: Published) -> dict[str, str]:
    """What verification finds wrong of a published release, by its parts."""
    return {finding.part: finding.fault for finding in verify_release(place) if finding.fault is not None}


def publish(
    kind: Kind[Any], release: Any, key: ReleaseKey, data_set: str, root: Path, checks: Sequence[CheckResult] = CHECKS
) -> tuple[Published, dict[str, Any]]:
    """Make a measured release public, or make it public again; return where it is, and its certificate."""
    place = locations(root, key)
    record = place.ledger.record(key)
    facts = build_certificate(kind, release, key, data_set, checks, record=record, formats=ALL_FORMATS)
    context = read_release_context(kind, place.ledger, key, data_set, place.releases)
    publish_release(place, kind, release, facts, context)
    return place, facts


def flows(
    neighbours: str = "bounded",
    geography: Geography = ledger_rows.ONE_LEVEL,
    table: pd.DataFrame = ledger_rows.FLOWS,
    **changes: Any,
) -> Any:
    return released_trips(table, geography, unit=PrivacyUnit("trip", neighbours), **changes)


MODES = ("car", "<b>bus, tram</b>", "à pied")
HOURS = ("07", "7", "not stated")
"""Categories that careless readers take for markup, for two columns, or for one number."""


def flows_by_category(neighbours: str = "bounded", geography: Geography = ledger_rows.GEOGRAPHY, **changes: Any) -> Any:
    """Flows by two breakdowns, of which only the second counts unlisted records. Nodes without trips are dropped."""
    trips = [(*row, MODES[k % 3], ("07", "7", "night")[k % 3]) for k, row in enumerate(ledger_rows.FLOWS.to_numpy())]
    trips += [("aa", "ba", 25, MODES[1], "7")]
    table = pd.DataFrame(trips, columns=[*ledger_rows.FLOWS.columns, "mode", "hour"])
    segments = {"segments": {"mode": MODES, "hour": HOURS}, "segment_unknown": {"hour": "not stated"}}
    given = {"mechanism": MECHANISMS.make("inftda_refined", keep_all_cap="1"), "noise": "table"} | changes
    return released_trips(table, geography, unit=PrivacyUnit("trip", neighbours), **segments, **given)


def group_sizes(neighbours: str = "bounded", **changes: Any) -> Any:
    return released(unit=PrivacyUnit("trip", neighbours), **changes)


POINTS = np.random.default_rng(4).integers(0, 8, (400, 4))


def boxes(neighbours: str = "bounded", **changes: Any) -> Any:
    grid = MapGrid(-10, 30, 40, 60, 8, ("origin", "destination"))
    given = {"unit": PrivacyUnit("trip", neighbours), "budget": Budget(2), "mechanism": "privtree"}
    return release_stops(POINTS, grid, **given, **changes)


@dataclass(frozen=True)
class Example:
    """A kind, how a small release of it is made, and where its figures are.

    Attributes:
        figures: file (without its ending) and column of the published figures.
        measured: file (without its ending) that has the noisy values, in a column ``noisy``.
        stored: table and column of the figures in the database.
        parts: parts of a verification that find a changed noisy value in the bundle.
        double: a source of noise that is none.
    """

    kind: Kind[Any]
    make: Callable[..., Any]
    series: str
    figures: tuple[str, str]
    measured: str
    stored: tuple[str, str]
    parts: frozenset[str]
    double: NoiseSource

    @property
    def key(self) -> ReleaseKey:
        return ReleaseKey(self.series, "2001-06")


EXAMPLES = {
    "flows": Example(
        FLOWS,
        flows,
        "commuters",
        ("flows", "trips"),
        "noisy_measurements",
        ("flows", "trips"),
        frozenset({"files", "measurements", "database"}),
        SeededNoise(1),
    ),
    "group sizes": Example(
        GROUP_SIZES,
        group_sizes,
        "departures",
        ("histogram", "groups"),
        "noisy_measurements",
        ("group_sizes", "groups"),
        frozenset({"files", "bundle"}),
        ListedLaplace([0]),
    ),
    "boxes": Example(
        STOPS,
        boxes,
        "journeys",
        ("boxes", "count"),
        "boxes",
        ("stops_boxes", "count"),
        frozenset({"files", "bundle"}),
        ListedLaplace([0]),
    ),
}


IN_BUNDLE, IN_DATABASE = ("segments", "trips"), ("segment_flows", "trips")
FINDING = frozenset({"files", "measurements", "database"})
BY_CATEGORY = Example(
    FLOWS, flows_by_category, "commuters", IN_BUNDLE, "segment_measurements", IN_DATABASE, FINDING, SeededNoise(1)
)
"""Flows with two breakdowns, whose figures are those by category."""


@dataclass(frozen=True)
class Made:
    """A published example.

    Attributes:
        release: as it was measured.
        facts: its certificate.
        place: where it is public.
    """

    example: Example
    release: Any
    facts: dict[str, Any]
    place: Published

    @property
    def kind(self) -> Kind[Any]:
        return self.example.kind

    @property
    def root(self) -> Path:
        return self.place.database.parent


def publish_examples(root: Path, examples: Mapping[str, Example] = EXAMPLES) -> dict[str, Made]:
    """Publish releases of different series below one folder, charged to one ledger; by default, one of every kind."""
    ledger = Ledger(root / "ledger.sqlite")
    made = {}
    for name, example in examples.items():
        unit = PrivacyUnit("trip", "bounded")
        ledger.declare(PrivacyDomain(example.series, unit, Cap(rho=Fraction(9)), "a test"))
        release = example.make(ledger=ledger, release_id=str(example.key))
        place, facts = publish(example.kind, release, example.key, example.series, root)
        made[name] = Made(example, release, facts, place)
    return made
