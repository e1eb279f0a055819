"""The disclosure documents of releases of every kind: their schemas, their evidence, the same bytes, and refusals."""

import functools
import html
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jsonschema
import pytest
import yaml

from od_core import OdError
from od_core.publication.certificate import compute_certificate_digest
from od_core.published import documents as made
from od_core.published.documents import TO_COMPLETE, disclosure_documents, write_disclosure
from tests.od_core.publication.examples import checked_again
from tests.od_core.published.disclosure.certified import DERIVED, FILES, KINDS, certified, written

ROOT = Path(__file__).parents[4]
PYRAMID = {
    "top": {"privacy-parameters", "unit-of-privacy"},
    "middle": {"algorithms-and-correctness", "utility", "bias"},
    "bottom": {"access-control", "trust-model", "query-model", "side-channels", "data-collection-exposure"},
}
"""The blocks of the publication's pyramid; the query model is one of its deployment's questions."""


@functools.cache
def schema(name: str) -> jsonschema.Draft202012Validator:
    read = json.loads(Path(__file__).with_name(f"{name}.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(read)
    return jsonschema.Draft202012Validator(read)


@functools.cache
def documents(name: str) -> dict[str, str]:
    """All documents of a release. Not to be changed."""
    with TemporaryDirectory() as root:
        return disclosure_documents(written(certified(name).facts, Path(root) / "r1"))[1]


# -- the registry ----------------------------------------------------------------------------------------------------


CHOSEN = {"data_curator_type": "Government", "data_product_sector": "Government"}
"""What an organisation has chosen of the enumerations of the registry, by field."""


def completed(entry: Any, chosen: Any = CHOSEN) -> Any:
    """A registry entry in which the choices have been made."""
    if isinstance(entry, dict):
        return {name: chosen.get(name) or completed(value, chosen) for name, value in entry.items()}
    return [completed(value, chosen) for value in entry] if isinstance(entry, list) else entry


def fields(node: Any, required: bool, *path: str) -> Iterator[tuple[str, ...]]:
    """The paths of all fields of a schema, or of those that it requires."""
    for name, value in node.get("properties", {}).items():
        if not required or name in node.get("required", []):
            yield (*path, name)
            yield from fields(value.get("items", value), required, *path, name)


def found_at(entry: Any, path: tuple[str, ...]) -> list[tuple[Any, str]]:
    """Each place of an entry that a path leads to: what contains the field, and its name."""
    places = [entry]
    for name in path[:-1]:
        places = [one for place in places for one in (place[name] if isinstance(place[name], list) else [place[name]])]
    return [(place, path[-1]) for place in places if path[-1] in place]


@pytest.mark.parametrize("name", KINDS)
def test_an_entry_has_every_field_of_the_registry_and_is_valid_once_it_is_completed(name: str) -> None:
    entry, registry = yaml.safe_load(documents(name)[made.REGISTRY]), schema("registry_entry")
    assert {error.json_path.split(".")[-1] for error in registry.iter_errors(entry)} == set(CHOSEN)
    whole = completed(entry)
    registry.validate(whole)
    missing = {path[-1] for path in fields(registry.schema, False) if not found_at(whole, path)}
    assert missing <= {"delta", "rho"}
    texts = documents(name)[made.REGISTRY]
    assert not [token for token in yaml.scan(texts) if getattr(token, "style", None) == ">"]  # the registry refuses it


def test_an_entry_without_a_required_field_or_with_another_is_refused() -> None:
    registry = schema("registry_entry")
    required = [*fields(registry.schema, True)]
    assert {path[-1] for path in required} >= {"status", "tier", "name", "data_curator_type", "publication_date"}
    for path in required:
        whole = completed(yaml.safe_load(documents("trips")[made.REGISTRY]))
        for place, field in found_at(whole, path):
            del place[field]
        assert not registry.is_valid(whole), path
    whole = completed(yaml.safe_load(documents("trips")[made.REGISTRY]))
    for section in (whole, whole["deployment"], *whole["deployment"].values()):
        section["surprise"] = ""
        assert not registry.is_valid(whole)
        del section["surprise"]
    registry.validate(whole)


def test_a_number_of_units_is_stated_only_where_it_is_public() -> None:
    """A weight counts several trips, and a user may have several."""
    names = ("trips", "unbounded", "users", "weights", "group sizes")
    registered = {name: yaml.safe_load(documents(name)[made.REGISTRY]) for name in names}
    stated = {
        name: re.findall(
            r"number of privacy units is (\d+)", one["deployment"]["privacy_loss"]["privacy_parameters_details"]
        )
        for name, one in registered.items()
    }
    assert {name for name, found in stated.items() if found} == {"trips", "unbounded"}
    assert stated["trips"] == [str(certified("trips").facts["exact"]["trips"])]


# -- NIST SP 800-226 -------------------------------------------------------------------------------------------------


@functools.cache
def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as MkDocs makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    plain = [re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in headings]
    return {re.sub(r"[\s-]+", "-", heading) for heading in plain}


def pointed(value: Any, pointer: str) -> Any:
    """What a JSON pointer leads to."""
    for part in pointer.split("/")[1:]:
        value = value[part]
    return value


@pytest.mark.parametrize("name", KINDS)
def test_the_checklist_has_every_block_and_its_evidence_is_there(name: str) -> None:
    checklist = json.loads(documents(name)[made.CHECKLIST])
    schema("nist_checklist").validate(checklist)
    items = checklist["items"]
    assert len({item["id"] for item in items}) == len(items)
    for layer, ids in PYRAMID.items():
        assert {item["id"] for item in items if item["layer"] == layer} == ids
    for item in items:
        for place in item["evidence"]:
            pointed(certified(name).facts, place.removeprefix("certificate.json#"))
        for place in item["documentation"]:
            file, _, anchor = place.partition("#")
            assert (ROOT / file).is_file(), place
            assert not anchor or anchor in anchors(ROOT / file), place
        marked = TO_COMPLETE.lower() in item["text"].lower()
        assert marked == (item["answer"] == "for the organisation"), item["id"]
    assert checklist["certificate"] == compute_certificate_digest(certified(name).facts)
    page = said(name, made.CHECKLIST_PAGE)
    assert f"evaluated. Certificate {checklist['certificate'][:16]}." in page
    assert [item["id"] for item in items if item["text"] not in html.unescape(page)] == []


def answers(name: str) -> dict[str, str]:
    items = json.loads(documents(name)[made.CHECKLIST])["items"]
    return {item["id"]: item["answer"] for item in items}


def test_answers_follow_from_the_release() -> None:
    """A weak release does not pass: an epsilon above 10 at delta 1e-4."""
    found = {name: answers(name) for name in KINDS}
    assert found["trips"]["large-epsilon"] == "met"
    assert found["tree of boxes"]["large-epsilon"] == "met with a limit"
    assert found["weak"]["large-epsilon"] == found["weak"]["large-delta"] == "not met"
    assert found["group sizes"]["large-delta"] == "not applicable"
    assert found["users"]["large-delta"] == "for the organisation"  # the number of users is not public
    assert found["trips"]["large-delta"] == "met"  # 348 trips, delta 1e-8
    exact = {name for name in KINDS if found[name]["size-is-public"] != "met"}
    assert exact == {name for name in KINDS if certified(name).facts["exact"]}
    events = {name for name in KINDS if found[name]["event-level-unit"] != "met"}
    assert events == {name for name in KINDS if certified(name).facts["unit"] == "trip"}
    unsure = {name for name in KINDS if found[name]["utility"] != "met"}
    assert unsure == {name for name in KINDS if certified(name).facts.get("interval") is None}


# -- provenance ------------------------------------------------------------------------------------------------------

ENDS = {
    **dict.fromkeys(("prov:entity", "prov:generatedEntity", "prov:usedEntity", "prov:collection"), "entity"),
    **dict.fromkeys(("prov:agent", "prov:delegate", "prov:responsible"), "agent"),
    "prov:plan": "entity",
    "prov:activity": "activity",
}


@pytest.mark.parametrize("name", KINDS)
def test_every_end_of_a_relation_is_declared_and_what_is_confidential_has_no_content(name: str) -> None:
    document = json.loads(documents(name)[made.PROVENANCE])
    schema("provenance").validate(document)
    for kind, relations in document.items():
        for relation in relations.values() if kind not in ("prefix", "entity", "activity", "agent") else ():
            assert [end for end, named in relation.items() if named not in document[ENDS[end]]] == []
    generated = [one["prov:entity"] for one in document["wasGeneratedBy"].values()]
    assert len(generated) == len(set(generated))
    confidential = [entity for entity in document["entity"].values() if entity.get("od:confidential")]
    assert all(entity.keys() == {"prov:label", "od:confidential"} for entity in confidential)
    assert len(confidential) == (0 if name in DERIVED else 2)
    files = {one["prov:label"]: one["od:sha256"] for one in document["entity"].values() if "od:sha256" in one}
    assert {file["path"]: file["hash"].removeprefix("sha256:") for file in FILES}.items() <= files.items()


# -- pages -----------------------------------------------------------------------------------------------------------

HOSTILE = "<script>alert(1)</script> | *x* [a](javascript:b) `c`"


class Tags(HTMLParser):
    """The names of all elements of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add(tag)
        assert not any(name.startswith("on") for name, _ in attrs)


def hostile(name: str) -> dict[str, Any]:
    """A certificate in which every text that names something is markup."""
    facts = json.loads(json.dumps(certified(name).facts))
    facts["data_set"] = facts["noise"] = HOSTILE
    facts["guarantee"] = dict.fromkeys(facts["guarantee"], HOSTILE)
    facts["invariants"] = facts["known_limitations"] = [HOSTILE]
    facts["software"]["od-release"] = facts["measured_at"] = HOSTILE
    if "mechanism" in facts:
        facts["mechanism"]["name"] = HOSTILE
    return dict(facts)


@pytest.mark.parametrize("name", ["trips", "users", "sum"])
def test_names_with_markup_are_text(name: str, tmp_path: Path) -> None:
    _, found = disclosure_documents(written(hostile(name), tmp_path / "r1"))
    for page in (made.NOTICE, made.CHECKLIST_PAGE):
        assert not Tags(found[page]).found & {"script", "img", "iframe"}
    assessment = found[made.ASSESSMENT]
    assert "<script" not in assessment
    assert not re.search(r"(?<!\\)\]\(", assessment)
    rows = [line for line in assessment.splitlines() if line.startswith("|")]
    cells = {len(re.findall(r"(?<!\\)\|", line)) - 1 for line in rows}
    assert cells == {2, 3}
    assert yaml.safe_load(found[made.REGISTRY])["deployment"]["basic"]["description"].count(HOSTILE) == 1
    schema("provenance").validate(json.loads(found[made.PROVENANCE]))


def said(name: str, document: str) -> str:
    """The words of a document."""
    text = re.sub(r"<style>.*?</style>|<[^>]+>", " ", documents(name)[document], flags=re.DOTALL)
    return " ".join(text.split())


# -- writing ---------------------------------------------------------------------------------------------------------


def test_the_same_bundle_gives_the_same_bytes_and_writes_nothing_twice(tmp_path: Path) -> None:
    bundle = written(certified("trips").facts, tmp_path / "r1")
    first = write_disclosure(bundle, tmp_path / "out", within=True)
    assert first.folder == tmp_path / "out" / "trips" / "2001-06" / "r1"
    assert set(first.changed) == {file.name for file in first.folder.iterdir()} == set(made.DESCRIPTIONS)
    before = {file.name: file.read_bytes() for file in first.folder.iterdir()}
    assert write_disclosure(bundle, tmp_path / "out", within=True).changed == ()
    again = write_disclosure(written(certified("trips").facts, tmp_path / "elsewhere"), tmp_path / "other")
    assert {file.name: file.read_bytes() for file in again.folder.iterdir()} == before


def test_documents_are_not_written_into_a_bundle_or_over_a_file(tmp_path: Path) -> None:
    bundle = written(certified("trips").facts, tmp_path / "r1")
    (tmp_path / "file").touch()
    for place in (bundle, bundle / "below", tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OdError, match="OD-DISCLOSURE-FOLDER"):
            write_disclosure(bundle, place)
    assert {file.name for file in bundle.iterdir()} == {"certificate.json", "datapackage.json", "SHA256SUMS"}


def test_a_damaged_certificate_is_refused(tmp_path: Path) -> None:
    """A changed byte, and, where the checksums were made again, a fact that is missing or is no number."""
    bundle = written(certified("trips").facts, tmp_path / "r1")
    file = bundle / "certificate.json"
    whole = file.read_text(encoding="utf-8")
    file.write_text(whole.replace('"bounded"', '"unbounded"'), encoding="utf-8")
    with pytest.raises(OdError, match="OD-BUNDLE-DAMAGED"):
        disclosure_documents(bundle)
    facts = json.loads(whole)
    changes = ({"epsilon": "much"}, {"epsilon": -1}, {"rho_exact": "1/0"})
    codes = ("OD-BUNDLE-CHANGED", "OD-BUDGET-NUMBER", "OD-BUNDLE-CHANGED")
    for change, code in zip(changes, codes, strict=True):
        file.write_text(json.dumps(facts | {"spent": facts["spent"] | change}), encoding="utf-8")
        checked_again(bundle)
        with pytest.raises(OdError, match=code):
            disclosure_documents(bundle)
    for missing in ("spent", "plan", "guarantee", "data_set", "known_limitations"):
        file.write_text(json.dumps({name: fact for name, fact in facts.items() if name != missing}), encoding="utf-8")
        checked_again(bundle)
        with pytest.raises(OdError, match="OD-RELEASE-ABSENT"):
            disclosure_documents(bundle)
    file.write_text(json.dumps(facts | {"format": "another"}), encoding="utf-8")
    checked_again(bundle)
    with pytest.raises(OdError, match="OD-CERTIFICATE-FORMAT"):
        disclosure_documents(bundle)
    with pytest.raises(OdError, match="OD-RELEASE-ABSENT"):
        disclosure_documents(tmp_path / "nothing")
