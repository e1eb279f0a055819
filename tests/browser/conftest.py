"""One release of real flights, one Dagster UI and one browser for all tests of pages."""

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
import pytest

from od_assets.project import DAGSTER_SETTINGS
from od_core import Budget, Geography, Release
from tests.browser.atlases import of_all_pairs, written
from tests.od_core.publication.examples import facts
from tests.servers import UI, free_port, printed_address, serving, wait_until

ROOT = Path(__file__).parents[2]
SCREENSHOTS = ROOT / "build" / "screenshots"
"""Kept, so that somebody may look at them."""

PERIOD = "2001-06"
ARGUMENTS = ["--no-sandbox", "--host-resolver-rules=MAP evil.example 127.0.0.1"]
"""The name of somebody else, whose owner lets it point to this machine."""

PHONE, DESK = 375, 1280
"""Widths in CSS pixels."""

CLI = "import sys; from od_assets.cli.app import main; sys.argv = ['od-release', *sys.argv[1:]]; main()"


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
        running = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield running
        running.close()


@pytest.fixture
def opened(browser) -> Iterator[Callable]:
    """A page of some width, and what it does."""
    pages = []

    def open_page(address, width=1280, height=900, before=""):
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
    subprocess.run(run, cwd=ROOT, env=given, check=True, capture_output=True, timeout=1200)
    return given


@pytest.fixture(scope="session")
def bundle(environment) -> Path:
    return Path(environment["OD_VAR"]) / "releases" / "us_flights" / PERIOD / "r1"


@dataclass(frozen=True)
class Ui:
    """A Dagster UI that runs.

    Attributes:
        address: of its host and port.
        home: of its Dagster instance.
        token: what opens it; None where nothing guards it.
    """

    address: str
    home: Path
    token: str | None = None

    def at(self, path: str) -> str:
        """Address of a page that may be opened first."""
        separator = "&" if "?" in path else "?"
        return f"{self.address}{path}" + (f"{separator}token={self.token}" if self.token else "")


@pytest.fixture(scope="session")
def ui(environment, tmp_path_factory) -> Iterator[Ui]:
    """``od-release ui`` on that folder; it ends with all of its children."""
    log = tmp_path_factory.mktemp("ui") / "log"
    with serving(UI, ROOT, environment, log):
        address, token = printed_address(log)
        yield Ui(address, Path(environment["DAGSTER_HOME"]), token)


@pytest.fixture(scope="session")
def unguarded_ui(tmp_path_factory) -> Iterator[Ui]:
    """Dagster's own web server on a new folder, without a daemon: what it launches waits in the queue."""
    var, port = tmp_path_factory.mktemp("unguarded"), free_port()
    home, log = var / "dagster", var / "log"
    home.mkdir()
    shutil.copy(DAGSTER_SETTINGS, home)
    given = os.environ | {"OD_PROJECT": str(ROOT), "OD_VAR": str(var), "DAGSTER_HOME": str(home)}
    command = [sys.executable, "-m", "dagster_webserver", "-w", str(ROOT / "workspace.yaml"), "-h", "127.0.0.1", "-p"]
    with serving([*command, str(port)], ROOT, given, log):
        wait_until(lambda: _answers(port), log)
        yield Ui(f"http://localhost:{port}", home)


def _answers(port: int) -> bool:
    """Whether somebody listens at a port of this machine."""
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


def outside(asked: list[str], address: str) -> list[str]:
    """What was asked of anybody else."""
    own = (address, address.replace("http:", "ws:"), "data:", "blob:")
    return [url for url in asked if not url.startswith(own)]


def show(page, name: str, *, whole: bool = False) -> None:
    """Keep what is seen."""
    assert re.fullmatch(r"[a-z-]+", name)
    page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=whole)


def inaccessible(page) -> list[tuple[str, str]]:
    """What breaks a rule of axe-core: contrast, labels, roles, headings or keyboard."""
    from axe_playwright_python.sync_playwright import Axe

    return [(one["id"], one["nodes"][0]["html"][:200]) for one in Axe().run(page).response["violations"]]


def too_wide(page) -> str:
    """What sticks out of the page to the right, but for what scrolls by itself."""
    return page.evaluate(
        """() => {
            const width = document.documentElement.clientWidth;
            if (document.documentElement.scrollWidth <= width) return "";
            return [...document.body.querySelectorAll("*")]
                .filter((e) => !e.closest(".scroll") && e.getBoundingClientRect().right > width + 1)
                .map((e) => e.tagName + ": " + e.textContent.slice(0, 40)).slice(0, 3).join("; ") || "the page";
        }"""
    )


@pytest.fixture
def two_sides(tmp_path) -> tuple[Release, str]:
    """Origins and destinations with other areas, names of levels and numbers of zones; all have coordinates."""
    sides = []
    for levels, zones in ((["region", "home"], 6), (["province", "work"], 9)):
        table = pd.DataFrame({levels[0]: [f"{levels[0]}{k // 3}" for k in range(zones)]})
        table[levels[1]] = [f"{levels[1]}{k}" for k in range(zones)]
        table["latitude"], table["longitude"] = [k // 3 for k in range(zones)], [k % 3 for k in range(zones)]
        sides.append(Geography.from_frame(table, levels, coordinates=("latitude", "longitude")))
    # Two flows differ by ten trips: with this budget, noise makes the smaller one the larger with less than 1e-12.
    release = of_all_pairs(*sides, budget=Budget(rho=20, delta="1e-8"))
    return release, written(release, facts(release), tmp_path)
