"""The worked example of [fioretto2019hierarchical], tables 2 to 6: its figures, and where they cannot be right."""

from itertools import accumulate

import numpy as np
import pandas as pd
import pytest

from od_core import Budget, Geography, PrivacyUnit, release_group_sizes
from od_core.group_sizes.top_totals import compute_leaf_values, compute_root_tables
from tests.od_core.doubles import ListedLaplace

USERS = pd.DataFrame({"user": [f"{number:02}" for number in range(1, 12)], "unit": list("ABAACDEDDFF")})
USERS["region"] = ["GA"] * 5 + ["NY"] * 6
"""Table 2. The quantity of every user is 1."""

GROUPS = {"A": 3, "B": 1, "C": 1, "D": 3, "E": 1, "F": 2}
"""Table 3."""

TABLE_4 = {"GA": [2, 0, 1, 0, 0], "NY": [1, 1, 1, 0, 0], "US": [3, 1, 2, 0, 0]}
GEOGRAPHY = Geography.from_frame(pd.DataFrame({"nation": ["US", "US"], "state": ["GA", "NY"]}), ["nation", "state"])
REGIONS = USERS.groupby("unit")["region"].first()

NOISY = {"US": 2, "GA": 3, "NY": 0}
"""Noisy numbers of groups of size 1, from tables 5 and 6. The one of NY is 3 if it is cumulated along the chain."""

TABLE_5 = {"GA": [9, 4, 1, 0, 1], "NY": [0, 1, 4, 9, 16], "US": [4 + 9, 1 + 4, 0 + 1, 1 + 0, 4 + 1]}
"""Costs of the values 0 to 4. Those of US are printed as a sum and the least of several candidates."""


def histograms(users: pd.DataFrame) -> dict[str, list[int]]:
    """The released histograms, sizes 0 to 5, of the six groups, without noise."""
    sizes = users["unit"].value_counts().reindex(list(GROUPS), fill_value=0)
    groups = pd.DataFrame({"group": list(GROUPS), "area": list(REGIONS), "size": sizes.to_numpy()})
    unit, budget, noise = PrivacyUnit("trip", "unbounded"), Budget(epsilon=1), ListedLaplace([0])
    given = {"unit": unit, "budget": budget, "mechanism": "histogram", "noise": noise}
    release = release_group_sizes(groups, GEOGRAPHY, **given, top_code=5)
    nation, states = release.histograms
    return dict(zip(("US", "GA", "NY"), [*nation.tolist(), *states.tolist()], strict=True))


def one_member_more_or_less() -> list[pd.DataFrame]:
    """Table 2 without one user, and with one user more in one unit."""
    fewer = [USERS.drop(index=number) for number in USERS.index]
    return fewer + [pd.concat([USERS, USERS[USERS["unit"] == unit].head(1)]) for unit in GROUPS]


def test_groups_and_their_sizes_are_those_of_tables_3_and_4():
    assert USERS.groupby("unit").size().to_dict() == GROUPS
    assert {area: values[1:] for area, values in histograms(USERS).items()} == TABLE_4


def test_table_5_is_the_cost_table_of_the_subtree_of_size_1():
    tree, columns = np.array([1, 3]), np.array([[NOISY["US"], NOISY["GA"], NOISY["NY"]]])
    for area in ("GA", "NY"):
        assert [(v - NOISY[area]) ** 2 for v in range(5)] == TABLE_5[area]
    lows, sizes, slopes = compute_root_tables(tree, columns, 16, 6)
    assert lows.tolist() == [0]
    at_0 = sum(value**2 for value in NOISY.values())
    costs = list(accumulate(slopes[0, : sizes[0]].tolist(), initial=at_0))
    assert costs[:5] == TABLE_5["US"]
    assert costs[3:6] == [1, 5, 11]  # example 5
    assert [cost - (v - NOISY["US"]) ** 2 for v, cost in enumerate(costs)][3:6] == [0, 1, 2]  # phi, example 4
    values, _ = compute_leaf_values(tree, columns, np.array([3]), 16, 6)
    assert values.tolist() == [[3, 0]]  # the stars
    values, _ = compute_leaf_values(tree, columns, np.array([5]), 16, 6)
    assert values.tolist() == [[4, 1]]  # v^2 of example 4, where example 5 says that GA is 1


def chain(levels: dict[str, list[int]], areas: list[str]) -> np.ndarray:
    """The cumulative counts of figure 6 of the areas of a level: of size 1 in each area, then of size 2, and so on."""
    return np.cumsum(np.array([levels[area] for area in areas]).T.ravel())


def test_one_member_changes_two_counts_of_the_chain_and_one_of_each_area():
    """Lemma 6 says one for both. Two are the states, so that the noise of section 9.2.2 is half of what it must be."""
    before, most = histograms(USERS), {"chain": 0, "areas": 0, "histogram": 0}
    for neighbour in one_member_more_or_less():
        after = histograms(neighbour)
        states = [(before[area], after[area]) for area in ("GA", "NY")]
        changes = {
            "chain": np.abs(chain(before, ["GA", "NY"]) - chain(after, ["GA", "NY"])).sum(),
            "areas": sum(np.abs(np.cumsum(a) - np.cumsum(b)).sum() for a, b in states),
            "histogram": sum(np.abs(np.subtract(a, b)).sum() for a, b in states),
        }
        most = {query: max(most[query], int(change)) for query, change in changes.items()}
    assert most == {"chain": 2, "areas": 1, "histogram": 2}


@pytest.mark.parametrize("least_size", [0, 1])
def test_the_number_of_groups_is_public_only_if_sizes_begin_at_0(least_size):
    """Sizes of the paper begin at 1. A group that loses its only member is no longer counted, so that G tells it."""
    totals = {sum(histograms(users)["US"][least_size:]) for users in [USERS, *one_member_more_or_less()]}
    assert totals == ({6} if least_size == 0 else {5, 6})
