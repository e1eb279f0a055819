"""``od-release decide``: a page for every kind of series, from public facts alone, before and after a release."""

import copy
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tests.od_assets.cli.commands import printed, stated
from tests.od_assets.conftest import ATTRIBUTES, GROUP_ATTRIBUTES, STOPS_ATTRIBUTES, ZONES, Project, states

USER = {"unit": "user", "column": "person"}
SINGLE = {"periods": {"first": "2001-01--2001-03", "every": "single"}}
TITLE = "<b>Trips</b> & {# a 'note' #}"


def declared(project: Project, kind: str, attributes: dict[str, Any], **domain: Any) -> str:
    """Declare a series, and return its name."""
    project.component(**{f"domain__{name}": value for name, value in domain.items()})
    project.declare(attributes, kind)
    return str(attributes["name"])


def page(name: str, *more: str) -> str:
    """Write the page, in text without tags and with single spaces."""
    place = Path("page.html").resolve()
    said = printed("decide", name, "--runs", "1", "--to", str(place), *more)
    assert said == f"Decision page: {place}\nNo record was read, and no budget was spent.\n"
    return " ".join(
        re.sub(r"<[^>]*>", " ", place.read_text(encoding="utf-8").partition("</style>\n</head>")[2]).split()
    )


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    (tmp_path / "page").mkdir()
    monkeypatch.chdir(tmp_path / "page")


CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any], tuple[str, ...]]] = {
    "flows": (
        "OdRelease",
        ATTRIBUTES | {"about": {"title": TITLE, "publisher": "The <i>Office</i>"}},
        {},
        (
            "Publisher: The &lt;i&gt;Office&lt;/i&gt;.",
            "&lt;b&gt;Trips&lt;/b&gt; &amp; {# a &#39;note&#39; #}",
            "every month from 2001-01 to 2001-02 (2 releases)",
        ),
    ),
    "user, single": (
        "OdRelease",
        ATTRIBUTES | SINGLE | {"bounds": {"max_trips": 3}},
        USER,
        ("once, for", "all trips of one user, of which at most 3 in each release are counted"),
    ),
    "group sizes": ("OdGroupSizes", GROUP_ATTRIBUTES, {}, ("Other mechanisms are not compared", "region 3, zone 6")),
    "stops": ("OdStops", STOPS_ATTRIBUTES, {}, ("noise of one number, 9 times in 10",)),
}


@pytest.mark.parametrize("case", CASES)
def test_every_kind_of_series_has_a_page_before_anything_is_published(project, case):
    """No record is there, and nothing is written but the page."""
    kind, attributes, domain, said = CASES[case]
    ZONES.assign(longitude=range(6), latitude=range(6)).to_csv(project.root / "zones.csv", index=False)
    (project.root / "2001-01.csv").unlink()
    found = page(declared(project, kind, copy.deepcopy(attributes), **domain))
    for text in said:
        assert text in found
    assert re.search(r"It pays for (1 of 1 release|2 of 2 releases) to come\.", found)
    assert not project.var.exists()


@pytest.mark.slow
def test_a_published_release_is_the_public_table_and_is_not_paid_again(released):
    name = declared(released, "OdRelease", ATTRIBUTES)
    before = states(released.var)
    found = page(name, "--epsilon", "1")
    assert "The published flows of trips/2001-01/r1 serve as the true flows." in found
    assert "Published so far: 1 of them." in found
    assert "It pays for 1 of 1 release to come." in found
    assert states(released.var) == before


@pytest.mark.slow
def test_the_least_budget_is_corrected_by_simulated_releases(project):
    """Rho 0.032 suffices without cuts at 0; with it, 62 % of 300 releases met the target, and 93.5 % are promised."""
    name = declared(project, "OdRelease", ATTRIBUTES | {"mechanism": "inftda_refined"})
    target = "zone x zone: flows >= 5 within 12 trips in 90 %"
    options = ["--table", "synthetic", "--target", target]
    found = page(name, "--epsilon", "1", *options)
    least = Fraction(stated("plan", name, *options, "--runs", "0")["epsilon"])
    (shown,) = re.findall(rf"the least budget for {target.replace('>', '&gt;')} ([\d.]+)", found)
    assert float(shown) > 1.1 * float(least)


def test_a_cap_that_does_not_pay_for_all_is_marked(project):
    """Under a user unit, the charges of all periods add up: one release of rho 0.06 fits, and two do not."""
    attributes = ATTRIBUTES | {"bounds": {"max_trips": 1}, "privacy": {"rho": "0.06", "delta": "1e-8"}}
    found = page(declared(project, "OdRelease", attributes, **USER), "--epsilon", "9")
    assert "It pays for 1 of 2 releases to come. Not every release can be paid." in found
    assert "epsilon 9" in found
    assert "the cap does not allow it" in found
    assert "epsilon 0.5" not in found


def test_what_has_no_such_page_is_refused(project, refused):
    name = declared(project, "OdGroupSizes", GROUP_ATTRIBUTES)
    assert "OD-FORECAST-KIND" in refused("decide", name, "--table", "synthetic")
    assert "OD-FORECAST-KIND" in refused("decide", name, "--target", "region: flows >= 1 within 5 % in 90 %")
    flows = declared(project, "OdRelease", ATTRIBUTES)
    assert "OD-TABLE-CONFIDENTIAL" in refused("decide", flows, "--table", str(project.root / "2001-01.csv"))
    assert "OD-FORECAST-RUNS" in refused("decide", flows, "--runs", "0")
    (project.root / "file").touch()
    assert "OD-FORECAST-PAGE" in refused("decide", name, "--to", str(project.root / "file" / "page.html"))
