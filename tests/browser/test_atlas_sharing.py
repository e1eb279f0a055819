"""What people take away from the atlas: a sentence with a number, its address, code to embed, and pictures."""

import re
import struct
import threading
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.browser import atlases
from tests.browser.test_site_pages import Quiet

ABOUT = {"title": "Trips & more", "source": "Register <A>", "licence": "CC BY 4.0"}
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """A release of flows between towns, and the folder of its site."""
    folder = tmp_path_factory.mktemp("shared")
    release = atlases.random_release(3, zones=12)
    (folder / "other/2001-01").mkdir(parents=True)
    atlases.in_folder(release, folder / "other/2001-01/r1", about=ABOUT)
    (folder / "other/periods.json").write_text("[]", encoding="utf-8")
    return release, folder


@pytest.fixture
def address(released) -> Iterator[str]:
    """The address of the atlas on a web server of this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(released[1]))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/other/2001-01/r1/atlas.html"
        server.shutdown()


def ready(page) -> None:
    page.wait_for_selector("#panel[aria-busy=false] #profile[aria-busy=false]", state="attached")


def test_a_number_is_quoted_with_its_interval_and_its_address_leads_back(opened, released, address):
    """The ends are rounded outwards, by at most a fifth of the interval; a click on any number of a flow chooses it."""
    release, _ = released
    page, seen = opened(f"{address}#level=town")
    ready(page)
    page.locator("#panel td button").first.click()
    page.wait_for_selector("#quote")
    ready(page)
    text = page.inner_text("#quote p >> nth=0")
    pattern = (
        r"About ([\d,]+) trips \(90 % interval ([\d,]+) to ([\d,]+)(?:, may be none)?\) from (town\d+) to (town\d+) in "
    )
    said = re.match(pattern + r"January 2001, Register <A>, release other/2001-01/r1, (http\S+)$", text)
    assert said, text
    about, lower, upper = (int(number.replace(",", "")) for number in said.groups()[:3])
    flows = release.flows_at("town", "town", interval=True).set_index(["origin", "destination"])
    row = flows.loc[said[4], said[5]]
    most = max(1, (row["upper"] - row["lower"]) / 5)
    assert abs(about - row["trips"]) <= most / 2
    assert 0 <= row["lower"] - lower < most
    assert 0 <= upper - row["upper"] < most
    link = said[6]
    assert link == f"{address}#period=2001-01&revision=1&level=town&from={said[4]}&to={said[5]}"
    again, _ = opened(link)
    again.wait_for_selector("#quote")
    assert again.inner_text("#quote p >> nth=0") == text
    for levels, own, word in ((("town", "all"), said[4], "from"), (("all", "town"), said[5], "to")):
        ends = f"from={own}&to=all" if word == "from" else f"from=all&to={own}"
        again.goto(f"{address}#period=2001-01&revision=1&level=town&{ends}")
        again.wait_for_selector(f"#quote p:has-text(') {word} {own} in January')")
        side = "origin" if word == "from" else "destination"
        whole = release.flows_at(*levels, interval=True).set_index(side).loc[own]
        found = int(re.search(r"[\d,]+", again.inner_text("#quote"))[0].replace(",", ""))
        assert abs(found - whole["trips"]) <= max(1, (whole["upper"] - whole["lower"]) / 5) / 2
    again.goto(link.replace("2001-01&revision=1", "2001-02&revision=3"))
    again.wait_for_selector("#compared a")
    assert again.get_attribute("#compared a", "href").startswith("../../../other/2001-02/r3/atlas.html#period=2001-02")
    assert seen.errors == []


def test_what_is_copied_embeds_the_view(opened, address):
    page, _ = opened(f"{address}#level=town&view=matrix")
    ready(page)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.click("#embed")
    page.wait_for_selector("text=Copied")
    code = ET.fromstring(page.evaluate("navigator.clipboard.readText()"))  # noqa: S314  # code of ours
    assert (code.tag, code.get("title")) == ("iframe", "Trips & more, January 2001")
    outer, seen = opened(code.get("src"))
    outer.wait_for_selector("#matrix table")
    assert seen.errors == []


@pytest.mark.parametrize("figure", ["map", "matrix", "list", "table of flows"])
def test_pictures_say_what_they_show(opened, bundle, released, address, figure):
    """As SVG, which other programs read, and as PNG of the same picture."""
    at = (bundle / "atlas.html").as_uri() if figure == "map" else address
    page, seen = opened(
        f"{at}#level={'state' if figure == 'map' else 'town'}&view={figure if ' ' not in figure else 'map'}"
    )
    ready(page)
    name = page.locator("#figure option").all_inner_texts()
    page.select_option("#figure", label=next(one for one in name if one.startswith(figure)))
    files = {}
    for ending in ("svg", "png"):
        with page.expect_download() as saved:
            page.click(f"#{ending}")
        assert saved.value.suggested_filename.endswith(f".{ending}")
        files[ending] = Path(saved.value.path()).read_bytes()
    drawn = ET.fromstring(files["svg"])  # noqa: S314  # a picture of ours
    size = tuple(2 * int(drawn.get(name)) for name in ("width", "height"))
    assert struct.unpack(">II", files["png"][16:24]) == size
    said = " ".join(text.text or "" for text in drawn.iter(f"{SVG}text"))
    release = "us_flights/2001-06/r1" if figure == "map" else "other/2001-01/r1"
    for told in ("90 % interval", "Source: ", "Licence: ", f"Release {release}"):
        assert told in said
    assert len([*drawn.iter(f"{SVG}path")]) > 10
    assert seen.errors == []
