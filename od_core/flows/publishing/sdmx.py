"""Write flows for statistical offices: SDMX-CSV 2.0, and its structure as an SDMX-JSON 2.0 message.

An area code can be any text, but an SDMX identifier cannot, and readers take text that looks like a number for one. So
the identifier of an area is the number of its level and its code, such as ``L4_007``. Every byte other than letters,
digits, ``-`` and ``_`` becomes ``$`` and two hexadecimal digits. The code itself is the name of the identifier in the
code list.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any, BinaryIO

from od_core.files.csv_text import write_rows
from od_core.flows.publishing.flow_tables import FlowTables
from od_core.geography.flow_tree import FlowTree
from od_core.geography.geography import Geography
from od_core.ledger.release_key import ReleaseKey
from od_core.periods import Period
from od_core.publication.columns import FLOWS_WITH_INTERVALS, LOWER, PERIOD, UPPER

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
"""SDMX name of each column, in the order of SDMX."""


def area_identifier(level: int, code: str) -> str:
    """Return the identifier of an area; different areas have different identifiers."""
    return f"L{level}_" + _OTHER.sub(lambda byte: b"$%02X" % byte[0][0], code.encode()).decode()


def dataflow_identifier(key: ReleaseKey) -> str:
    """Return the identifier of the dataflow of a series."""
    return key.release.upper()


def time_period(period: Period) -> str:
    """Return a period as SDMX writes it: unchanged, except that a span becomes its first day and a duration."""
    return f"{period.first}/P{period.days}D" if period.length is None else period.text


def write_sdmx_csv(tables: FlowTables, key: ReleaseKey, file: BinaryIO) -> None:
    """Write the flows at every pair of levels as SDMX-CSV 2.0; the identifier of an area includes its level."""
    identifiers = [_identifiers(geography) for geography in (tables.tree.origin, tables.tree.destination)]
    for number, pair in enumerate(tables.pairs):
        frame = pair.flows.rename(columns=IDENTIFIERS)
        frame["ORIGIN"] = pair.flows["origin"].map(identifiers[0][pair.origin_level])
        frame["DESTINATION"] = pair.flows["destination"].map(identifiers[1][pair.destination_level])
        frame.insert(2, "TIME_PERIOD", time_period(Period(key.period)))
        frame.insert(0, "STRUCTURE", "dataflow")
        frame.insert(1, "STRUCTURE_ID", f"{AGENCY}:{dataflow_identifier(key)}({VERSION})")
        frame.insert(2, "ACTION", "R")
        write_rows(file, frame, header=number == 0)


def write_structure(tables: FlowTables, certificate: dict[str, Any], file: BinaryIO) -> None:
    """Write code lists of the areas, concepts, data structure and dataflow, dated with the time of measurement."""
    from pysdmx.io import write_sdmx  # importing it takes a tenth of a second
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


def structure(tables: FlowTables, key: ReleaseKey) -> list[Any]:
    """Return code lists, concepts, data structure and dataflow of a series, as objects of ``pysdmx``."""
    from pysdmx.model import Component, Components, ConceptScheme, Dataflow, DataStructureDefinition, Role

    series, concepts = dataflow_identifier(key), _concepts()
    lists = _code_lists(tables.tree, series)
    coded = {"origin": lists[0], "destination": lists[-1]}
    roles = {"trips": Role.MEASURE, "lower": Role.ATTRIBUTE, "upper": Role.ATTRIBUTE}
    components = [
        Component(
            IDENTIFIERS[name],
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
        **_maintained("datastructure.DataStructure", f"DSD_{series}"),
        name=tables.table.title,
        components=Components(components),
    )
    flow = Dataflow(
        **_maintained("datastructure.Dataflow", series),
        name=f"{tables.table.title}: {key.release}",
        structure=definition,
    )
    scheme = ConceptScheme(
        **_maintained("conceptscheme.ConceptScheme", _CONCEPTS),
        name="Concepts of flows",
        items=list(concepts.values()),
    )
    return [*lists, scheme, definition, flow]


def _maintained(place: str, identifier: str) -> dict[str, Any]:
    """Return the arguments that identify an object of the structure."""
    urn = f"urn:sdmx:org.sdmx.infomodel.{place}={AGENCY}:{identifier}({VERSION})"
    return {"id": identifier, "agency": AGENCY, "version": VERSION, "urn": urn}


def _code_lists(tree: FlowTree, series: str) -> list[Any]:
    """Return the code lists of origin and destination areas, or one list if they are the same."""
    from pysdmx.model import Code, Codelist

    sides = {"ORIGIN": tree.origin, "DESTINATION": tree.destination}
    if tree.origin.digest == tree.destination.digest:
        sides = {"AREA": tree.origin}
    return [
        Codelist(
            **_maintained("codelist.Codelist", f"CL_{side}_{series}"),
            name="Areas" if side == "AREA" else f"Areas of the {side.lower()}",
            description="Each identifier is the number of the area's level and its code; the name is the code.",
            items=[
                Code(identifier, name=code) for level in _identifiers(geography) for code, identifier in level.items()
            ],
        )
        for side, geography in sides.items()
    ]


def _concepts() -> dict[str, Any]:
    """Return the concept of each column, including those of intervals."""
    from pysdmx.model import Concept, DataType

    scheme = f"urn:sdmx:org.sdmx.infomodel.conceptscheme.Concept={AGENCY}:{_CONCEPTS}({VERSION})"
    columns = {column.name: column for column in (*FLOWS_WITH_INTERVALS.columns, PERIOD)}
    types = {"string": DataType.STRING, "integer": DataType.LONG}
    return {
        name: Concept(
            identifier,
            name=columns[name].title,
            description=columns[name].description,
            dtype=DataType.PERIOD if name == PERIOD.name else types[columns[name].type],
            urn=f"{scheme}.{identifier}",
        )
        for name, identifier in IDENTIFIERS.items()
    }


def _identifiers(geography: Geography) -> list[dict[str, str]]:
    """Return the identifier of every area, by its code, level by level."""
    return [{code: area_identifier(level, code) for code in codes} for level, codes in enumerate(geography.codes)]
