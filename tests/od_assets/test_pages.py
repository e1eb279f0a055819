"""No page of a release loads anything from another host: pages of checks, reports, atlases, sites and documents."""

import pytest

from tests.od_assets.cli.commands import command

from ..pages import addresses_in, loaded_by

KEY = "trips/2001-01/r1"


def test_no_page_loads_anything_from_another_host(released):
    for words in (["site", "--title", "Trips"], ["disclose", KEY]):
        assert command(*words, catch_exceptions=False).exit_code == 0
    pages = {str(page.relative_to(released.var)): page for page in released.var.rglob("*.html")}
    for folder, name in (
        (f"confidential/{KEY}/data_docs", "raw_records"),
        (f"data_docs/{KEY}", "published_flows"),
        *((f"releases/{KEY}", name) for name in ("atlas", "certificate", "report")),
        ("site", "index"),
        ("site/trips", "index"),
    ):
        assert f"{folder}/{name}.html" in pages
    assert sum("disclos" in name for name in pages) >= 2
    assert {name: found for name, page in pages.items() if (found := loaded_by(page))} == {}
    own = {name: page for name, page in pages.items() if "data_docs/" in name or name.startswith("releases/")}
    assert {name: found for name, page in own.items() if (found := addresses_in(page))} == {}


@pytest.mark.parametrize(
    "element",
    [
        '<script src="https://example.org/x.js"></script>',
        '<link rel="stylesheet" href="//example.org/x.css">',
        "<style>@import 'https://example.org/x.css';</style>",
        '<style>@font-face{src:url("https://example.org/x.woff2")}</style>',
        '<p style="background:url(https://example.org/x.png)">',
        '<img src="https://example.org/x.png">',
        '<iframe src="http://example.org"></iframe>',
        '<script>fetch("https://example.org/x")</script>',
        '<svg><use xlink:href="https://example.org/x.svg#y"/></svg>',
    ],
)
def test_what_another_host_would_send_is_found(tmp_path, element):
    page = tmp_path / "page.html"
    page.write_text(f'<a href="https://example.org">here</a>{element}<a href="x.html">there</a>', encoding="utf-8")
    assert len(loaded_by(page)) == 1
    assert len(addresses_in(page)) == 2
