"""The SQL of the documents, run on a published database of two months of flights."""

import re
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest

from od_core import open_release
from od_core.flows.publishing.changes import PER_DAY, changes
from od_core.flows.publishing.kind import MAX_STORED_CELLS
from tests.published_flights import KEYS

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"^```sql\n(.*?)^```", re.DOTALL | re.MULTILINE)
OLD, NEW = map(str, KEYS)


@pytest.fixture(scope="module")
def var(published_flights: Path) -> Path:
    return published_flights


def sql(document: str, number: int) -> str:
    """A block of SQL of a document."""
    return BLOCK.findall((ROOT / document).read_text(encoding="utf-8"))[number]


def answer(var: Path, *statements: str) -> pd.DataFrame:
    """The result of the last statement; the database is attached as the documents say."""
    with duckdb.connect() as connection:
        for statement in statements:
            assert "var/release.duckdb" in statement or " od." in statement or "'od'" in statement
            result = connection.execute(statement.replace("var/release.duckdb", str(var / "release.duckdb")))
        return result.df()


def recipe(var: Path, number: int) -> pd.DataFrame:
    return answer(var, sql("docs/how-to/read-a-release.md", 0), sql("docs/how-to/read-a-release.md", number))


def test_all_recipes_are_run(var):
    assert len(BLOCK.findall((ROOT / "docs" / "how-to" / "read-a-release.md").read_text(encoding="utf-8"))) == 5


def test_every_table_and_column_says_what_it_is(var):
    listed = recipe(var, 1)
    assert {"releases", "areas", "flows", "flows_by_level", "flow_intervals", "measurements"} <= {*listed["table_name"]}
    assert listed["comment"].notna().all()


def test_top_flows(var):
    found = recipe(var, 2)
    flows = open_release(var / "release.duckdb", NEW).flows_at("state", "state", interval=True)
    expected = flows.sort_values(["trips", "origin", "destination"], ascending=[False, True, True]).head(10)
    pd.testing.assert_frame_equal(found, expected.reset_index(drop=True), check_dtype=False)


def test_flows_at_an_end_of_their_interval_are_counted_as_in_the_report(var):
    """Some are there, their interval without them is another one, and the codebook explains them."""
    bundle, release = var / "releases" / NEW, open_release(var / "release.duckdb", NEW)
    (query,) = BLOCK.findall((ROOT / "docs" / "explanation" / "uncertainty.md").read_text(encoding="utf-8"))
    with duckdb.connect() as connection:
        found = connection.execute(query.replace("tables/flows.parquet", str(bundle / "tables/flows.parquet"))).df()
    found = found.set_index(["origin_level", "destination_level"])
    at_end, flows = (int(found.loc[("airport", "airport"), name]) for name in ("at_an_end", "flows"))
    assert 0 < at_end < flows == len(release.flows)
    report = (bundle / "report.html").read_text(encoding="utf-8")
    assert f"{at_end:,} of {flows:,} flows lie at the edge of their interval" in report
    cells = release.plan.tree.sum_trips(release.leaves, 4, 4)
    own = release.make_selection((4, 4)).make_lower_ends(cells[2])
    lower, upper = release.intervals.compute_cell_bounds(4, 4, *cells[:2], own)
    assert ((cells[2] <= lower) | (cells[2] >= upper)).sum() == at_end
    assert "was widened to contain it" in (bundle / "codebook.md").read_text(encoding="utf-8")


def test_self_containment(var):
    found = recipe(var, 3).set_index("area")
    release = open_release(var / "release.duckdb", NEW)
    inner = release.flows_at("state", "state", interval=True).query("origin == destination").set_index("origin")
    whole = release.flows_at("state", "all", interval=True).query("lower > 0").set_index("origin")
    assert {*found.index} == {*whole.index}
    assert len(found) > 40
    inner = inner.loc[found.index]
    whole = whole.loc[found.index]
    assert found["share"].is_monotonic_decreasing
    assert np.allclose(found["share"], inner["trips"] / whole["trips"])
    assert np.allclose(found["share_lower"], inner["lower"] / whole["upper"])
    assert np.allclose(found["share_upper"], np.minimum(inner["upper"] / whole["lower"], 1))
    assert (found["share_lower"] <= found["share"]).all()
    assert (found["share"] <= found["share_upper"]).all()


DAYS = (31, 30)


def told(before, after, level):
    """Changes per day, under the names of the query."""
    found = changes(before, after, level, level, days=DAYS)
    return found[["origin", "destination", *PER_DAY.values(), "significant"]]


def assert_the_same_changes(found, expected):
    """But for a trip in 930 days in few ends: the query has a rational function for the quantile, with an error of
    5e-7."""
    ends = [PER_DAY["lower"], PER_DAY["upper"]]
    others = [name for name in expected if name not in (*ends, "significant")]
    pd.testing.assert_frame_equal(found[others], expected[others], check_dtype=False)
    differences = (930 * (found[ends] - expected[ends].astype("float64"))).abs().round(6)
    assert differences.max().max() <= 1
    assert (differences > 0).sum().sum() <= max(2, 0.03 * differences.size)


def test_the_change_is_that_of_the_library_for_every_pair_of_every_level(var):
    """The rule in SQL, without its limit and at other levels; zeros and small flows included."""
    text = sql("docs/how-to/read-a-release.md", 4).replace("LIMIT 20", "")
    before, after = (open_release(var / "releases" / key) for key in (OLD, NEW))
    for level in ("region", "airport"):
        found = answer(var, sql("docs/how-to/read-a-release.md", 0), text.replace("'state'", f"'{level}'"))
        expected = told(before, after, level)
        order = ["origin", "destination"]
        both = (table.sort_values(order, ignore_index=True) for table in (found, expected))
        assert_the_same_changes(*both)


def test_the_example_of_the_front_page(var):
    found = answer(var, *(statement for statement in sql("README.md", 0).split(";") if statement.strip()))
    flows = open_release(var / "release.duckdb", NEW).flows_at("region", "state")
    expected = flows.nlargest(5, "trips").reset_index(drop=True)
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)


def test_the_database_has_the_intervals_of_every_pair_of_the_smaller_levels(var, airport_geography):
    """All of the flights' are that small; equal to those of the library."""
    release = open_release(var / "releases" / OLD)
    query = "SELECT * EXCLUDE release FROM flow_intervals WHERE release = ? ORDER BY ALL"
    with duckdb.connect(str(var / "release.duckdb"), read_only=True) as connection:
        stored = connection.execute(query, [OLD]).df()
    names = airport_geography.level_names
    expected = pd.concat(
        [
            release.flows_at(o, d, interval=True).assign(origin_level=o, destination_level=d)
            for o in names
            for d in names
            if airport_geography.area_counts[o] * airport_geography.area_counts[d] <= MAX_STORED_CELLS
        ]
    )[list(stored.columns)]
    expected = expected.sort_values(list(stored.columns), ignore_index=True)
    pd.testing.assert_frame_equal(stored, expected, check_dtype=False)
