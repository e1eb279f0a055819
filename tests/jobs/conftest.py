"""The small project of the Dagster tests, for those that run whole jobs again and again."""

from pathlib import Path

import pytest

from tests.od_assets.conftest import cities, first_run, make_project, project, refused, released
from tests.wheels import build_wheel, install_wheel

__all__ = ["cities", "first_run", "make_project", "project", "refused", "released"]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory) -> Path:
    """The wheel of this checkout."""
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def installed(wheel, tmp_path_factory) -> Path:
    """A folder of packages that has the wheel alone. Environments share it, and the cache of its kernels."""
    packages = tmp_path_factory.mktemp("installed")
    install_wheel(wheel, packages)
    return packages
