"""The data contract of a bundle of each kind: it meets the schema of the standard, and says what the data package says.

``odcs-json-schema-v3.1.0.json`` is the official JSON Schema of the Open Data Contract Standard (Apache-2.0), unchanged
but for its blanks.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import pandas as pd
import pytest

from od_core import OdError, data_contract
from tests.od_core.group_sizes.test_publication import bundle as group_bundle
from tests.od_core.group_sizes.test_publication import published as group_sizes
from tests.od_core.publication.examples import facts, publish_bundle, release
from tests.od_core.stops.test_publication import published as stops

SCHEMA = json.loads(Path(__file__).with_name("odcs-json-schema-v3.1.0.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("bundles")
    publish_bundle(release(), facts(release()), root / "flows")
    group_bundle(*group_sizes(root), root / "group_sizes")
    (root / "stops").mkdir()
    return {"flows": root / "flows", "group_sizes": root / "group_sizes", "stops": stops(root / "stops").bundle}


def columns(table: dict[str, Any]) -> list[str]:
    return [column["name"] for column in table["properties"]]


@pytest.mark.representatives("flows")
@pytest.mark.parametrize("kind", ["flows", "group_sizes", "stops"])
def test_a_contract_meets_the_standard_and_names_each_column_of_each_file(bundles: dict[str, Path], kind: str) -> None:
    contract = data_contract(bundles[kind])
    jsonschema.Draft201909Validator(SCHEMA).validate(contract)
    tables = {table["name"]: columns(table) for table in contract["schema"]}
    files = [*bundles[kind].rglob("*.csv"), *bundles[kind].rglob("*.parquet")]
    written = {file.stem: list((pd.read_csv if file.suffix == ".csv" else pd.read_parquet)(file)) for file in files}
    written.pop("flows.sdmx", None)  # its columns are those of its own structure
    assert tables == written
    listed = {f"{table}.{column}" for table, names in tables.items() for column in names}
    for reference in [key for table in contract["schema"] for key in table["relationships"]]:
        assert {*reference["from"], *reference["to"]} <= listed


def test_a_bundle_without_its_data_package_is_refused(bundles: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(bundles["flows"], tmp_path / "r1")
    package = tmp_path / "r1" / "datapackage.json"
    facts = json.loads(package.read_text(encoding="utf-8"))
    del facts["resources"][0]["schema"]["fields"][0]["title"]
    for content in (json.dumps(facts), "{"):
        package.write_text(content, encoding="utf-8")
        with pytest.raises(OdError, match="OD-RELEASE-ABSENT"):
            data_contract(tmp_path / "r1")
