"""The Dagster instance of a command: the modes of its files, and whose they are."""

import os
import stat

import pytest

from od_assets.failures import open_dagster_instance
from od_assets.project import prepare_dagster_home
from tests.od_core.files.disks import umask


@pytest.mark.parametrize("mask", [0o000, 0o077])
def test_files_of_dagster_are_read_by_all_whatever_the_umask(project, mask):
    home = prepare_dagster_home()
    with umask(mask):
        with open_dagster_instance() as instance:
            instance.get_runs()
        assert os.umask(mask) == mask
    files = [path for path in home.rglob("*") if path.is_file() and path.name != "release.lock"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o644}
    assert any(path.suffix == ".db" for path in files)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs the rights of root")
def test_root_is_told_whose_files_it_makes(project, capsys):
    home = prepare_dagster_home()
    with open_dagster_instance():
        assert "root" not in capsys.readouterr().err
    os.chown(home.parent, 1234, 1234)
    with open_dagster_instance():
        said = capsys.readouterr().err
    assert said == f"Files that root makes in {home.parent} cannot be changed by its owner, user 1234.\n"
