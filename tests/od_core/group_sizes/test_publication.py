"""What is published of a group-size table alone; what all kinds have in common is in ``test_kind_contract.py``."""

import json
from fractions import Fraction

import pandas as pd
import pytest

from od_core import OdError, PrivacyUnit, ReleaseKey, TopCodeEstimate
from od_core.group_sizes.publishing import GROUP_SIZES, open_group_sizes
from od_core.publication.bundle import publish_folder, write_bundle
from od_core.publication.certificate import CheckResult
from od_core.publication.certify import build_certificate
from tests.od_core.group_sizes.test_release import GEOGRAPHY, released
from tests.od_core.ledger.ledger_rows import declared
from tests.od_core.publication.examples import AROUND, files_of

KEY = ReleaseKey("departures", "2001-06")
BOUNDED = PrivacyUnit("trip", "bounded")


def published(folder, mechanism="cumulative", **changes):
    """A release with its ledger, and its certificate."""
    ledger = declared(folder, "departures", BOUNDED)
    release = released(unit=BOUNDED, mechanism=mechanism, ledger=ledger, release_id=str(KEY), **changes)
    checks = [CheckResult(subject="group_sizes", check="adds_up", passed=True)]
    facts = build_certificate(GROUP_SIZES, release, KEY, "departures", checks, record=ledger.record(KEY))
    return release, facts


def bundle(release, certificate, folder):
    report = GROUP_SIZES.render_report(release, certificate, AROUND)
    with publish_folder(
        lambda place: write_bundle(GROUP_SIZES, release, certificate, lambda _: report, place, balance=AROUND.balance),
        folder,
    ):
        pass
    return {name: path.read_bytes() for name, path in files_of(folder).items()}


ESTIMATE = TopCodeEstimate(Fraction(1, 2), most=500)


def test_a_summary_has_a_row_for_each_level():
    release = released()
    summary = GROUP_SIZES.make_summary(release)
    assert summary["level"].tolist() == list(GEOGRAPHY.levels)
    assert summary["areas"].tolist() == [GEOGRAPHY.size(level) for level in (1, 2)]
    assert summary["groups"].tolist() == [60, 60]
    sizes = release.histogram.assign(members=release.histogram["size"] * release.histogram["groups"])
    assert summary["members"].tolist() == sizes.groupby("level", sort=False)["members"].sum().tolist()
    assert summary["noise_scale"].tolist() == ["2", "2"]  # epsilon 1 is shared by two levels


def test_another_top_code_than_the_published_draw_gives_is_refused(tmp_path):
    release, certificate = published(tmp_path, top_code=ESTIMATE)
    folder = tmp_path / "r1"
    bundle(release, certificate, folder)
    path = folder / "tables/noisy_measurements.parquet"
    noisy = pd.read_parquet(path)
    for changed in (noisy.assign(noisy=noisy["noisy"].where(noisy["level"] != "all", 300)), noisy.iloc[1:]):
        changed.to_parquet(path, index=False)
        with pytest.raises(OdError, match="OD-BUNDLE-CHANGED: the published noisy measurements"):
            open_group_sizes(folder)


def test_what_was_changed_is_refused(tmp_path):
    release, certificate = published(tmp_path)
    folder = tmp_path / "r1"
    bundle(release, certificate, folder)
    whole = {file: file.read_bytes() for file in folder.rglob("*.*")}

    def refused(change, what):
        change()
        with pytest.raises(OdError, match=f"OD-BUNDLE-CHANGED: the published {what}"):
            open_group_sizes(folder)
        for file, content in whole.items():
            file.write_bytes(content)

    def table(name, **columns):
        path = folder / "tables" / f"{name}.parquet"
        pd.read_parquet(path).assign(**columns).to_parquet(path, index=False)

    refused(lambda: table("histogram", groups=1), "histogram")
    refused(lambda: table("noisy_measurements", noisy=0), "histogram")
    refused(lambda: table("groups_by_area", groups=1), "plan")
    certificate["plan"]["top_code"] = 8
    refused(lambda: (folder / "certificate.json").write_text(json.dumps(certificate)), "noisy measurements")


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table[1:],
        lambda table: pd.concat([table, table[:1]]),
        lambda table: table.replace(table["area"][0], "elsewhere"),
        lambda table: table.assign(groups=table["groups"].where(table.index > 0)),  # one is missing
        lambda table: table.assign(groups=-table["groups"]),
    ],
    ids=["no row", "two rows", "unknown area", "no number", "negative"],
)
def test_numbers_of_groups_that_do_not_fit_the_areas_are_a_fault_of_the_bundle(tmp_path, change):
    """The reader of the bundle has no group list to correct."""
    release, certificate = published(tmp_path)
    bundle(release, certificate, tmp_path / "r1")
    path = tmp_path / "r1/tables/groups_by_area.parquet"
    change(pd.read_parquet(path)).to_parquet(path, index=False)
    with pytest.raises(OdError, match="OD-BUNDLE-CHANGED: the published numbers of groups"):
        open_group_sizes(tmp_path / "r1")
