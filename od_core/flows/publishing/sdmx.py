"""Write flows for statistical offices: the flows as SDMX-CSV 2.0, and their structure as SDMX-JSON 2.0 and SDMX-ML 2.1.

An area code can be any text, but an SDMX identifier is restricted to certain characters. In addition, some readers
convert text that looks like a number to a number. So the identifier of an area consists of the number of its level and
its code, such as ``L4_007``. In the code, every byte except letters, digits, ``-`` and ``_`` is replaced by ``$`` and
two hexadecimal digits. In the code list, the name of each identifier is the unchanged code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Any, BinaryIO

import pyarrow as pa

from od_core.files.table_writers import write_rows
from od_core.flows.publishing.flow_tables import FlowTables, repeated
from od_core.geography.geography import Geography
from od_core.ledger.release_key import ReleaseKey
from od_core.periods import Period
from od_core.publication.certificate import Certificate
from od_core.publication.columns import FLOWS_WITH_INTERVALS, LOWER, PERIOD, UPPER, pair_segments_table
from od_core.publication.tables import BundleFile
from od_core.publication.templates import filled
from od_core.records.segments import Breakdown
from od_core.registry import require

AGENCY = "OD_RELEASE"
VERSION = "1.0.0"
_CONCEPTS = "CS_FLOWS"

_OTHER = re.compile(rb"[^A-Za-z0-9_-]")
IDENTIFIERS = {
    "origin": "ORIGIN",
    "destination": "DESTINATION",
    "period": "TIME_PERIOD",
    "trips": "OBS_VALUE",
    "lower": "LOWER",
    "upper": "UPPER",
}
"""SDMX identifier of each column of the flows, in the order of the columns in SDMX-CSV. The dimensions of breakdowns
come before the period."""

_SCHEMAS = "http://www.sdmx.org/resources/sdmxml/schemas/v2_1/"
_ROLES = ("Dimension", "Attribute", "Measure")
"""Roles of components, in the order in which the schema of SDMX-ML lists them."""

ALL = "_T"
"""Identifier for all categories of a breakdown, which SDMX calls the total."""

_TAKEN = frozenset((*IDENTIFIERS.values(), "STRUCTURE", "STRUCTURE_ID", "ACTION"))


def area_identifier(level: int, code: str) -> str:
    """Return the SDMX identifier of an area: the number of its level and its code. No two areas have the same."""
    return f"L{level}_" + _escaped(code)


def category_identifier(category: str) -> str:
    """Return the SDMX identifier of a category. Different categories have different ones, none of which is ``ALL``."""
    return "C_" + _escaped(category)


def _escaped(text: str) -> str:
    return _OTHER.sub(lambda byte: b"$%02X" % byte[0][0], text.encode()).decode()


def dimension_identifiers(breakdowns: Sequence[Breakdown]) -> dict[str, str]:
    """Return the SDMX identifier of the dimension of each breakdown: its name in upper case.

    If such an identifier has another meaning in SDMX-CSV, the identifiers of all breakdowns begin with ``BY_``.
    """
    prefix = "BY_" if any(one.name.upper() in _TAKEN for one in breakdowns) else ""
    return {one.name: f"{prefix}{one.name.upper()}" for one in breakdowns}


def time_period(period: Period) -> str:
    """Return a period as an SDMX time period.

    The text of the period is unchanged, except for a span of days, which becomes its first day and its duration.
    """
    return f"{period.first}/P{period.days}D" if period.length is None else period.text


def sdmx_files(tables: FlowTables, certificate: Certificate) -> list[BundleFile]:
    """Return the files for statistical offices: the flows, and their structure."""
    key = ReleaseKey.parse(certificate["release"])
    series, dimensions = key.release.upper(), dimension_identifiers(tables.breakdowns)
    sides = {f"CL_{side}_{series}": geography for side, geography in _sides(tables).items()}
    categories = {_category_list_name(one, series): one.categories for one in tables.breakdowns}
    codes = filled("rows/codes.sql", sides=sides, categories=categories)
    given = {"dataflow": _dataflow(key), "period": time_period(Period(key.period)), "dimensions": dimensions}
    files = [
        BundleFile(
            "flows.sdmx.csv",
            "The same flows as SDMX-CSV 2.0, for statistical offices.",
            partial(write_sdmx_csv, tables, key),
            rows=filled("rows/sdmx.sql", tables=tables, **given),
        ),
        BundleFile(
            "flows.sdmx.json",
            "Structure of that file as SDMX-JSON 2.0: code lists of the areas, concepts, data structure and dataflow.",
            partial(write_structure, tables, certificate),
            rows=codes,
        ),
    ]
    if tables.for_tools:
        write = partial(write_structure_in_xml, tables, certificate)
        files.append(BundleFile("flows.sdmx.xml", "The same structure as SDMX-ML 2.1.", write, rows=codes))
    return files


def write_sdmx_csv(tables: FlowTables, key: ReleaseKey, file: BinaryIO) -> None:
    """Write the flows at all pairs of levels as one SDMX-CSV 2.0 table, the totals first, then those by category."""
    identifiers = [_identifiers(geography) for geography in tables.sides.values()]
    for number, pair in enumerate(chain(tables.pairs, *tables.segments.values())):
        flows, rows = pair.columns, len(pair.flows)
        columns = {
            "STRUCTURE": repeated("dataflow", rows),
            "STRUCTURE_ID": repeated(_dataflow(key), rows),
            "ACTION": repeated("R", rows),
            "ORIGIN": _identified(flows["origin"], identifiers[0][pair.levels[0]]),
            "DESTINATION": _identified(flows["destination"], identifiers[1][pair.levels[1]]),
        }
        for name, dimension in dimension_identifiers(tables.breakdowns).items():
            columns[dimension] = repeated(ALL, rows)
            if pair.breakdown is not None and pair.breakdown.name == name:
                named = {category: category_identifier(category) for category in pair.breakdown.categories}
                columns[dimension] = _identified(flows[name], named)
        columns["TIME_PERIOD"] = repeated(time_period(Period(key.period)), rows)
        columns |= {IDENTIFIERS[name]: flows[name] for name in ("trips", "lower", "upper") if name in flows}
        write_rows(file, pa.table(columns), header=number == 0)


def _dataflow(key: ReleaseKey) -> str:
    return f"{AGENCY}:{key.release.upper()}({VERSION})"


def _identified(codes: pa.ChunkedArray, identifiers: dict[str, str]) -> pa.Array:
    """Return the identifier of each code. Each distinct code is looked up once."""
    encoded = codes.combine_chunks().dictionary_encode()
    named = pa.array([identifiers[code] for code in encoded.dictionary.to_pylist()], pa.large_string())
    return named.take(encoded.indices)


def write_structure(tables: FlowTables, certificate: Certificate, file: BinaryIO) -> None:
    """Write the structure of a series as an SDMX-JSON 2.0 message, dated with the time of the measurement."""
    require("bundle")
    from pysdmx.io import write_sdmx  # the import takes a tenth of a second
    from pysdmx.io.format import Format
    from pysdmx.model import Agency
    from pysdmx.model.message import Header

    header = Header(
        id=certificate["release"].replace("/", "_"),
        prepared=datetime.fromisoformat(certificate["measured_at"]),
        sender=Agency(AGENCY),
    )
    key = ReleaseKey.parse(certificate["release"])
    message = json.loads(str(write_sdmx(structure(tables, key), Format.STRUCTURE_SDMX_JSON_2_0_0, header=header)))
    for definition in message["data"]["dataStructures"]:  # pysdmx writes empty groups, which the standard forbids
        definition["dataStructureComponents"].pop("groups", None)
    file.write((json.dumps(message, indent=1, ensure_ascii=False) + "\n").encode())


def write_structure_in_xml(tables: FlowTables, certificate: Certificate, file: BinaryIO) -> None:
    """Write the structure of a series as an SDMX-ML 2.1 message, which programs without SDMX 3.0 read, too.

    ``pysdmx`` writes SDMX-ML only where further libraries are installed, which parse XML.
    """
    require("bundle")
    *lists, scheme, definition, flow = structure(tables, ReleaseKey.parse(certificate["release"]))
    text = filled(
        "sdmx_structure.xml",
        agency=AGENCY,
        version=VERSION,
        schemas=_SCHEMAS,
        header={"id": certificate["release"].replace("/", "_"), "prepared": certificate["measured_at"]},
        flow=flow,
        lists=lists,
        scheme=scheme,
        definition=definition,
        by_role={role: [one for one in definition.components if one.role.name == role.upper()] for role in _ROLES},
        measure=IDENTIFIERS["trips"],
    )
    file.write(text.encode())


def structure(tables: FlowTables, key: ReleaseKey) -> list[Any]:
    """Return the SDMX structure of a series as ``pysdmx`` objects.

    Returns:
        In this order: one or two code lists of areas, one for each breakdown, the concept scheme, the data structure
        definition, the dataflow.
    """
    from pysdmx.model import Component, Components, ConceptScheme, Dataflow, DataStructureDefinition, Role

    series, concepts, title = key.release.upper(), _concepts(tables.breakdowns), tables.defined("flows").title
    areas = [_area_list(f"CL_{side}_{series}", side, geography) for side, geography in _sides(tables).items()]
    coded = {"origin": areas[0], "destination": areas[-1]}
    for one in tables.breakdowns:
        said = f"The name of each identifier is the category; {ALL} stands for all categories."
        codes = [(category_identifier(category), category, None) for category in one.categories]
        listed = [(ALL, "All categories", None), *codes]
        coded[one.name] = _code_list(_category_list_name(one, series), f"Categories of {one.name}", said, listed)
    roles = {"trips": Role.MEASURE, "lower": Role.ATTRIBUTE, "upper": Role.ATTRIBUTE}
    components = [
        Component(
            concept.id,
            required=roles.get(name) != Role.ATTRIBUTE,
            role=roles.get(name, Role.DIMENSION),
            concept=concept,
            local_dtype=concept.dtype,
            local_codes=coded.get(name),
            local_enum_ref=coded[name].urn if name in coded else None,
            attachment_level="O" if roles.get(name) == Role.ATTRIBUTE else None,
        )
        for name, concept in concepts.items()
        if tables.interval or name not in (LOWER.name, UPPER.name)
    ]
    definition = DataStructureDefinition(
        **_maintained("datastructure.DataStructure", f"DSD_{series}"), name=title, components=Components(components)
    )
    flow = Dataflow(
        **_maintained("datastructure.Dataflow", series), name=f"{title}: {key.release}", structure=definition
    )
    scheme = ConceptScheme(
        **_maintained("conceptscheme.ConceptScheme", _CONCEPTS),
        name="Concepts of flows",
        items=list(concepts.values()),
    )
    return [*areas, *(coded[one.name] for one in tables.breakdowns), scheme, definition, flow]


def _maintained(place: str, identifier: str) -> dict[str, Any]:
    """Return the arguments that identify an object; ``place`` is its package and class in the information model."""
    urn = f"urn:sdmx:org.sdmx.infomodel.{place}={AGENCY}:{identifier}({VERSION})"
    return {"id": identifier, "agency": AGENCY, "version": VERSION, "urn": urn}


def _area_list(identifier: str, side: str, geography: Geography) -> Any:
    """Return the code list of areas; ``side`` is ``AREA`` for those of both sides."""
    named = "the code" if geography.names is None else "that of the area, and the description is the code"
    codes = [
        (one, label, None if geography.names is None else code)
        for level, labels in zip(_identifiers(geography), geography.labels, strict=True)
        for (code, one), label in zip(level.items(), labels, strict=True)
    ]
    said = f"Each identifier is the number of the area's level and its code; the name is {named}."
    return _code_list(identifier, "Areas" if side == "AREA" else f"Areas of the {side.lower()}", said, codes)


def _code_list(identifier: str, name: str, description: str, codes: Sequence[tuple[str, str, str | None]]) -> Any:
    """Return a code list; each code has an identifier, a name and perhaps a description."""
    from pysdmx.model import Code, Codelist

    items = [Code(one, name=label, description=said) for one, label, said in codes]
    return Codelist(**_maintained("codelist.Codelist", identifier), name=name, description=description, items=items)


def _sides(tables: FlowTables) -> dict[str, Geography]:
    """Return the geography of each code list of areas; one list if both sides have the same areas."""
    if len(tables.geographies) == 1:
        return {"AREA": tables.tree.origin}
    return {side.upper(): geography for side, geography in tables.sides.items()}


def _category_list_name(breakdown: Breakdown, series: str) -> str:
    return f"CL_BREAKDOWN_{breakdown.name.upper()}_{series}"


def _concepts(breakdowns: Sequence[Breakdown]) -> dict[str, Any]:
    """Return a mapping from the name of each column, intervals included, to its ``pysdmx`` concept."""
    from pysdmx.model import Concept, DataType

    scheme = f"urn:sdmx:org.sdmx.infomodel.conceptscheme.Concept={AGENCY}:{_CONCEPTS}({VERSION})"
    columns = {column.name: column for column in (*FLOWS_WITH_INTERVALS.columns, PERIOD)}
    for one in breakdowns:
        columns |= {one.name: pair_segments_table(one, interval=False).column(one.name)}
    named = {name: IDENTIFIERS[name] for name in ("origin", "destination")}
    named |= {**dimension_identifiers(breakdowns), **IDENTIFIERS}
    types = {"string": DataType.STRING, "integer": DataType.LONG}
    return {
        name: Concept(
            identifier,
            name=columns[name].title,
            description=columns[name].description,
            dtype=DataType.PERIOD if name == PERIOD.name else types[columns[name].type],
            urn=f"{scheme}.{identifier}",
        )
        for name, identifier in named.items()
    }


def _identifiers(geography: Geography) -> list[dict[str, str]]:
    """Return, for each level of a geography, a mapping from the code of each area to its SDMX identifier."""
    return [{code: area_identifier(level, code) for code in codes} for level, codes in enumerate(geography.codes)]
