"""What is installed is pinned: names, versions and hashes, from whatever host they come."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
FILES = ("constraints.txt", "constraints-dev.txt", "constraints-spark.txt")
PINS = re.compile(
    r"(?:[a-z0-9-]+==[0-9a-z.!+]+ \\\n(?: {4}--hash=sha256:[0-9a-f]{64} \\\n)* {4}--hash=sha256:[0-9a-f]{64}\n)+"
)
"""Every pin has a hash, and nothing else is said: neither where a package comes from, nor any option."""


def pins(file: str) -> dict[str, str]:
    found = re.findall(r"^([^\s=]+)==(\S+)", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
    assert len(dict(found)) == len(found)
    return dict(found)


PEERS = tuple(f"benchmarks/peers/requirements/{name}.txt" for name in ("opendp", "pipeline_dp"))
"""Other software that is compared with this project, in environments of its own."""


@pytest.mark.parametrize("file", FILES + PEERS)
def test_every_pin_has_its_hashes_and_no_host_is_named(file):
    assert PINS.fullmatch((ROOT / file).read_text(encoding="utf-8"))


def test_what_is_required_is_pinned_within_its_range():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = declared["project"]
    extras = project["optional-dependencies"]
    installed = ("boundaries", "bundle", "checks", "dagster", "notices", "openlineage", "postgres")
    of_tests = ("delta", "dev", "iceberg", "postgres-tables")
    assert {*extras} == {*installed, *of_tests, "all", "spark"}
    main = [*declared["build-system"]["requires"], *project["dependencies"]]
    main += [line for extra in installed for line in extras[extra]]
    tried = [line for extra in of_tests for line in extras[extra]]
    release, dev, spark = map(pins, FILES)
    for lines, pinned in ((main, release), (tried, release | dev), (extras["spark"], release | dev | spark)):
        for requirement in map(Requirement, lines):
            if requirement.name == project["name"]:
                continue  # with other extras, which are looked at themselves
            assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)]), str(requirement)
    assert len(release | dev | spark) == len(release) + len(dev) + len(spark)


def test_nothing_is_installed_but_what_is_pinned():
    """Neither by make, nor by what CI runs, nor by what a reader is told to type."""
    texts = [ROOT / "Makefile", ROOT / ".ci" / "run", ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    lines = [line for text in texts for line in text.read_text(encoding="utf-8").splitlines()]
    installing = [line for line in lines if re.search(r"\bpip3?\b.* install|\$\(PIP\) install", line)]
    without_index = ("$(PINNED)", "--no-build-isolation --no-deps -e .", "--no-index --find-links wheels")
    others = [line.strip() for line in installing if not any(option in line for option in without_index)]
    assert others == [
        "$ pip install --editable . 'dist/od_release-0.3.0.dev0-py3-none-any.whl[dagster]'",  # of a team's project
        "$ pip install create-dagster 'dist/od_release-0.3.0.dev0-py3-none-any.whl[dagster]'",  # of the tutorial
        "$ pip install --editable .",
    ]
    assert [line for line in lines if line.startswith("PINNED := --no-deps --require-hashes")]
    downloading = [line.strip() for line in lines if re.search(r"\bpip3?\b.* download", line)]
    assert downloading == [
        "# bin/pip download --no-deps --require-hashes --only-binary :all: -d wheels -r source/constraints.txt"
    ]
