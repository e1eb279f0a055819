"""What is published can be read back: the same release from a bundle folder and from the database."""

import functools
import itertools
import shutil
from pathlib import Path

import pandas as pd
import pytest

from od_core import Budget, Geography, OdError, PrivacyUnit, ReleaseKey, open_release, release_flows
from od_core.flows.publishing.kind import FLOWS
from tests.od_core.publication.examples import HOMES, KEY, KINDS, LEVELS, facts, flows, release, staged_bundle

ZONES = Geography.from_frame(HOMES[["zone"]], ["zone"])
"""For tests that say nothing of levels."""


def publish(made, folder, key=KEY):
    """Bundle folder and database of a release, as the pipeline makes them."""
    certificate = facts(made, key)
    with staged_bundle(made, certificate, folder / "bundle"):
        FLOWS.store(folder / "release.duckdb", made, key, certificate)
    return folder / "bundle", folder / "release.duckdb"


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Bundle folder and database of each kind of release, made once. Not to be changed."""
    return functools.cache(lambda kind: publish(release(kind), tmp_path_factory.mktemp("published")))


@pytest.fixture
def copied(published, tmp_path):
    """A copy of a bundle, to be spoiled."""
    return Path(shutil.copytree(published("bounded")[0], tmp_path / "bundle"))


@pytest.mark.representatives("unbounded origin tree")
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("unbounded", "no trips, unbounded")])
def test_a_release_comes_back_whole(published, kind):
    """Flows, measurements, charges, plan and every pair of levels; from the folder and from the database."""
    made = release(kind)
    for place in published(kind):
        back = open_release(place)
        assert back.plan.digest == made.plan.digest
        assert back.plan.facts() == made.plan.facts()
        assert back.spent == made.spent
        assert back.spent.rho == made.plan.spent.rho
        assert (back.noise, back.has_guarantee, back.levels) == ("opendp", True, made.levels)
        pd.testing.assert_frame_equal(back.flows, made.flows)
        pd.testing.assert_frame_equal(back.measurements, made.measurements)
        for step in made.plan.steps:
            pd.testing.assert_frame_equal(back.measurements_at(step.level), made.measurements_at(step.level))
        for column in ("origin", "destination", "trips"):
            assert getattr(back.leaves, column).tolist() == getattr(made.leaves, column).tolist()
        for one, other in zip(back.measured, made.measured, strict=True):
            assert one.step == other.step
        for pair in itertools.product(["all", *LEVELS], repeat=2):
            pd.testing.assert_frame_equal(back.flows_at(*pair), made.flows_at(*pair))
    assert (len(made.flows) == 0) == (kind == "no trips")


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    """A database of several series, periods and revisions; and its releases, each with flows of its own."""
    database = tmp_path_factory.mktemp("shelf") / "release.duckdb"
    keys = ["commuters/2001-05/r1", "commuters/2001-06/r2", "commuters/2001-06/r10", "commuters/2001-06/r9"]
    made = [small(seed) for seed in range(len(keys))] + [release("other destinations")]
    for one, text in zip(made, [*keys, "pupils/2002/r1"], strict=True):
        FLOWS.store(database, one, ReleaseKey.parse(text), facts(one, ReleaseKey.parse(text)))
    return database, made


def small(seed):
    trips, unit, budget = flows(HOMES, HOMES, seed), PrivacyUnit("trip"), Budget(rho=2, delta="1e-8")
    return release_flows(trips, ZONES, unit=unit, budget=budget, fault_threshold=0)


CHOICES = [
    ({"release": "commuters"}, 2),
    ({"release": "commuters", "period": "2001-06", "revision": 9}, 3),
    ({"release": "commuters", "period": "2001-05"}, 0),
    ({"release": "commuters", "revision": 1}, 0),
    ({"release": "commuters/2001-06/r2"}, 1),
    ({"release": "pupils"}, 4),
    ({"period": "2002"}, 4),
    ({"period": "2001-06"}, 2),
]


@pytest.mark.representatives("asked0-2", "asked4-1", "asked7-2")
@pytest.mark.parametrize(("asked", "number"), CHOICES)
def test_the_newest_release_that_fits_is_opened(shelf, asked, number):
    """Revision 10 is newer than revision 9."""
    back, made = open_release(shelf[0], **asked), shelf[1][number]
    pd.testing.assert_frame_equal(back.flows, made.flows)
    pd.testing.assert_frame_equal(back.measurements, made.measurements)
    assert back.plan.digest == made.plan.digest


def test_a_choice_that_is_open_or_empty_is_refused(shelf):
    with pytest.raises(OdError, match="OD-RELEASE-ABSENT:") as refused:
        open_release(shelf[0])
    assert "name one of commuters, pupils" in refused.value.message
    for asked in ({"release": "visitors"}, {"period": "1999"}, {"release": "pupils/2002/r2"}, {"revision": 3}):
        with pytest.raises(OdError, match="OD-RELEASE-ABSENT:") as refused:
            open_release(shelf[0], **asked)
        assert "commuters/2001-06/r10, pupils/2002/r1" in refused.value.message


@pytest.mark.parametrize(
    ("asked", "said"), [({"period": "2001-05"}, "a release of 2001-05"), ({"revision": 9}, "revision 9")]
)
def test_a_key_and_another_period_or_revision_are_refused_together(shelf, asked, said):
    with pytest.raises(OdError, match=f"^OD-RELEASE-PERIOD: commuters/2001-06/r2 is not {said}"):
        open_release(shelf[0], "commuters/2001-06/r2", **asked)


def test_a_bundle_is_the_release_that_was_asked_for(published):
    """Its own name, period or revision opens it; another one is refused, not ignored."""
    bundle, _ = published("bounded")
    for asked in ({"release": "commuters"}, {"period": "2001-06", "revision": 1}, {"release": str(KEY)}):
        assert len(open_release(bundle, **asked).flows) == len(release().flows)
    for asked in ({"release": "pupils"}, {"period": "2001-07"}, {"revision": 2}, {"release": "commuters/2001-06/r2"}):
        with pytest.raises(OdError, match="OD-RELEASE-ABSENT:"):
            open_release(bundle, **asked)


def test_what_is_no_release_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("no database")
    (tmp_path / "folder").mkdir()
    for name in ("absent", "folder", "notes.txt"):
        with pytest.raises(OdError) as refused:
            open_release(tmp_path / name)
        assert name in refused.value.message


def _without(column, value):
    return lambda table: table[table[column] != value]


def _largest(table):
    """The largest flow between two zones."""
    zones = table[(table["origin_level"] == "zone") & (table["destination_level"] == "zone")]
    return zones["trips"].idxmax()


SPOILED = {
    "a file missing": ("tables/flows.parquet", None),
    "an unlisted zone": ("tables/flows.parquet", lambda table: table.assign(origin="nowhere")),
    "a flow missing": ("tables/flows.parquet", lambda table: table.drop(index=_largest(table))),
    "a flow twice": ("tables/flows.parquet", lambda table: pd.concat([table, table.loc[[_largest(table)]]])),
    "a flow changed": ("tables/flows.parquet", lambda table: table.assign(trips=table["trips"] + 1)),
    "a level missing": ("tables/noisy_measurements.parquet", _without("level", 3)),
    "a measured cell missing": ("tables/noisy_measurements.parquet", lambda table: table[:-1]),
    "an unlisted area": ("tables/noisy_measurements.parquet", lambda table: table.assign(destination="nowhere")),
    "an area missing": ("tables/areas.parquet", lambda table: table[:-1]),
}


@pytest.mark.parametrize("name", SPOILED)
def test_contents_that_do_not_fit_together_are_refused(copied, name):
    """A spoiled copy is told from a whole one; no flow is put on the wrong zone."""
    file, spoil = SPOILED[name]
    if spoil is None:
        (copied / file).unlink()
    else:
        spoil(pd.read_parquet(copied / file)).to_parquet(copied / file)
    with pytest.raises(OdError):
        open_release(copied)


def test_a_changed_plan_is_refused(copied):
    """The settings give the steps; a certificate with other steps is not taken at its word."""
    path, variance = copied / "certificate.json", str(release().plan.steps[0].variance)
    text = path.read_text(encoding="utf-8")
    assert f'"variance": "{variance}"' in text
    path.write_text(text.replace(f'"variance": "{variance}"', '"variance": "1/2"'), encoding="utf-8")
    with pytest.raises(OdError, match="OD-BUNDLE-CHANGED"):
        open_release(copied)
