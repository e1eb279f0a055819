"""Write flows for statistical offices: the flows as SDMX-CSV 2.0, and their structure as SDMX-JSON 2.0 and SDMX-ML 2.1.

An area code can be any text, but an SDMX identifier is restricted to certain characters. In addition, some readers
convert text that looks like a number to a number. So the identifier of an area consists of the number of its level and
its code, such as ``L4_007``. In the code, every byte except letters, digits, ``-`` and ``_`` is replaced by ``$`` and
two hexadecimal digits. In the code list, the name of each identifier is the unchanged code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import partial, reduce
from itertools import chain
from typing import Any, BinaryIO

import pyarrow as pa

from od_core.files.table_writers import write_csv_rows
from od_core.flows.publishing.flow_tables import FlowTables, repeat_text
from od_core.geography.geography import Geography
from od_core.languages import ENGLISH, translate
from od_core.ledger.release_key import ReleaseKey
from od_core.periods import Period
from od_core.publication.certificate import Certificate, write_in_languages
from od_core.publication.columns import (
    LOWER,
    PERIOD,
    TRIPS,
    UPPER,
    make_pair_segments_table,
    make_period_column,
    make_public_table,
)
from od_core.publication.tables import BundleFile
from od_core.publication.templates import render_template
from od_core.records.segments import Breakdown

AGENCY = "OD_RELEASE"
"""Identifier of the agency that maintains the structures."""

VERSION = "1.0"
"""Version of each structure. With three parts it could not change in SDMX 3.0, but code lists follow the geography."""

_FIRST_WITH_VERSION = 8
"""First bundle format with this version; earlier ones have 1.0.0."""

_CONCEPTS = "CS_FLOWS"
"""Identifier of the concept scheme."""

_FORBIDDEN_BYTES = re.compile(rb"[^A-Za-z0-9_-]")
"""Pattern of each byte that the identifier of an area or category must not have."""

IDENTIFIERS = {
    "origin": "ORIGIN",
    "destination": "DESTINATION",
    "period": "TIME_PERIOD",
    "trips": "OBS_VALUE",
    "lower": "LOWER",
    "upper": "UPPER",
}
"""SDMX identifier of each column of the flows, in the order of SDMX-CSV. Those of breakdowns precede the period."""

_TYPES = {"string": "String", "integer": "Long"}
"""SDMX data type of each type of a column."""

ALL = "_T"
"""Identifier for all categories of a breakdown, which SDMX calls the total."""

_RESERVED_IDENTIFIERS = frozenset((*IDENTIFIERS.values(), "STRUCTURE", "STRUCTURE_ID", "ACTION"))
"""Columns of SDMX-CSV with a meaning of their own, which no breakdown may have as its identifier."""


def format_area_identifier(level: int, code: str) -> str:
    """Return the SDMX identifier of an area, such as ``L4_007`` for the code ``007`` of level 4; it is unique."""
    return f"L{level}_" + _escape_text(code)


def format_category_identifier(category: str) -> str:
    """Return the SDMX identifier of a category, such as ``C_car``. It is unique, and differs from ``ALL``."""
    return "C_" + _escape_text(category)


def _escape_text(text: str) -> str:
    """Return a text with each byte that an identifier cannot have replaced by ``$`` and two hexadecimal digits."""
    return _FORBIDDEN_BYTES.sub(lambda byte: b"$%02X" % byte[0][0], text.encode()).decode()


def index_dimension_identifiers(breakdowns: Sequence[Breakdown]) -> dict[str, str]:
    """Return the SDMX identifier of the dimension of each breakdown: its name in upper case.

    If such an identifier has another meaning in SDMX-CSV, the identifiers of all breakdowns begin with ``BY_``.
    """
    prefix = "BY_" if any(breakdown.name.upper() in _RESERVED_IDENTIFIERS for breakdown in breakdowns) else ""
    return {breakdown.name: f"{prefix}{breakdown.name.upper()}" for breakdown in breakdowns}


def format_time_period(period: Period) -> str:
    """Return a period as an SDMX time period: its text or, of a span of days, its first day and its duration."""
    return f"{period.first}/P{period.days}D" if period.length is None else period.text


def list_sdmx_files(tables: FlowTables, certificate: Certificate) -> list[BundleFile]:
    """Return the files for statistical offices: the flows as SDMX-CSV, and their structure as SDMX-JSON and SDMX-ML.

    There is no SDMX-ML in early bundle formats (``FlowTables.for_tools``).
    """
    key = ReleaseKey.parse(certificate["release"])
    series, dimensions = key.release.upper(), index_dimension_identifiers(tables.breakdowns)
    sides = {f"CL_{side}_{series}": geography for side, geography in _index_geographies_by_side(tables).items()}
    categories = {_name_category_list(breakdown, series): breakdown.categories for breakdown in tables.breakdowns}
    codes = render_template("rows/codes.sql", sides=sides, categories=categories)
    values = {
        "dataflow": _format_dataflow_reference(tables, key),
        "period": format_time_period(Period(key.period)),
        "dimensions": dimensions,
    }
    files = [
        BundleFile(
            "flows.sdmx.csv",
            f"The same {tables.nouns.cells} as SDMX-CSV 2.0, for statistical offices.",
            partial(write_sdmx_csv, tables, key),
            "sdmx",
            rows=render_template("rows/sdmx.sql", tables=tables, **values),
        ),
        BundleFile(
            "flows.sdmx.json",
            "Structure of that file as SDMX-JSON 2.0: code lists of the areas, concepts, data structure and dataflow.",
            partial(write_structure, "sdmx_structure.json", tables, certificate),
            "sdmx",
            rows=codes,
        ),
    ]
    if tables.for_tools:
        write = partial(write_structure, "sdmx_structure.xml", tables, certificate)
        files.append(BundleFile("flows.sdmx.xml", "The same structure as SDMX-ML 2.1.", write, "sdmx", rows=codes))
    return files


def write_sdmx_csv(tables: FlowTables, key: ReleaseKey, file: BinaryIO) -> None:
    """Write the flows at all pairs of levels as one SDMX-CSV 2.0 table, the totals first, then those by category."""
    identifiers = [_index_area_identifiers(geography) for geography in tables.sides.values()]
    for number, pair in enumerate(chain(tables.pairs, *tables.segments.values())):
        flows, rows = pair.columns, len(pair.flows)
        columns = {
            "STRUCTURE": repeat_text("dataflow", rows),
            "STRUCTURE_ID": repeat_text(_format_dataflow_reference(tables, key), rows),
            "ACTION": repeat_text("R", rows),
            "ORIGIN": _map_to_identifiers(flows["origin"], identifiers[0][pair.levels[0]]),
            "DESTINATION": _map_to_identifiers(flows["destination"], identifiers[1][pair.levels[1]]),
        }
        for name, dimension in index_dimension_identifiers(tables.breakdowns).items():
            columns[dimension] = repeat_text(ALL, rows)
            if pair.breakdown is not None and pair.breakdown.name == name:
                identifier_of = {
                    category: format_category_identifier(category) for category in pair.breakdown.categories
                }
                columns[dimension] = _map_to_identifiers(flows[name], identifier_of)
        columns["TIME_PERIOD"] = repeat_text(format_time_period(Period(key.period)), rows)
        columns |= {IDENTIFIERS[name]: flows[name] for name in ("trips", "lower", "upper") if name in flows}
        write_csv_rows(file, pa.table(columns), header=number == 0)


def _choose_version(tables: FlowTables) -> str:
    """Return the version of the structures in a bundle of the format of the tables."""
    return VERSION if tables.format >= _FIRST_WITH_VERSION else "1.0.0"


def _format_dataflow_reference(tables: FlowTables, key: ReleaseKey) -> str:
    """Return the reference to the dataflow of a series: agency, identifier and version."""
    return f"{AGENCY}:{key.release.upper()}({_choose_version(tables)})"


def _map_to_identifiers(codes: pa.ChunkedArray, identifiers: dict[str, str]) -> pa.Array:
    """Return the identifier of each code. Each distinct code is looked up once."""
    encoded = codes.combine_chunks().dictionary_encode()
    dictionary = pa.array([identifiers[code] for code in encoded.dictionary.to_pylist()], pa.large_string())
    return pa.DictionaryArray.from_arrays(encoded.indices, dictionary)


def write_structure(template: str, tables: FlowTables, certificate: Certificate, file: BinaryIO) -> None:
    """Write the structure of a series as a message of SDMX-JSON 2.0, or of SDMX-ML 2.1, from a template."""
    facts, *others = write_in_languages(
        certificate, lambda stated: make_structure_facts(FlowTables.from_release(tables.release, stated), stated)
    ).items()
    text = render_template(template, **reduce(_add_names, others, facts[1]))
    if template.endswith(".json"):
        text = json.dumps(json.loads(text), indent=1, ensure_ascii=False) + "\n"
    file.write(text.encode())


def _add_names(facts: Any, other: tuple[str, Any]) -> Any:
    """Return facts of a structure with the names and descriptions that the same facts have in another language.

    ``other`` is the language and the facts. Objects whose name or description differs then have ``names`` or
    ``descriptions``, by language.
    """
    language, translated = other
    if isinstance(facts, list):
        return [_add_names(fact, (language, same)) for fact, same in zip(facts, translated, strict=True)]
    if not isinstance(facts, dict):
        return facts
    named = {name: _add_names(fact, (language, translated[name])) for name, fact in facts.items()}
    for name in [name for name in ("name", "description") if facts.get(name) != translated.get(name)]:
        named[f"{name}s"] = facts.get(f"{name}s", {ENGLISH: facts[name]}) | {language: translated[name]}
    return named


def make_structure_facts(tables: FlowTables, certificate: Certificate) -> dict[str, object]:
    """Return the facts that the templates of messages on the structure of a series state, in SDMX-JSON and SDMX-ML.

    They are the code lists of the areas and of each breakdown, the concepts, and which concepts are dimensions,
    attributes and the measure of the flows. The message is dated with the time of the measurement.
    """
    key = ReleaseKey.parse(certificate["release"])
    series, title = key.release.upper(), tables.make_table_definition("flows").title
    lists = {
        f"CL_{side}_{series}": _make_area_list(side, geography)
        for side, geography in _index_geographies_by_side(tables).items()
    }
    list_names = dict(zip(tables.sides, [*lists] * 2, strict=False))  # one list may serve both sides
    for breakdown in tables.breakdowns:
        list_names[breakdown.name] = _name_category_list(breakdown, series)
        lists[list_names[breakdown.name]] = _make_category_list(breakdown)
    attributes = (LOWER.name, UPPER.name)
    concepts = _index_concepts(tables, list_names)
    return {
        "agency": AGENCY,
        "version": _choose_version(tables),
        "urn": partial(_format_urn, _choose_version(tables)),
        "id": certificate["release"].replace("/", "_"),
        "prepared": certificate["measured_at"],
        "lists": [{"id": name, **code_list} for name, code_list in lists.items()],
        "scheme": {"id": _CONCEPTS, "name": translate("Concepts of {cells}").format(cells=tables.nouns.cells)},
        "concepts": list(concepts.values()),
        "components": {
            "Dimension": [concept for name, concept in concepts.items() if name not in (TRIPS.name, *attributes)],
            "Attribute": [concepts[name] for name in attributes if tables.interval],
            "Measure": [concepts[TRIPS.name]],
        },
        "measure": IDENTIFIERS[TRIPS.name],
        "definition": {"id": f"DSD_{series}", "name": title},
        "flow": {"id": series, "name": f"{title}: {key.release}"},
    }


def _index_concepts(tables: FlowTables, list_names: Mapping[str, str]) -> dict[str, dict[str, str | None]]:
    """Return the concept of each column of the flows, by name of the column, in the order of SDMX-CSV.

    ``list_names`` has the identifier of the code list of each column that has one. The ends of intervals have concepts
    only if the flows have intervals.
    """
    table_columns = make_public_table("flows", tables.nouns, interval=True).columns
    columns = {column.name: column for column in (*table_columns, make_period_column(tables.nouns))}
    for breakdown in tables.breakdowns:
        table = make_pair_segments_table(breakdown, tables.nouns, interval=False)
        columns[breakdown.name] = table.find_column(breakdown.name)
    identifiers = {name: IDENTIFIERS[name] for name in tables.sides}
    identifiers |= index_dimension_identifiers(tables.breakdowns) | IDENTIFIERS
    absent = () if tables.interval else (LOWER.name, UPPER.name)
    return {
        name: {
            "id": identifier,
            "name": columns[name].title,
            "description": columns[name].description,
            "type": "ObservationalTimePeriod" if name == PERIOD.name else _TYPES[columns[name].type],
            "list": list_names.get(name),
        }
        for name, identifier in identifiers.items()
        if name not in absent
    }


def _format_urn(version: str, package_and_class: str, identifier: str, item: str = "") -> str:
    """Return the SDMX URN of an artefact of the structure or, with ``item``, of an item in it.

    ``package_and_class`` is its class in the SDMX information model, such as ``codelist.Codelist``.
    """
    urn = f"urn:sdmx:org.sdmx.infomodel.{package_and_class}={AGENCY}:{identifier}({version})"
    return f"{urn}.{item}" if item else urn


def _make_area_list(side: str, geography: Geography) -> dict[str, object]:
    """Return the code list of the areas of a side, without its identifier.

    ``side`` is ``ORIGIN`` or ``DESTINATION``, or ``AREA`` if both sides have the same areas.
    """
    is_named = geography.names is not None
    names = {
        "AREA": translate("Areas"),
        "ORIGIN": translate("Areas of the origin"),
        "DESTINATION": translate("Areas of the destination"),
    }
    described = translate("Each identifier is the number of the area's level and its code; the name is the code.")
    if is_named:
        described = translate(
            "Each identifier is the number of the area's level and its code; the name is that of the area, and the"
            " description is the code."
        )
    return {
        "name": names[side],
        "description": described,
        "codes": [
            {"id": identifier, "name": label} | ({"description": code} if is_named else {})
            for level, labels in zip(_index_area_identifiers(geography), geography.labels, strict=True)
            for (code, identifier), label in zip(level.items(), labels, strict=True)
        ],
    }


def _make_category_list(breakdown: Breakdown) -> dict[str, object]:
    """Return the code list of the categories of a breakdown, without its identifier."""
    codes = [{"id": format_category_identifier(category), "name": category} for category in breakdown.categories]
    described = translate("The name of each identifier is the category; {all} stands for all categories.")
    return {
        "name": translate("Categories of {breakdown}").format(breakdown=breakdown.name),
        "description": described.format(all=ALL),
        "codes": [{"id": ALL, "name": translate("All categories")}, *codes],
    }


def _index_geographies_by_side(tables: FlowTables) -> dict[str, Geography]:
    """Return the geography of each code list of areas: ``ORIGIN`` and ``DESTINATION``, or ``AREA`` for both sides."""
    if len(tables.geographies) == 1:
        return {"AREA": tables.tree.origin}
    return {side.upper(): geography for side, geography in tables.sides.items()}


def _name_category_list(breakdown: Breakdown, series: str) -> str:
    """Return the identifier of the code list of a breakdown's categories."""
    return f"CL_BREAKDOWN_{breakdown.name.upper()}_{series}"


def _index_area_identifiers(geography: Geography) -> list[dict[str, str]]:
    """Return, for each level of a geography, a mapping from the code of each area to its SDMX identifier."""
    return [
        {code: format_area_identifier(level, code) for code in codes} for level, codes in enumerate(geography.codes)
    ]
