"""A series may have a title and words for its readers: they are on its pages, and no program is misled by them."""

import calendar
import html
import json
import re
from fractions import Fraction

import pytest

from od_core.privacy.accounting import format_rounded_up
from od_core.publication.bundle_differences import reword_as_published
from od_core.publication.bundle_files import check_bundle
from od_core.publication.certificate import compute_certificate_digest
from tests.od_core.publication.examples import facts, publish_bundle, release

ABOUT = {
    "title": "Trips <b>& more</b>, {{ '7' * 7 }}",
    "description": "What is counted | and what is not",
    "source": "The agency, 'table 5'",
    "licence": "CC BY 4.0",
    "counted": "ferry <i>trips</i>",
    "coverage": "a tenth of <b>all</b> riders",
    "publisher": "Office of <b>Statistics</b>",
    "contact": "od@statistics.example",
}


def test_a_title_is_on_every_page_as_it_was_declared(tmp_path):
    made, folder = release(), tmp_path / "bundle"
    stated = facts(made, about=ABOUT)
    titled = f"{ABOUT['title']}, {calendar.month_name[int(stated['period'][5:])]} {stated['period'][:4]}"
    publish_bundle(made, stated, folder)
    for page in ("report.html", "atlas.html"):
        text = (folder / page).read_text(encoding="utf-8")
        (shown,) = re.findall("<title>(.*?)</title>", text, re.DOTALL)
        assert html.unescape(shown).strip() == titled
        assert "<b>& more</b>" not in text
    report = (folder / "report.html").read_text(encoding="utf-8")
    assert "ferry &lt;i&gt;trips&lt;/i&gt;" in report
    assert "<i>trips" not in report
    package = json.loads((folder / "datapackage.json").read_text(encoding="utf-8"))
    assert package["title"] == titled
    assert package["sources"] == [{"title": ABOUT["source"]}]
    assert package["licenses"][0]["title"] == ABOUT["licence"]
    publisher, contact = package["contributors"]
    assert publisher == {"title": ABOUT["publisher"], "role": "publisher"}
    assert contact == {"title": ABOUT["contact"], "role": "contact", "email": ABOUT["contact"]}
    readme = (folder / "README.txt").read_text(encoding="utf-8")
    assert readme.splitlines()[0] == titled
    assert json.loads((folder / "certificate.json").read_text(encoding="utf-8"))["about"] == ABOUT
    assert list(check_bundle(folder)) == []


def test_every_page_says_who_answers_and_what_is_protected(tmp_path):
    made, folder = release(), tmp_path / "bundle"
    publish_bundle(made, facts(made, about=ABOUT), folder)
    for page in ("report.html", "certificate.html"):
        (foot,) = re.findall("<footer>(.*?)</footer>", (folder / page).read_text(encoding="utf-8"), re.DOTALL)
        told = html.unescape(foot)
        assert [f"{name}: {ABOUT[name.lower()]}." in told for name in ("Publisher", "Contact", "Licence")] == [True] * 3
        assert "<b>Statistics" not in foot
        assert f"{ABOUT['publisher']} protects " in told
    publish_bundle(made, facts(made), tmp_path / "silent")
    assert "Publisher:" not in (tmp_path / "silent/report.html").read_text(encoding="utf-8")


def test_a_certificate_states_what_is_left_of_the_cap_and_has_every_field_once(tmp_path):
    made = release()
    stated = facts(made) | {"account": {"cap": {"rho": "9"}}}
    publish_bundle(made, stated, tmp_path / "bundle")
    page = (tmp_path / "bundle/certificate.html").read_text(encoding="utf-8")
    told = " ".join(re.sub("<[^>]*>", " ", page).split())
    own = format_rounded_up(Fraction(stated["spent"]["rho_exact"]))
    assert (
        f"Rho {own} of the cap of 9 for period 2001-06. Right after this release, 7 was left." in told
    )  # 2 of 9 are spent
    assert "by the cap of data set survey (rho 9), which a ledger enforces" in told
    anchors = re.findall('<dt id="([a-z_]+)">', page)
    assert sorted(anchors) == sorted(stated)


@pytest.mark.parametrize("later", [None, {"title": "Another title"}])
def test_what_is_published_keeps_its_words(tmp_path, later):
    made, folder = release(), tmp_path / "bundle"
    first = facts(made, about=ABOUT)
    publish_bundle(made, first, folder)
    again = reword_as_published(facts(made, about=later), folder, compute_certificate_digest(first))
    assert again["about"] == ABOUT
    assert compute_certificate_digest(again) == compute_certificate_digest(first)
