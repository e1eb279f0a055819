"""The wheel of this checkout, and environments that have it and exactly what its metadata require."""

import csv
import os
import shutil
import subprocess
import sys
import venv
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
OWN = "od-release"


def build_wheel(folder: Path) -> Path:
    """The wheel, built from a copy of the sources by the backend that is installed."""
    sources = folder / "sources"
    sources.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, sources)
    for package in ("od_core", "od_assets"):
        shutil.copytree(ROOT / package, sources / package, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(sources)]
    subprocess.run(command, check=True, capture_output=True)
    [built] = folder.glob("*.whl")
    return built


def install_wheel(wheel: Path, packages: Path) -> None:
    """Install the wheel into a folder of packages, without anything that it requires."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--target", str(packages), str(wheel)], check=True)


def required(requirement: str, own: Distribution) -> set[str]:
    """Names of the distributions that a requirement installs, with all that these require.

    They are those of this machine, as the metadata of what is installed say. What is not installed is left out: it is
    for another platform, or an extra of its own as PySpark is.

    Args:
        own: the distribution of this project, which need not be the one that is installed.
    """
    found: set[tuple[str, str]] = set()
    open_ones = [(Requirement(requirement), "")]
    while open_ones:
        wanted, extra = open_ones.pop()
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(wanted.name)
        try:
            lines = (own if name == OWN else distribution(name)).requires or []
        except PackageNotFoundError:
            continue
        for one in {"", *wanted.extras} - {known for named, known in found if named == name}:
            found.add((name, one))
            open_ones += [(Requirement(line), one) for line in lines]
    return {name for name, _ in found}


@cache
def _files() -> dict[str, list[str]]:
    """By distribution, the files that it has in the folder of packages."""
    files: dict[str, list[str]] = {}
    for one in distributions():
        rows = csv.reader((one.read_text("RECORD") or "").splitlines())
        paths = [path for path, *_ in rows if not path.startswith(("..", "/"))]
        files.setdefault(canonicalize_name(one.metadata["Name"]), paths)
    return files


def link_packages(names: set[str], packages: Path) -> None:
    """Make a folder of packages that has these distributions, each linked to where it is installed.

    A folder that other distributions share, as a namespace package is, is made, and its files are linked one by one.
    """
    installed = Path(str(distribution("numpy").locate_file("")))
    owners: dict[str, set[str]] = defaultdict(set)
    for name, paths in _files().items():
        for path in paths:
            owners[path.partition("/")[0]].add(name)
    linked = {top for top, having in owners.items() if having <= names}
    shared = {top for top, having in owners.items() if having & names} - linked
    for top in linked:
        (packages / top).symlink_to(installed / top)
    for name in names:
        for path in _files()[name]:
            if path.partition("/")[0] in shared and "__pycache__" not in path:
                (packages / path).parent.mkdir(parents=True, exist_ok=True)
                (packages / path).symlink_to(installed / path)


class Environment:
    """A virtual environment with the wheel of a folder, and with what its metadata require for some extras.

    Nothing is downloaded: the distributions are those of this environment, found by their metadata and linked. So a
    package that the wheel uses but does not require is missing, and its tests fail. What this does not show is that pip
    finds such versions: ``pip check`` of ``make install`` and ``make compatibility`` do.
    """

    def __init__(self, folder: Path, installed: Path, extras: Iterable[str]) -> None:
        venv.create(folder, with_pip=False)
        [self.packages] = (folder / "lib").glob("python*/site-packages")
        self.folder, self.python = folder, folder / "bin" / "python"
        self._kernels = installed.with_name(f"{installed.name}_kernels")  # compiled once for all environments
        [metadata] = installed.glob("*.dist-info")
        self.names = required(f"{OWN}[{','.join(extras)}]", Distribution.at(metadata)) - {OWN}
        link_packages(self.names, self.packages)
        (self.packages / "of_this_test.pth").write_text(f"{installed}\n")

    def run(self, *command: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run Python in the environment, and in a folder."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("OD_", "PYTHONPATH"))}
        kept |= {"VIRTUAL_ENV": str(self.folder), "PYTHONNOUSERSITE": "1", "NUMBA_CACHE_DIR": str(self._kernels)}
        kept["PATH"] = f"{self.python.parent}{os.pathsep}{kept['PATH']}"
        return subprocess.run(
            [self.python, *command], cwd=folder, env=kept | variables, capture_output=True, text=True, check=False
        )
