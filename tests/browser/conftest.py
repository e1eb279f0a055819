"""One release of real flights, one Dagster UI and one browser for all tests of pages."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.servers import free_port, serving

ROOT = Path(__file__).parents[2]
SCREENSHOTS = ROOT / "build" / "screenshots"
"""Kept, so that somebody may look at them."""

PERIOD = "2001-06"
CLI = "import sys; from od_assets.cli import main; sys.argv = ['od-release', *sys.argv[1:]]; main()"


@dataclass
class Seen:
    """What pages did beside what they showed.

    Attributes:
        errors: what they wrote to the console as errors, and exceptions that nobody caught.
        asked: addresses that they asked for.
    """

    errors: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)


@pytest.fixture(scope="session")
def browser():
    """Debian's Chromium, without a window."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("no Chromium is installed: pages are not looked at")
    from playwright.sync_api import sync_playwright

    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def opened(browser) -> Iterator[Callable]:
    """A page of some width, and what it does."""
    pages = []

    def open_page(address: str, width: int = 1280, height: int = 900, before: str = ""):
        page, seen = browser.new_page(viewport={"width": width, "height": height}), Seen()
        page.add_init_script(before)
        pages.append(page)
        page.on("console", lambda said: seen.errors.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: seen.errors.append(str(error)))
        page.on("request", lambda request: seen.asked.append(request.url))
        page.on("websocket", lambda socket: seen.asked.append(socket.url))
        page.goto(address)
        return page, seen

    yield open_page
    for page in pages:
        page.close()


@pytest.fixture(scope="session")
def environment(browser, tmp_path_factory) -> dict[str, str]:
    """A folder of its own for everything that is written, and the month of flights that is released into it."""
    var = tmp_path_factory.mktemp("var")
    where = {"OD_PROJECT": str(ROOT), "OD_VAR": str(var), "DAGSTER_HOME": str(var / "dagster"), "PYTHONPATH": str(ROOT)}
    given = {**os.environ, **where}
    run = [sys.executable, "-c", CLI, "run", "us_flights", "--period", PERIOD, "--json"]
    subprocess.run(run, cwd=ROOT, env=given, check=True, capture_output=True, timeout=300)
    return given


@pytest.fixture(scope="session")
def bundle(environment) -> Path:
    return Path(environment["OD_VAR"]) / "releases" / "us_flights" / PERIOD / "r1"


@pytest.fixture(scope="session")
def ui(environment, tmp_path_factory) -> Iterator[str]:
    """Address of a Dagster UI on that folder; it ends with all of its children."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "dagster_webserver", "-w", str(ROOT / "workspace.yaml"), "-h", "127.0.0.1", "-p"]
    log = tmp_path_factory.mktemp("ui") / "log"
    with serving([*command, str(port)], ROOT, environment, log) as server:
        for _ in range(3000):
            try:
                urllib.request.urlopen(f"{address}/server_info", timeout=5).close()  # noqa: S310  # our own server
                break
            except (urllib.error.URLError, OSError):
                assert server.poll() is None, log.read_text(encoding="utf-8")[-2000:]
                time.sleep(0.1)
        yield address


def outside(asked: list[str], address: str) -> list[str]:
    """What was asked of anybody else."""
    own = (address, address.replace("http:", "ws:"), "data:", "blob:")
    return [url for url in asked if not url.startswith(own)]


def show(page, name: str, *, whole: bool = False) -> None:
    """Keep what is seen."""
    assert re.fullmatch(r"[a-z-]+", name)
    page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=whole)
