"""The pages in the package are the ones that their sources make."""

import shutil
import subprocess

import pytest

from tests.browser.conftest import ROOT

PAGES = [
    f"od_core/publication/{name}" for name in ("html/atlas.html", "html/planning.html", "templates/site/over_time.js")
]


def test_the_pages_are_made_from_their_sources(tmp_path):
    """With checked types, and packages of the versions and digests that are pinned."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("no npm is installed: the pages are not made again")
    shutil.copytree(ROOT / "atlas", tmp_path / "atlas", ignore=shutil.ignore_patterns("node_modules"))
    for page in PAGES:
        (tmp_path / page).parent.mkdir(parents=True, exist_ok=True)
    for command in (["ci", "--ignore-scripts", "--no-audit", "--no-fund"], ["run", "build"]):
        subprocess.run([npm, *command], cwd=tmp_path / "atlas", check=True, capture_output=True, timeout=300)
    for page in PAGES:
        assert (tmp_path / page).read_bytes() == (ROOT / page).read_bytes(), "run make atlas"
