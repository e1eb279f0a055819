"""Publish flows that protect all trips of a user with this project and with other software, and compare the tables.

    make peers
    python -m benchmarks.peers.user_level --contender ours_users tumult_users_laplace --epsilon 10 --runs 1
    python -m benchmarks.peers.user_level --case taxis --data FOLDER

One user with all trips of a month is added or removed, at delta 1e-6. Every contender counts at most 10 of the trips.
All users are made up: those of the panel with their trips, and those among whom the trips of the New York taxis are
shared out. The taxis are read from the subfolder ``nyc_yellow_taxi`` of FOLDER. Errors and intervals are those of all
trips that were made, and ``cut`` is the share that the caps leave out, level by level: no noise, but a part of the
error. Each zone is a square of a made-up map, with its trips in the middle, for software that reads points.

``dp_mobility_report`` 0.2.11 does not say which versions of other packages it needs: NumPy below 2 and scikit-learn
below 1.5 are pinned. It and ``pandarallel`` have no wheels, and are built from source.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.peers.__main__ import NOT_INSTALLED, checked, compare, row
from benchmarks.peers.contenders import Contender
from benchmarks.peers.given import Levels, levels_of, permitted_rho, write_public, write_trips
from benchmarks.person_year import in_months
from benchmarks.synthetic_users import Panel, mobility_panel, taxi_panel
from od_core import PrivacyUnit
from od_core.evaluation.forecast import UserTrips

MOST = 10
"""Largest number of a user's trips that are counted."""


@dataclass(frozen=True)
class UserContender(Contender):
    """Software that publishes flows of users.

    Attributes:
        pair_cap: whether only one trip of a user between the same two zones is counted: at ``no`` level, in the table
            of ``zones``, or at ``all`` levels.
    """

    pair_cap: str = "no"


_EACH = "a query for each level, at most 10 trips of a user in each"
_CONTENDERS = (
    UserContender("ours_users", "ours_users", "od-release", None, "inftda_refined; m = 10", "", True, True),
    UserContender(
        "ours_users_pairs",
        "ours_users",
        "od-release",
        None,
        "inftda_refined; m = 10, c = 1",
        "pairs",
        True,
        True,
        "all",
    ),
    UserContender(
        "ours_users_laplace",
        "ours_users",
        "od-release",
        None,
        "inftda_refined, tree both, discrete Laplace noise; m = 10; delta is 0",
        "laplace",
        True,
        True,
    ),
    UserContender(
        "ours_users_laplace_auto",
        "ours_users",
        "od-release",
        None,
        "as ours_users_laplace, area totals with 18 % of epsilon, estimate auto",
        "laplace_auto",
        True,
        True,
    ),
    UserContender(
        "opendp_users_laplace",
        "opendp_users",
        "opendp",
        "opendp",
        f"{_EACH}; discrete Laplace noise, equal shares of epsilon; delta is 0",
        "laplace",
    ),
    UserContender(
        "opendp_users_pairs",
        "opendp_users",
        "opendp",
        "opendp",
        f"{_EACH}, of zones 10 pairs once; discrete Gaussian noise, equal shares of rho",
        "pairs",
        pair_cap="zones",
    ),
    UserContender(
        "tumult_users_gaussian",
        "tumult_users",
        "tmlt.analytics",
        "tumult",
        f"{_EACH}; discrete Gaussian noise, equal shares of rho",
        "gaussian",
    ),
    UserContender(
        "tumult_users_pairs",
        "tumult_users",
        "tmlt.analytics",
        "tumult",
        f"{_EACH}, of zones 10 pairs once; discrete Gaussian noise, equal shares of rho",
        "pairs",
        pair_cap="zones",
    ),
    UserContender(
        "tumult_users_laplace",
        "tumult_users",
        "tmlt.analytics",
        "tumult",
        f"{_EACH}; discrete Laplace noise, equal shares of epsilon; delta is 0",
        "laplace",
    ),
    UserContender(
        "dp_mobility_report",
        "dp_mobility_od",
        "dp-mobility-report",
        "dp_mobility_report",
        "a report of flows alone for each level, from points; rounded Laplace noise, equal shares of epsilon; delta is"
        " 0; flows at or below 0 are left out",
    ),
)
USER_CONTENDERS = {each.name: each for each in _CONTENDERS}

PANEL, SMALL = (2_000_000, 100_000, 100, 0.25), (20_000, 2_000, 40, 0.25)
"""Trips of the year, users, zones, and the share of the users with trips in two months only."""

TAXI_USERS = 20_000
SIDE = 0.1
"""Side of the square of a zone, in degrees."""


def cut_share(trips: UserTrips, *, once: bool) -> float:
    """Return the share of trips that the caps leave out: those of a user above 10, or also further ones of a pair."""
    return 1 - float(trips.mark_counted_trips(MOST, 1 if once else None).mean())


def corners_of(zones: int) -> NDArray[np.float64]:
    """Return the lower left corner of the square of each zone, in degrees; shape (2, zones)."""
    corners: NDArray[np.float64] = np.stack(np.divmod(np.arange(zones), int(np.ceil(zones**0.5)))) * SIDE
    return corners


def write_map(folder: Path) -> None:
    """Write the squares of the zones of a folder as GeoJSON, with the codes of the areas that contain them."""
    zones, features = pd.read_csv(folder / "zones.csv", dtype=str, keep_default_na=False), []
    for areas, (x, y) in zip(zones.to_dict("records"), corners_of(len(zones)).T.tolist(), strict=True):
        ring = [[x + right * SIDE, y + up * SIDE] for right, up in ((0, 0), (1, 0), (1, 1), (0, 1), (0, 0))]
        geometry = {"type": "Polygon", "coordinates": [ring]}
        features.append({"type": "Feature", "properties": areas, "geometry": geometry})
    collection = json.dumps({"type": "FeatureCollection", "features": features})
    (folder / "zones.geojson").write_text(collection, encoding="utf-8")


def write_users(folder: Path, panel: Panel, epsilon: str) -> tuple[Levels, UserTrips]:
    """Write what every contender is given of the first month of a panel, and return its levels and trips.

    The trips also have their user, and the points of both ends, in degrees.
    """
    now, trips = panel.month == 0, in_months(panel)[0]
    levels = levels_of(trips.make_flows_within(None))
    columns: dict[str, Any] = {"user": panel.user[now].astype(str)}
    ends = {"origin": panel.origin[now], "destination": panel.destination[now]}
    middle = corners_of(len(levels.codes[-1])) + SIDE / 2
    for side, of_trips in ends.items():
        columns[f"{side}_lng"], columns[f"{side}_lat"] = middle[:, of_trips]
    unit = PrivacyUnit("user", "unbounded", "user", MOST)
    settings = {"rho": permitted_rho(panel.geography, epsilon, unit), "max_trips": MOST}
    zones, one_each = write_public(folder, levels, epsilon, settings), np.ones(len(trips.user), np.int64)
    write_trips(folder / "trips.parquet", zones, ends["origin"], ends["destination"], one_each, columns)
    write_map(folder)
    return levels, trips


def rows(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the figures of all data sets, epsilons and contenders that are asked for."""
    wanted = [USER_CONTENDERS[name] for name in options.contender]
    programs = {each.program: each for each in wanted}
    checks = {name: checked(each) if each.version() else NOT_INSTALLED for name, each in programs.items()}
    for case in options.case:
        if case == "panel":
            panel = mobility_panel(*(SMALL if options.small else PANEL))
        elif options.data is not None and (options.data / "nyc_yellow_taxi").is_dir():
            panel = taxi_panel(options.data / "nyc_yellow_taxi", TAXI_USERS)
        else:
            continue
        for epsilon in options.epsilon:
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name) / "given"
                levels, trips = write_users(folder, panel, epsilon)
                for contender in wanted:
                    print(f"{case}, epsilon {epsilon}: {contender.name}", file=sys.stderr)
                    check = checks[contender.program]
                    why_not = check if check == NOT_INSTALLED else ""
                    found = row(contender, case, epsilon, folder, levels, options.runs, check, why_not)
                    once = [contender.pair_cap == "all"] * (len(levels.names) - 1) + [contender.pair_cap != "no"]
                    cut = [cut_share(trips, once=each) for each in once]
                    yield {"data_set": found.pop("data_set"), "trips": len(trips.user), **found, "cut": cut}


def main() -> None:
    """Compare what protects all trips of a user."""
    names, cases, small = list(USER_CONTENDERS), ["panel", "taxis"], ("panel", "ours_users_pairs")
    compare(rows, __doc__, "peers-user-level.csv", cases, names, usual=cases, runs=2, small=small)


if __name__ == "__main__":
    main()
