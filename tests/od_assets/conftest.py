"""A small project in a temporary folder: three regions of two zones, one month of records."""

import copy
import hashlib
import inspect
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import numpy as np
import pandas as pd
import pytest
import typer.main
import typer.testing
from alembic.script import ScriptDirectory
from dagster._core.definitions.metadata import source_code
from dagster.components.core import load_defs

from od_assets.checks import expectations
from od_assets.cli import app as cli
from od_assets.cli.diagnosis import Finding, inspect_budget, inspect_records_of_period
from od_assets.components import OdCounts, OdGroupSizes, OdRelease, OdStops
from od_assets.components import project as components
from od_assets.components.series import build_series_definitions
from od_assets.resources.warehouse import Warehouse
from od_assets.series.series import Series
from od_core import Ledger, ReleaseKey
from od_core.files.durable import make_folder
from od_core.ledger.confidential import ConfidentialFolder
from tests.projects import declare, declare_domain, make_dg_project, with_warehouse

CHECKOUT = Path(__file__).resolve().parents[2]
"""Folder of the tests, where the installed package may be another one."""

ZONES = pd.DataFrame(
    [(f"R{region}", f"Z{region}{zone}") for region in range(3) for zone in range(2)], columns=["region", "zone"]
)

ATTRIBUTES: dict[str, Any] = {
    "name": "trips",
    "owners": ["team:statistics"],
    "trips": {"files": "{period}.csv", "columns": {"date": "date"}, "fault_threshold": "0"},
    "geography": {"file": "zones.csv", "levels": ["region", "zone"]},
    "periods": {"first": "2001-01", "last": "2001-02"},
    "domain": "trips",
    "privacy": {"epsilon": "1", "delta": "1e-8"},
    "schedule": "0 6 2 * *",
}

DOMAIN: dict[str, Any] = {"name": "trips", "cap": {"rho": "0.1", "reason": "first declaration"}}

COUNT_ATTRIBUTES: dict[str, Any] = ATTRIBUTES | {
    "name": "begun",
    "trips": {"files": "{period}.csv", "columns": {"area": "origin", "date": "date"}, "one_row_a_trip": True},
}
"""Counts of the same records by the zone where they begin."""

SHARED = {name: ATTRIBUTES[name] for name in ("owners", "geography", "periods", "domain")}

GROUP_ATTRIBUTES: dict[str, Any] = SHARED | {
    "name": "departures",
    "trips": COUNT_ATTRIBUTES["trips"],
    "privacy": {"epsilon": "0.1"},
    "mechanism": "cumulative",
    "top_code": 20,
}
"""Group sizes of the same records: a group is a zone and a day."""

STOPS_ATTRIBUTES: dict[str, Any] = {name: SHARED[name] for name in ("owners", "periods", "domain")} | {
    "name": "journeys",
    "trips": {"files": "{period}.csv", "columns": {"places": ["origin", "stop", "destination"], "date": "date"}},
    "map": {"file": "zones.csv", "side": 16},
    "privacy": {"epsilon": "0.1"},
}
"""The same records with a stop, where zones have coordinates."""

SEGMENTS: dict[str, Any] = {
    "mode": {"categories": ["car", "bus", "other"], "unknown": "other"},
    "day_type": {"column": "date", "derive": "day_type"},
}
"""Breakdowns of :func:`records_by_mode`: one with a category for what is not listed, and one that is derived."""

SILENT = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


@pytest.fixture(scope="session", autouse=True)
def libraries_asked_once() -> Iterator[None]:
    """Let libraries make once what they make anew at each call, which is most of what many tests would take."""
    make = cache(typer.main.get_command)
    describe = load_defs.get_library_json_enriched_defs
    described = cache(lambda: describe(None).metadata)
    found = cache(lambda code: inspect.getsourcelines(code))
    looked = SimpleNamespace(**vars(inspect) | {"getsourcelines": lambda function: found(function.__code__)})
    read, known = ScriptDirectory.from_config, dict[tuple[str | None, str | None], ScriptDirectory]()

    def with_descriptions(tree):
        return dg.Definitions(metadata=described(), component_tree=tree)

    def read_once(config):
        asked = config.config_file_name, config.get_main_option("script_location")
        if asked not in known:
            known[asked] = read(config)
        return known[asked]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", make)  # all commands of the command line
        patch.setattr(typer.testing, "_get_command", make)
        patch.setattr(load_defs, "get_library_json_enriched_defs", with_descriptions)  # the installed components
        patch.setattr(source_code, "inspect", looked)  # lines of functions, for which Dagster reads their files
        patch.setattr(ScriptDirectory, "from_config", read_once)  # the hundred scripts of Dagster's migrations
        yield


@pytest.fixture(scope="session", autouse=True)
def equal_series_tried_once() -> Iterator[None]:
    """Let Dagster try once whether it takes the definitions of a series, of equal ones in equal data sets.

    A command tries them before it writes a declaration or reads one, which takes most of its time.
    """
    build, taken = components.build_sound_definitions, set[tuple[str, ...]]()

    def build_once(series):
        asked = str(type(series)), repr(series), repr(series.require_valid().domain)
        if asked not in taken:
            build(series)
            taken.add(asked)  # what Dagster refuses is tried again

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(components, "build_sound_definitions", build_once)
        yield


@pytest.fixture(scope="session", autouse=True)
def equal_tables_checked_once(tmp_path_factory) -> Iterator[Callable[..., dict[str, bool]]]:
    """Let Great Expectations check equal tables once, and copy the page of the results; yield the check itself.

    A check takes a fifth of a second, and each run of a month makes three.
    """
    run, known = expectations._check_table, dict[tuple[Any, ...], tuple[dict[str, bool], Path]]()

    def run_once(name, frame, expected, docs, *, confidential):
        asked = (name, repr(frame.dtypes.to_dict()), frame.to_csv(), repr(expected), confidential)
        if asked not in known:
            pages = tmp_path_factory.mktemp("pages")
            known[asked] = run(name, frame, expected, pages, confidential=confidential), pages
        met, pages = known[asked]
        make_folder(docs)
        shutil.copy(pages / f"{name}.html", docs)
        return dict(met)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expectations, "_check_table", run_once)
        yield run


@pytest.fixture
def refused(monkeypatch, capsys) -> Callable[..., str]:
    """What the command line says on standard error, in this process, where it says nothing else and exits with 2."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["od-release", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        assert (ended.value.code, said.out) == (2, "")
        return said.err

    return run


class Project:
    """A project folder, its Dagster instance, and what a test does with them."""

    def __init__(self, root: Path, make_instance: Callable[[], dg.DagsterInstance]) -> None:
        self.root = root
        self.defs = make_dg_project(root)
        self.var = root / "var"
        self.mechanism = "inftda_refined"
        self._make_instance = make_instance

    @cached_property
    def instance(self) -> dg.DagsterInstance:
        """Made where a test first asks for it: that takes a tenth of a second, and half of the tests need none."""
        return self._make_instance()

    def write_records(self, records: pd.DataFrame, period: str = "2001-01") -> None:
        records.to_csv(self.root / f"{period}.csv", index=False)

    def component(self, **changes: Any) -> OdRelease:
        """The release with changes; those whose names begin with ``domain__`` are of its data set's domain."""
        return OdRelease.model_validate(self._attributes(ATTRIBUTES | {"mechanism": self.mechanism}, changes))

    def counts(self, **changes: Any) -> OdCounts:
        """The counts by one hierarchy with changes, as :meth:`component`."""
        return OdCounts.model_validate(self._attributes(COUNT_ATTRIBUTES | {"mechanism": self.mechanism}, changes))

    def group_sizes(self, **changes: Any) -> OdGroupSizes:
        """The group sizes with changes, as :meth:`component`."""
        return OdGroupSizes.model_validate(self._attributes(GROUP_ATTRIBUTES, changes))

    def stops(self, **changes: Any) -> OdStops:
        """The trips with stops with changes, as :meth:`component`."""
        return OdStops.model_validate(self._attributes(STOPS_ATTRIBUTES, changes))

    def _attributes(self, given: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
        attributes, declared = copy.deepcopy(given), copy.deepcopy(DOMAIN)
        for path, value in changes.items():
            *parents, last = path.removeprefix("domain__").split("__")
            place = declared if path.startswith("domain__") else attributes
            for parent in parents:
                place = place.setdefault(parent, {})
            place[last] = value
        declare_domain(self.defs, declared)
        return attributes

    def declare(self, attributes: dict[str, Any] = ATTRIBUTES, kind: str = "OdRelease") -> Path:
        """Write the declaration of a series into a folder of its name, and return the file."""
        return declare(self.defs, attributes["name"], kind, attributes)

    def definitions(self, component: Series) -> dg.Definitions:
        return with_warehouse(build_series_definitions(component))

    def run(self, component: Series | None = None, period: str = "2001-01") -> dg.ExecuteInProcessResult:
        component = component or self.component()
        return self.execute(self.definitions(component).resolve_job_def(f"{component.name}_release"), partition=period)

    def publish(self, component: Series | None = None, period: str = "2001-01") -> dg.ExecuteInProcessResult:
        """Run the job of a release, which must succeed."""
        result = self.run(component, period)
        assert result.success, failure_text(result)
        return result

    def materialize(
        self, *keys: str, period: str = "2001-01", component: Series | None = None
    ) -> dg.ExecuteInProcessResult:
        component = component or self.component()
        job = self.definitions(component).resolve_implicit_global_asset_job_def()
        return self.execute(job, *([component.name, *key.split("/")] for key in keys), partition=period)

    def execute(
        self,
        job: dg.JobDefinition,
        *keys: dg.AssetKey | Sequence[str],
        partition: str | None = None,
        tags: dict[str, str] | None = None,
    ) -> dg.ExecuteInProcessResult:
        """Run a job in this process, or some of its assets alone."""
        return job.execute_in_process(
            partition_key=partition,
            tags=tags,
            instance=self.instance,
            raise_on_error=False,
            run_config=SILENT,
            asset_selection=[key if isinstance(key, dg.AssetKey) else dg.AssetKey(key) for key in keys] or None,
        )


def draw_by_hand(series: Series, var: Path) -> None:
    """Enter a draw of the data set of a series in a new ledger: as after its first release, whatever requests runs."""
    ConfidentialFolder(var / "confidential").read_or_make_key()
    key, plan = ReleaseKey("by_hand", "2000-01", 1), series.plan(series.read_geography(), "2001-01")
    ledger = Ledger(var / "ledger.sqlite")
    ledger.declare(series.domain)
    ledger.reserve(key, series.domain.name, plan)
    ledger.start_draw(key, plan.charged_steps[0].number, series.noise)


def charge(settings: Series, period: str = "2001-01") -> ReleaseKey:
    """Declare the data set and reserve the budget of a release, as a run does before its first draw; return its key."""
    key, ledger = settings.key(period), Warehouse().ledger
    ledger.declare(settings.domain)
    ledger.reserve(key, settings.domain.name, settings.plan(settings.read_geography(), key.period))
    return key


def records(number: int = 2000) -> pd.DataFrame:
    """Records of January 2001 between all zones; the numbers are of no importance."""
    generator = np.random.default_rng(5)
    zones = ZONES["zone"].to_numpy()
    return pd.DataFrame(
        {
            "date": "2001-01-15",
            "origin": generator.choice(zones, number),
            "destination": generator.choice(zones, number, p=[0.5, 0.2, 0.1, 0.1, 0.05, 0.05]),
        }
    )


def records_by_mode() -> pd.DataFrame:
    """The records with a mode of transport, which is not listed or missing for some, and on all days of the month."""
    one = records()
    modes = np.resize(["car", "bus", "car", "tram", "car", None, "bus"], len(one))
    return one.assign(mode=modes, date=np.resize([f"2001-01-{day:02d}" for day in range(1, 32)], len(one)))


@cache
def as_csv(what: str) -> str:
    """The text of a file that every project has."""
    return (ZONES if what == "zones" else records()).to_csv(index=False)


@contextmanager
def projects_in(folder: Path, given: pytest.MonkeyPatch | None = None) -> Iterator[Callable[[], Project]]:
    """Make the project in a folder, as long as it is the one that the environment names.

    With the patches of a test, it is so until these are undone: a test may name another project, too.
    """
    with pytest.MonkeyPatch.context() as own, ExitStack() as opened:
        patch = given or own
        patch.setenv("OD_PROJECT", str(folder))
        patch.setenv("OD_VAR", str(folder / "var"))

        def make():
            project = Project(folder, lambda: opened.enter_context(dg.DagsterInstance.ephemeral()))
            shutil.copy(CHECKOUT / "od_assets" / "defs" / "domains" / "us_flights.yaml", project.defs / "domains")
            (folder / "zones.csv").write_text(as_csv("zones"), encoding="utf-8")
            (folder / "2001-01.csv").write_text(as_csv("records"), encoding="utf-8")
            return project

        yield make


@pytest.fixture
def make_project(own_folders, tmp_path, monkeypatch) -> Iterator[Callable[[], Project]]:
    with projects_in(tmp_path, monkeypatch) as make:
        yield make


@pytest.fixture
def project(make_project) -> Project:
    return make_project()


@pytest.fixture
def cities(project, monkeypatch) -> Project:
    """A project with two cities, whose definitions Dagster loads."""
    from tests.od_assets.cities import declare_two  # which imports this module

    return declare_two(project, monkeypatch)


@pytest.fixture(scope="session")
def first_run(tmp_path_factory) -> tuple[Path, dg.ExecuteInProcessResult]:
    """A month of flows that was published: the folder ``var``, and the run. Not to be changed."""
    folder = tmp_path_factory.mktemp("first_run")
    with projects_in(folder) as make:
        made = make()
        result = made.run()
        assert result.success
        return made.var, result


@pytest.fixture
def released(project, first_run) -> Project:
    """The project where that month is published, in a folder of the test. Dagster knows nothing of the run."""
    shutil.copytree(first_run[0], project.var, dirs_exist_ok=True)
    return project


def with_two_flows(project: Project, periods: Iterable[str]) -> Project:
    """Write the same records of several months: two flows of 60 trips."""
    for period in periods:
        records = {"date": f"{period}-03", "origin": ["Z00", "Z10"] * 60, "destination": ["Z11", "Z20"] * 60}
        project.write_records(pd.DataFrame(records), period)
    return project


def failure_text(result: dg.ExecuteInProcessResult) -> str:
    """What Dagster stored of the failures of a run."""
    return " ".join(
        event.step_failure_data.user_failure_data.description
        for event in result.all_events
        if event.is_step_failure and event.step_failure_data.user_failure_data is not None
    )


def doctors_faults(project: Project, component: Series, period: str = "2001-01") -> list[Finding]:
    """What the doctor finds wrong of a period. But for the details of the input, it leaves all files as they are."""

    def files():
        return {name: state for name, state in states(project.var).items() if "/errors" not in name}

    settings, before = component.require_valid(), files()
    found = [inspect_budget(settings, period), *inspect_records_of_period(settings, period)]
    assert files() == before
    return [finding for finding in found if not finding.ok]


def public_bytes(var: Path) -> dict[str, bytes]:
    """All files of all bundles."""
    return {str(p.relative_to(var)): p.read_bytes() for p in (var / "releases").rglob("*") if p.is_file()}


def states(folder: Path) -> dict[str, tuple[int, str]]:
    """Mode and content of everything in a folder."""
    return {
        str(path.relative_to(folder)): (
            path.lstat().st_mode,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in folder.rglob("*")
    }
