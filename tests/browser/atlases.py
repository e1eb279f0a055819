"""Pages of atlases for tests, and the releases that they show."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from od_core import Budget, Geography, PrivacyUnit, Release, release_flows
from od_core.flows.interval_ends import choose_reliability_words
from od_core.flows.publishing.atlas import write_atlas
from od_core.flows.publishing.flow_tables import FlowTables
from od_core.flows.released_flows import ReleasedFlows
from od_core.ledger.release_key import ReleaseKey
from tests.od_core.publication.examples import facts


def written(flows: ReleasedFlows, certificate: dict, folder: Path) -> str:
    """The address of the atlas of some flows."""
    place = folder / "atlas.html"
    with place.open("wb") as file:
        write_atlas(FlowTables.from_release(flows, certificate), certificate, file)
    return place.as_uri()


def in_folder(release: Release, folder: Path, /, period: str = "2001-01", **stated: Any) -> str:
    folder.mkdir()
    return written(release, facts(release, ReleaseKey("other", period, 1)) | stated, folder)


def compare_with(page, path: Path) -> None:
    with page.expect_file_chooser() as chooser:
        page.click("#compare")
    chooser.value.set_files(path)


def word_of(trips: int, lower: int, upper: int) -> str:
    """The word on a number by the library; pages have none on one that was released as 0."""
    (word,) = choose_reliability_words(*(np.array([number]) for number in (trips, lower, upper)))
    return str(word) if trips else ""


def with_word(text: str) -> list[int]:
    """A number and the ends of its interval, as in ``37 20 to 54, rough`` or ``0 likely none``.

    The word after the comma must be the one of these numbers.
    """
    numbers, _, word = " ".join(text.split()).replace("likely none", "0 to 0").partition(", ")
    found = [int(part.replace(",", "")) for part in numbers.replace(" to ", " ").split()]
    assert word == word_of(*found)
    return found


def downloaded(page) -> tuple[str, list[dict[str, str]]]:
    """The name and the rows of the file that the page makes of what it shows."""
    with page.expect_download() as saved:
        page.click("#download")
    with Path(saved.value.path()).open(encoding="utf-8", newline="") as file:
        return saved.value.suggested_filename, list(csv.DictReader(file))


def released(flows: pd.DataFrame, geography: Geography, **changes: Any) -> Release:
    """A release of trips, by default with little noise."""
    options = {"unit": PrivacyUnit("trip"), "budget": Budget(epsilon=5, delta="1e-8"), "fault_threshold": 0}
    return release_flows(flows, geography, **options | changes)


def of_all_pairs(origins: Geography, destinations: Geography, **changes: Any) -> Release:
    """A release in which every pair of zones has at least a thousand trips."""
    pairs = pd.MultiIndex.from_product([origins.zones, destinations.zones], names=["origin", "destination"])
    flows = pd.DataFrame({"trips": range(1_000, 1_000 + 10 * len(pairs), 10)}, pairs).reset_index()
    return released(flows, origins, destination_geography=destinations, **changes)


def between_some(flows: pd.DataFrame, zones: Sequence[str]) -> tuple[pd.DataFrame, dict[str, pd.DataFrame]]:
    """The flows that do not begin in one zone and do not end in another, and the pairs that can have trips.

    These are the pairs of the flows, and with each of them that of its origin and the next destination.
    """
    flows = flows[(flows["origin"] != zones[3]) & (flows["destination"] != zones[5])]
    listed = flows[["origin", "destination"]]
    after = dict(zip(zones, [*zones[1:], zones[0]], strict=True))
    others = listed.assign(destination=listed["destination"].map(after))
    listed = pd.concat([listed, others[others["destination"] != zones[5]]])
    return flows, {"possible": listed.drop_duplicates()}


def random_release(
    seed: int,
    *,
    zones: int = 40,
    areas: int | None = None,
    levels: Sequence[str] = ("region", "town", "zone"),
    some: bool = False,
    **changes: Any,
) -> Release:
    """Flows between zones of levels that follow from ``areas``; most pairs have no trips, or only ``some`` can."""
    random = np.random.default_rng(seed)
    town = np.cumsum(np.random.default_rng(seed if areas is None else areas).random(zones) < 0.4)
    names = {"region": town // 4, "town": town, "zone": np.arange(zones)}
    table = pd.DataFrame({level: [f"{level}{number}" for number in numbers] for level, numbers in names.items()})
    pairs = pd.DataFrame({side: random.choice(table["zone"], 4 * zones) for side in ("origin", "destination")})
    flows = pairs.drop_duplicates().assign(trips=lambda flows: random.choice([1, 5, 300], len(flows)))
    geography = Geography.from_frame(table, list(levels))
    if some:
        flows, possible = between_some(flows, geography.zones)
        changes |= possible
    return released(flows, geography, **{"budget": Budget(epsilon=1, delta="1e-8")} | changes)
