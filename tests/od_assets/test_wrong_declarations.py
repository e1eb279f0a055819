"""Every wrong declaration is refused in one line: its folder, its line or field, the cause and the next step."""

import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from od_assets.components import OdCounts, OdGroupSizes, OdRelease, OdStops
from od_assets.components.project import refuse_unloadable
from od_assets.runs.period_status import choose_period_to_plan
from od_assets.series.reading import read_declared_series
from od_assets.series.section import _find_section
from od_assets.series.series import DomainSection
from od_core.errors import OdError
from tests.od_assets.conftest import Project, projects_in

DEFS = """\
type: od_assets.components.OdRelease
attributes:
  name: trips
  owners: ["team:statistics"]
  trips:
    files: "{period}.csv"
    columns: {date: date}
  geography: {file: zones.csv, levels: [region, zone]}
  periods: {first: 2001-01, last: 2001-02}
  domain: trips
  privacy: {epsilon: "1", delta: "1e-8"}
"""

DOMAIN = """\
name: trips
unit: trip
cap: {rho: "0.1", reason: "a test"}
"""


@dataclass(frozen=True)
class Wrong:
    """A text of a file that is replaced by another, the code, and what the line names: the place and the cause."""

    old: str
    new: str | bytes
    place: str
    cause: str
    code: str = "OD-CONFIG"
    file: str = "trips/defs.yaml"

    def __str__(self) -> str:
        return f"{self.cause} {self.new!r}"[:60]


def defs(old: str, new: str | bytes, place: str, cause: str, code: str = "OD-CONFIG") -> Wrong:
    """A fault of the release's declaration; its place is named after the folder."""
    return Wrong(old, new, f"trips/defs.yaml{place}", cause, code)


def domain(old: str, new: str | bytes, place: str, cause: str, code: str = "OD-CONFIG") -> Wrong:
    return Wrong(old, new, f"trips.yaml{place}", cause, code, "domains/trips.yaml")


LINE = " is not valid YAML (line {})"

WHOLE = "\0"
"""The whole text of a file."""

TYPE = "type: od_assets.components.OdRelease\n"
NAME, TRIPS = "  name: trips\n", '    files: "{period}.csv"\n'
PERIODS = "  periods: {first: 2001-01, last: 2001-02}\n"
PRIVACY = '  privacy: {epsilon: "1", delta: "1e-8"}\n'
ZONES = "  geography: {file: zones.csv, levels: [region, zone]}\n"
SEGMENTS = "  segments: {mode: {categories: [car, bus]}}\n"
CAP = 'cap: {rho: "0.1", reason: "a test"}\n'

MORE = "unit: user_year\n"
YEAR = f'{MORE}column: person\nbounds: {{max_trips: 2, max_trips_year: 5}}\nid_pattern: "[0-9]+"\n'

GROUP_SIZES = DEFS.replace("OdRelease", "OdGroupSizes").replace(PRIVACY, "  privacy: {epsilon: 1}\n")

COUNTS = DEFS.replace("OdRelease", "OdCounts").replace("{date: date}", "{area: origin, date: date}")

WRONG = [
    # The text.
    defs(WHOLE, "", "", "is not a YAML file with a component's attributes"),
    defs(WHOLE, "attributes: {name: é}".encode("latin-1"), "", "is not UTF-8 text"),
    defs(NAME, "\tname: trips\n", LINE.format(3), "cannot start any token"),
    defs(NAME, f"{NAME}{NAME}", LINE.format(3), "'name' is written twice"),
    defs(PRIVACY, PRIVACY.replace("}", ", epsilon: 2}"), LINE.format(11), "'epsilon' is written twice"),
    defs(NAME, '  name: "trips\n', "", "is not valid YAML"),
    defs(NAME, "  name: *none\n", LINE.format(3), "undefined alias"),
    defs(NAME, "  name: !!python/object:os.system x\n", LINE.format(3), "could not determine a constructor"),
    defs(NAME, f"{NAME}---\n", "", "with a component's attributes"),
    defs(TYPE, "type: od_assets.components.OdReleas\n", ": type", "did you mean 'OdRelease'?"),
    defs(TYPE, "type: [od_assets]\n", ": type", "must name a component"),
    # Missing and unknown fields, also of sections that are alternatives.
    defs(NAME, "", ": name", "Field required"),
    defs(PERIODS, "  periods: {last: 2001-02}\n", ": periods.first", "Field required"),
    defs(PRIVACY, "  privacy: {epsilon: 1}\n", "", "delta is 0, but Gaussian noise needs", "OD-BUDGET-DELTA"),
    defs(PRIVACY, f"{PRIVACY}  mechansm: inftda\n", ": mechansm", "did you mean 'mechanism'?"),
    defs(PRIVACY, f"{PRIVACY}  destination_geography: {{levels: [zone]}}\n", ": destination_geography", "one of file"),
    defs("{date: date}", "{dat: date}", ": trips.columns.dat", "did you mean 'date'?"),
    defs(ZONES, ZONES.replace("levels", "level"), ": geography.level", "did you mean 'levels'?"),
    defs(ZONES, ZONES.replace("}", ", parents: {parnet: x}}"), ": geography.parents.parnet", "did you mean 'parent'?"),
    # Wrong types.
    defs(PRIVACY, "  privacy: {epsilon: [1], delta: 1}\n", ": privacy.epsilon (line ", "Input should be"),
    defs(PRIVACY, "  privacy: {epsilon: true, delta: 1}\n", ": privacy.epsilon", "true and false"),
    defs(WHOLE, GROUP_SIZES + "  top_code: {share: 1}\n", ": top_code.most", "Field required"),
    defs(WHOLE, GROUP_SIZES + "  top_code: {mst: 1}\n", ": top_code.mst", "did you mean 'most'?"),
    defs(PRIVACY, f"{PRIVACY}  intervals: maybe\n", ": intervals", "valid boolean"),
    defs(TRIPS, '    files: "{{ env.NOT_SET }}"\n', ": trips.files", "variable NOT_SET is not set"),
    *(
        defs(ZONES, f"  {side}: {{file: zones.csv, levels: [region, zone], {stated}}}\n{also}", place, cause, code)
        for side, also in (("geography", ""), ("destination_geography", ZONES))
        for stated, place, cause, code in (
            ("prefix: {region: 1}", f": {side}.prefix", "did you mean 'prefixes'?", "OD-CONFIG"),
            ("prefixes: {region: true}", f": {side}.prefixes", "true and false are not valid", "OD-CONFIG"),
            ("version: 2018", f": {side}.version", "valid string", "OD-CONFIG"),
            ("prefixes: {zone: 2}", "", "'zone' has a prefix", "OD-GEOGRAPHY-LEVELS"),
            ("joined: {region: [a]}", "", "'region'", "OD-GEOGRAPHY-LEVELS"),
            ('unknown: "01", unknown_area: "?"', "", "not both", "OD-GEOGRAPHY-LEVELS"),
            ("version: =1", "", "'version'", "OD-GEOGRAPHY-FORMULA"),
        )
    ),
    # Names of what does not exist.
    defs(NAME, "  name: flights\n", ": name", "differs from the name of its folder"),
    defs("  domain: trips\n", "  domain: trip\n", "", "no privacy domain 'trip' (did you mean 'trips'?)"),
    defs(PRIVACY, f"{PRIVACY}  mechanism: inftd\n", "", "did you mean 'inftda'?", "OD-MECHANISM-UNKNOWN"),
    defs(PRIVACY, f"{PRIVACY}  mechanism: vanilla_gauss\n", "", "only the leaves", "OD-MECHANISM-UNPUBLISHED"),
    defs(PRIVACY, f"{PRIVACY}  mechanism_options: {{ordr: x}}\n", "", "did you mean 'order'?", "OD-MECHANISM-OPTIONS"),
    defs(PRIVACY, f"{PRIVACY}  noise: loud\n", "", "no noise backend 'loud'", "OD-NOISE-UNKNOWN"),
    defs("{date: date}", "{date: date, weight: w}", "", "need both columns", "OD-TRIPS-WEIGHTS"),
    defs(NAME, "  name: Trips\n", "", "Trips", "OD-RELEASE-KEY"),
    defs(PRIVACY, f"{PRIVACY}  engine: sparc\n", "", "did you mean 'spark'?", "OD-ENGINE"),
    defs(TRIPS, f"{TRIPS}    reader: tcl\n", "", "did you mean 'tlc'?", "OD-READER-UNKNOWN"),
    defs(TRIPS, '    files: "{year}.csv"\n', "", "needs {period}", "OD-TRIPS-FILES"),
    # Periods and schedules.
    defs(PERIODS, "  periods: {first: 2001-01-14}\n", ": periods.first", "write it in quotes"),
    defs(PERIODS, "  periods: {first: 2001-13}\n", ": periods.first", "is not a period", "OD-PERIOD-TEXT"),
    defs(PERIODS, "  periods: {first: 2001-02, last: 2001-01}\n", "", "before the first", "OD-PERIOD"),
    defs(PRIVACY, f"{PRIVACY}  schedule: 0 6 2 *\n", ": schedule", "is no cron line"),
    defs(PRIVACY, f"{PRIVACY}  owners: [me]\n".replace("owners", "noise: opendp\n  owners"), "", "'owners' is written"),
    defs('["team:statistics"]', "[me]", "", "Invalid owner 'me'"),
    defs(PRIVACY, f"{PRIVACY}  arrivals: {{settled_seconds: -1}}\n", "", "at least 0", "OD-ARRIVALS"),
    # Budgets.
    defs(PRIVACY, "  privacy: {epsilon: 0, delta: 1e-8}\n", "", "between 1e-30 and 1e9", "OD-BUDGET-EPSILON"),
    defs(PRIVACY, PRIVACY.replace("}", ", shares: {minimise: [zone x planet]}}"), "", "planet", "OD-QUANTITY-UNKNOWN"),
    Wrong(PRIVACY, "  privacy: {epsilon: 9, delta: 1e-8}\n", "release of trips", "exceeds the cap", "OD-LEDGER-CAP"),
    # Segments: lists of categories, their share, and where categories are read from.
    *(
        defs(PRIVACY, f"{PRIVACY}  segments: {{{stated}}}\n", place, cause, code)
        for stated, place, cause, code in (
            ("mode: [car, bus]", ": segments.mode", "Input should be", "OD-CONFIG"),
            ("mode: {categories: [1, 2]}", ": segments.mode.categories.0", "valid string", "OD-CONFIG"),
            ("mode: {categores: [a, b]}", ": segments.mode.categores", "did you mean 'categories'?", "OD-CONFIG"),
            ("mode: {categories: [car, CAR]}", "", "lists 'car' and 'CAR'", "OD-SEGMENT-LIST"),
            ("day: {derive: day_type, categories: [weekday, sundy]}", "", "list 'sundy', which", "OD-SEGMENT-SOURCE"),
            ("h: {derive: hour, lookup: {7: am, 25: pm}}", ": segments.h.lookup", "write it in quotes", "OD-CONFIG"),
            ("h: {derive: number, breaks: ['2,5']}", ": segments.h.breaks.0", "should be a number", "OD-CONFIG"),
        )
    ),
    *(
        defs(PRIVACY, f"{PRIVACY}{SEGMENTS}{stated}\n", "", cause, code)
        for stated, cause, code in (
            ("  segment_share: 0", "segment_share is 0; it must be above 0", "OD-SEGMENT-SHARE"),
            ("  mechanism: inftda", "only mechanism 'inftda_refined' can release segments", "OD-SEGMENT-MECHANISM"),
            ("  mechanism_options: {u: 2}", "mechanism_options.u is not declared", "OD-MECHANISM-OPTION"),
        )
    ),
    defs(
        PRIVACY, f"{PRIVACY}  segment_share: 1/2\n", "", "segment_share is given without segments", "OD-SEGMENT-SHARE"
    ),
    # Area totals, and what counts by one hierarchy do not have.
    defs(PRIVACY, f"{PRIVACY}  area_totals: 1/10\n", ": area_totals", "Input should be"),
    *(
        defs(WHOLE, f"{COUNTS}  {field}: origin\n", f": {field} (line ", "")
        for field in ("destination_geography", "tree", "area_totals")
    ),
    # Levels.
    Wrong("[region, zone]", "[zone, region]", "zones.csv", "the wrong way round?", "OD-GEOGRAPHY-DUPLICATE"),
    Wrong("[region, zone]", "[regoin, zone]", "zones.csv", "did you mean 'region'?", "OD-GEOGRAPHY-COLUMN"),
    Wrong("zones.csv", "none.csv", "none.csv", "there is no file", "OD-FILE-MISSING"),
    # The privacy domain.
    domain(WHOLE, "", "", "valid dictionary"),
    domain("unit: trip\n", "\tunit: trip\n", LINE.format(2), "not valid YAML"),
    domain("unit: trip\n", "unit: trip\nunit: user\n", LINE.format(2), "'unit' is written twice"),
    domain(WHOLE, f"{DOMAIN}---\n{DOMAIN}", "", "more than one YAML document"),
    domain("name: trips\n", "name: flights\n", ": name", "differs from the name of its file"),
    domain("unit: trip\n", "neighbors: bounded\n", ": neighbors", "did you mean 'neighbours'?"),
    domain("unit: trip\n", "unit: household\n", "", "no privacy unit 'household'", "OD-UNIT-UNKNOWN"),
    domain("unit: trip\n", "unit: user\n", "", "needs the column", "OD-UNIT-OPTIONS"),
    domain("unit: trip\n", "unit: trip\ncolumn: person\n", "", "does not take a user column", "OD-UNIT-OPTIONS"),
    defs(PRIVACY, f"{PRIVACY}  bounds: {{max_trips_pair: 1}}\n", "", "does not take max_trips_pair", "OD-UNIT-OPTIONS"),
    domain("unit: trip\n", "time_zone: max_trips\n", "", "'max_trips'", "OD-TIME-ZONE"),
    domain(CAP, "cap: {rho: 1}\n", ": cap.reason", "Field required"),
    domain(CAP, "", ": cap", "Field required"),
    domain(CAP, "cap: {rho: -1, reason: a test}\n", "", "1e-30 to 1e9", "OD-DOMAIN-CAP"),
    # Users whose trips of a year are bounded.
    *(
        domain("unit: trip\n", YEAR.replace(old, new), "", cause, code)
        for old, new, cause, code in (
            ("max_trips_year: 5", "max_trips_year: 1", "of at least max_trips, 2", "OD-UNIT-MAX-TRIPS-YEAR"),
            ('"[0-9]+"', '"[0-9"', "needs id_pattern, a regular expression", "OD-UNIT-ID-PATTERN"),
            (MORE, f"{MORE}year: soon\n", "'soon' is not a period", "OD-PERIOD-TEXT"),
            (MORE, f"{MORE}year: 2001-06\n", "the year 2001-06 does not consist of several", "OD-DOMAIN-YEAR"),
        )
    ),
    domain("unit: trip\n", YEAR.replace("s_year", "_year"), ": bounds.max_trip_year", "did you mean 'max_trips_year'?"),
    domain("unit: trip\n", "year: 2001-09--2002-08\n", "", "unit 'trip' has no year", "OD-DOMAIN-YEAR"),
    domain(
        "unit: trip\n",
        "unit: user\ncolumn: person\nbounds: {max_trips: 2}\n",
        "",
        "declares bounds.max_trips",
        "OD-UNIT-MAX-TRIPS",
    ),
    domain(
        "unit: trip\n",
        "unit: user\ncolumn: person\nbounds: {max_trips_pair: 2}\n",
        "",
        "_pair, which",
        "OD-UNIT-MAX-TRIPS",
    ),
]


@pytest.fixture(scope="module")
def declared() -> Iterator[Project]:
    """A project with a declaration and its privacy domain."""
    with TemporaryDirectory() as name, projects_in(Path(name)) as make:
        project = make()
        (project.defs / "trips").mkdir()
        (project.defs / "domains" / "us_flights.yaml").unlink()
        yield project


def write(project: Project, wrong: Wrong | None = None) -> None:
    for file, text in (("trips/defs.yaml", DEFS), ("domains/trips.yaml", DOMAIN)):
        content: str | bytes = text
        if wrong is not None and file == wrong.file:
            assert wrong.old in text or wrong.old == WHOLE
            is_whole = isinstance(wrong.new, bytes) or wrong.old == WHOLE
            content = wrong.new if is_whole else text.replace(wrong.old, str(wrong.new))
        (project.defs / file).write_bytes(content if isinstance(content, bytes) else content.encode())


def look() -> None:
    """Read, resolve and plan the declaration and load its definitions, as all commands do."""
    series = read_declared_series("trips")
    series.plan(series.read_geography(), choose_period_to_plan(series, None))
    refuse_unloadable(series)


def test_the_declaration_without_a_fault_is_accepted(declared):
    write(declared)
    look()


@pytest.mark.parametrize("year", ["", "year: 2001-01--2001-12\n", "year: 2000-09--2001-08\n"])
def test_users_of_a_year_are_declared_by_their_data_set(declared, year):
    write(declared)
    (declared.defs / "domains" / "trips.yaml").write_text(DOMAIN.replace("unit: trip\n", YEAR + year), encoding="utf-8")
    look()


def test_the_bound_of_a_period_is_not_declared_by_a_release_of_users_of_a_year(declared):
    """Else two series could have two of them."""
    write(declared, defs(PRIVACY, f"{PRIVACY}  bounds: {{max_trips: 2}}\n", "", ""))
    (declared.defs / "domains" / "trips.yaml").write_text(DOMAIN.replace("unit: trip\n", YEAR), encoding="utf-8")
    with pytest.raises(OdError, match=r"OD-UNIT-MAX-TRIPS: .* declared for one release") as refused:
        look()
    assert refused.value.next_step == "move bounds.max_trips to trips.yaml"
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_a_wrong_declaration_is_refused_in_one_line(declared, wrong):
    write(declared, wrong)
    with pytest.raises(OdError) as caught:
        look()
    line = str(caught.value)
    assert caught.value.code == wrong.code, line
    assert wrong.place in caught.value.message
    if wrong.file == "domains/trips.yaml":
        assert caught.value.file == "trips.yaml"
    assert wrong.cause in caught.value.message
    assert "nothing was spent; next: " in line
    assert "\n" not in line
    assert len(line) < 600


def test_no_text_is_evaluated(declared):
    """Dagster would make a number of the text."""
    write(declared, defs(PRIVACY, f'{PRIVACY}  noise: "5"\n', "", ""))
    with pytest.raises(OdError, match="noise backend '5'"):
        read_declared_series("trips")


@pytest.mark.parametrize("form", ["{{ env.OD_DOMAIN }}", "{{env('OD_DOMAIN')}}", '{{ env("OD_DOMAIN") }}'])
def test_a_text_can_name_a_variable(declared, form, monkeypatch):
    monkeypatch.setenv("OD_DOMAIN", "trips")
    write(declared)
    path = declared.defs / "trips" / "defs.yaml"
    path.write_text(with_value(DEFS, ("attributes", "domain"), form), encoding="utf-8")
    look()
    assert OdRelease.model_validate(yaml.safe_load(path.read_text())["attributes"]).domain.name == "trips"


@pytest.mark.parametrize("component", [OdRelease, OdCounts, OdGroupSizes, OdStops])
def test_the_schema_for_dg_tells_sections_from_other_values(component):
    """What ``dg check yaml`` says of a mapping is what is wrong with the section, not that no alternative fits."""
    schema = component.get_model_cls().model_json_schema()
    sections = [schema, *schema["$defs"].values()]
    fields = [field for section in sections for field in section.get("properties", {}).values()]
    assert not [field for field in fields if any("$ref" in part for part in field.get("anyOf", ()))]
    errors = Draft202012Validator(schema).iter_errors({"periods": {"last": "2001-02"}})
    assert "'first' is a required property" in [e.message for e in errors if [*e.absolute_path] == ["periods"]]
    for value, faults in (("{{ env('A', 'stopped') }}", 0), ("running", 0), ("walking", 1)):
        errors = Draft202012Validator(schema).iter_errors({"automation": value})
        assert sum([*e.absolute_path] == ["automation"] for e in errors) == faults


def fields(section: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Path of every field of a component or section, and of its sections."""
    for field_name, field in section.model_fields.items():
        name = field.alias or field_name
        yield (*above, name)
        part = _find_section(field.annotation)
        if hasattr(part, "model_fields"):
            yield from fields(part, (*above, name))


def with_value(text: str, above: Sequence[str], value: object) -> str:
    """The text of a declaration with another value of one field."""
    document = yaml.safe_load(text)
    section = document
    for name in above[:-1]:
        section[name] = section[name] if isinstance(section.get(name), dict) else {}
        section = section[name]
    section[above[-1]] = value
    return yaml.dump(document, sort_keys=False)


PLANTED = [
    *(("trips/defs.yaml", DEFS, ("attributes", *path)) for path in fields(OdRelease)),
    *(("domains/trips.yaml", DOMAIN, path) for path in fields(DomainSection)),
    ("trips/defs.yaml", DEFS, ("attributes", "{{ env.OD_PLANTED }}")),
    ("trips/defs.yaml", DEFS, ("type",)),
]


@pytest.mark.parametrize(("file", "text", "path"), PLANTED, ids=[".".join(path) for *_, path in PLANTED])
def test_no_fault_shows_what_a_template_stands_for(declared, file, text, path, monkeypatch):
    """In a field that has another meaning, such as a password under the name of a mechanism."""
    monkeypatch.setenv("OD_PLANTED", "postgresql://role:hunter2@host/d")
    write(declared)
    template = "{{ env('OD_PLANTED') }}" if len(path) == 2 else "{{ env.OD_PLANTED }}"  # both of Dagster's forms
    (declared.defs / file).write_text(with_value(text, path, template), encoding="utf-8")
    fault: Exception | None = None
    try:
        look()
    except Exception as error:  # noqa: BLE001  # of any kind: its text may reach the event log
        fault = error
    assert fault is None or isinstance(fault, OdError)
    assert "hunter2" not in "".join(traceback.format_exception(fault)) + repr(fault)


@pytest.mark.parametrize("field", ["mechanism", "noise", "name", "domain", "engine"])
def test_no_fault_shows_a_short_word_that_a_template_stands_for(declared, field, monkeypatch):
    monkeypatch.setenv("OD_PLANTED", "hunter2")
    write(declared)
    (declared.defs / "trips/defs.yaml").write_text(
        with_value(DEFS, ("attributes", field), "x {{ env.OD_PLANTED | upper | lower }}"), encoding="utf-8"
    )
    with pytest.raises(OdError) as refused:
        look()
    assert "hunter2" not in str(refused.value)
