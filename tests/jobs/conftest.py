"""The small project of the Dagster tests, for those that run whole jobs again and again."""

from __future__ import annotations

import shutil
from pathlib import Path

import dagster as dg
import pytest

from tests.od_assets.conftest import Project, make_project, project, projects_in
from tests.wheels import build_wheel, install_wheel

__all__ = ["make_project", "project"]


@pytest.fixture(scope="session")
def first_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dg.ExecuteInProcessResult]:
    """A month of flows that was published: the folder ``var``, and the run. Not to be changed."""
    folder = tmp_path_factory.mktemp("first_run")
    with projects_in(folder) as make:
        made = make()
        result = made.run()
        assert result.success
        return made.var, result


@pytest.fixture
def released(project: Project, first_run: tuple[Path, dg.ExecuteInProcessResult]) -> Project:
    """The project where that month is published, in a folder of the test."""
    shutil.copytree(first_run[0], project.var, dirs_exist_ok=True)
    return project


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of packages that has the wheel alone. Environments share it, and the cache of its kernels."""
    packages = tmp_path_factory.mktemp("installed")
    install_wheel(wheel, packages)
    return packages
