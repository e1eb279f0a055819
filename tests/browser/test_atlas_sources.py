"""The page of the atlas in the package is the one that its sources make."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.browser.conftest import ROOT

PAGE = "od_core/publication/html/atlas.html"


def test_the_page_is_made_from_its_sources(tmp_path):
    """With checked types, and packages of the versions and digests that are pinned."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("no npm is installed: the page of the atlas is not made again")
    shutil.copytree(ROOT / "atlas", tmp_path / "atlas", ignore=shutil.ignore_patterns("node_modules"))
    (tmp_path / PAGE).parent.mkdir(parents=True)
    for command in (["ci", "--ignore-scripts", "--no-audit", "--no-fund"], ["run", "build"]):
        subprocess.run([npm, *command], cwd=tmp_path / "atlas", check=True, capture_output=True, timeout=300)
    assert (tmp_path / PAGE).read_bytes() == (ROOT / PAGE).read_bytes(), "run make atlas"
