"""Make a small ``var`` with releases of all kinds by one state of this software, and pack it for the tests.

Run it by hand when a change of a format has landed, with the command of that state and the name of the archive::

    python tests/vars/make_var.py .venv/bin/od-release tests/vars/2026-11-28.tar.xz

The records are invented, and so are the keys that protect them. What later versions make again is left out: the zip
files, the pages of checks, and Dagster's storage.
"""

import itertools
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

SETTINGS = """\
[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "declared"
code_location_target_module = "declared.definitions"
"""

DEFINITIONS = """\
from pathlib import Path

import dagster as dg


@dg.definitions
def defs() -> dg.Definitions:
    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
"""

ZONES = [(f"R{region}", f"Z{region}{zone}", 48 + region, 9 + zone) for region in range(2) for zone in range(2)]

SHARED: dict[str, Any] = {"owners": ["team:statistics"], "domain": "trips"}
TREE = {"file": "zones.csv", "levels": ["region", "zone"], "coordinates": ["latitude", "longitude"]}
MONTHS = {"first": "2001-01", "last": "2001-03"}

BUDGET = {"epsilon": "1", "delta": "1e-8"}
BEGUN = {"files": "begun_{period}.csv", "columns": {"date": "date", "area": "origin"}}
FLOWS = {"files": "trips_{period}.csv", "columns": {"date": "date", "trips": "number"}}
STOPS = {"files": "journeys_{period}.csv", "columns": {"date": "date", "places": ["origin", "stop", "destination"]}}

PARTS = {"segments": {"mode": {"categories": ["car", "bus"]}}, "area_totals": {"share": "1/10"}}
SIZES = {"privacy": {"epsilon": "0.1"}, "mechanism": "cumulative", "top_code": 20}
WITHOUT_PLACES = {name: TREE[name] for name in ("file", "levels")}

SERIES: dict[str, tuple[str, dict[str, Any]]] = {
    "trips": ("OdRelease", {"trips": FLOWS, "geography": TREE, "privacy": BUDGET} | PARTS),
    "begun": ("OdCounts", {"trips": BEGUN, "geography": TREE, "privacy": BUDGET}),
    "departures": ("OdGroupSizes", {"trips": BEGUN, "geography": WITHOUT_PLACES} | SIZES),
    "journeys": (
        "OdStops",
        {"trips": STOPS, "map": {"file": "zones.csv", "side": 16}, "privacy": {"epsilon": "0.1"}},
    ),
}
SINCE_2026 = {"begun": None, "trips": "area_totals"}
"""Series, and a field of one, that the state eda80c0c does not know."""


def write_project(root: Path, *, is_first: bool) -> list[str]:
    """Write a project with invented records of three months; return the names of its series."""
    defs, zones = root / "declared" / "defs", [code for _, code, *_ in ZONES]
    (defs / "domains").mkdir(parents=True)
    (root / "pyproject.toml").write_text(SETTINGS, encoding="utf-8")
    (root / "declared" / "__init__.py").touch()
    (root / "declared" / "definitions.py").write_text(DEFINITIONS, encoding="utf-8")
    domain = {"name": "trips", "cap": {"rho": "1", "reason": "first declaration"}}
    (defs / "domains" / "trips.yaml").write_text(json.dumps(domain), encoding="utf-8")
    lines = ["region,zone,latitude,longitude", *(",".join(map(str, zone)) for zone in ZONES)]
    (root / "zones.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    names = [name for name in SERIES if not is_first or SINCE_2026.get(name, "") is not None]
    for name in names:
        kind, fields = SERIES[name]
        fields = {field: fact for field, fact in fields.items() if not is_first or field != SINCE_2026.get(name)}
        attributes = SHARED | {"name": name, "periods": MONTHS} | fields
        (defs / name).mkdir()
        text = f"type: od_assets.components.{kind}\n\nattributes: {json.dumps(attributes)}\n"  # JSON is YAML
        (defs / name / "defs.yaml").write_text(text, encoding="utf-8")
    (defs / "warehouse").mkdir()
    text = "type: od_assets.components.OdWarehouse\n\nattributes: {}\n"
    (defs / "warehouse" / "defs.yaml").write_text(text, encoding="utf-8")
    for month in ("2001-01", "2001-02", "2001-03"):
        pairs = [*itertools.product(zones, zones)]
        trips = [f"{month}-15,{o},{d},{mode},{n % 7}" for n, (o, d) in enumerate(pairs) for mode in ("car", "bus")]
        begun = [f"{month}-{day:02d},{zone}" for day in range(1, 29) for zone in zones[: 1 + day % 4]]
        journeys = [f"{month}-15,{o},{zones[n % 4]},{d}" for n, (o, d) in enumerate(pairs * 4)]
        for name, head, rows in (
            ("trips", "date,origin,destination,mode,number", trips),
            ("begun", "date,origin", begun),
            ("journeys", "date,origin,stop,destination", journeys),
        ):
            (root / f"{name}_{month}.csv").write_text("\n".join([head, *rows]) + "\n", encoding="utf-8")
    return names


def main(command: str, archive: str, *, is_first: bool) -> None:
    """Release two months of flows, a month of each other series, and a sum; pack the project with its ``var``."""
    with TemporaryDirectory() as folder:
        root = Path(folder) / "project"
        names = write_project(root, is_first=is_first)
        environment = {**os.environ, "OD_PROJECT": str(root), "OD_VAR": str(root / "var"), "PYTHONPATH": str(root)}
        runs = [["run", name, "--period", "2001-01"] for name in names]
        runs += [["run", "trips", "--period", "2001-02"], ["sum", "trips", "--periods", "2001-01..2001-02"], ["verify"]]
        for arguments in runs:
            subprocess.run([command, *arguments], check=True, env=environment, cwd=root)
        var = root / "var"
        kept = ("ledger.sqlite", "release.duckdb", "releases", "confidential", "geographies")
        unwanted = [place for place in var.iterdir() if place.name not in kept]
        unwanted += [*(var / "releases").rglob("*.zip"), *(var / "confidential").rglob("data_docs")]
        for place in unwanted:
            shutil.rmtree(place) if place.is_dir() else place.unlink()
        with tarfile.open(archive, "w:xz", preset=9) as packed:
            packed.add(root, "project")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], is_first="--first" in sys.argv)
