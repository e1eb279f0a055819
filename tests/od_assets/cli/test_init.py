"""A first declaration: what is asked, what is shown, what is written; and nothing where it does not fit."""

import itertools
import json
import math
import shlex
import shutil
import sys
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import duckdb
import pandas as pd
import pytest
import shapely
import yaml
from shapely.geometry import box, mapping

from od_assets.cli.app import app
from od_assets.cli.declare import QUESTIONS, format_yaml_block
from od_assets.cli.new_declaration import ROOM, describe_records, describe_zones, evaluate_expression
from od_assets.interrupts import Interrupted
from od_assets.series.reading import read_declared_series
from od_core import PrivacyUnit
from od_core.errors import OdError
from od_core.privacy.domain import compute_largest_rho
from tests.od_assets.canary import ZONE
from tests.od_assets.cli.commands import command, printed, stated
from tests.od_assets.conftest import ATTRIBUTES, ZONES, Project, records
from tests.od_core.records.mobility_feeds import make_mds

pytestmark = pytest.mark.usefixtures("one_scratch_database")

FLAGS = {"records": "{period}.csv", "date": "date", "zones": "zones.csv", "levels": "region,zone", "first": "2001-01"}
FLAGS |= {"unit": "trip", "epsilon": "1", "delta": "1e-8"}
OF_YEAR = {"unit": "user_year", "column": "destination", "max_trips": "2", "max_trips_year": "6", "id_pattern": ".+"}
"""Answers with which all trips of a user in a year are protected."""


@pytest.fixture
def empty(project) -> Project:
    """A project in which nothing is declared."""
    for file in (project.defs / "domains").iterdir():
        file.unlink()
    return project


def init(*more: str, name: str = "mine", **changes: str | None) -> Any:
    """The result of the command with these answers and no other; ``more`` is given as it stands."""
    flags = FLAGS | {flag.replace("_", "-"): value for flag, value in changes.items()}
    given = [text for flag, value in flags.items() if value is not None for text in (f"--{flag}", value)]
    return command("init", name, *given, *more)


def written(project: Project) -> dict[str, str]:
    return {str(p.relative_to(project.defs)): p.read_text() for p in project.defs.rglob("*") if p.is_file()}


def test_two_files_are_written_that_say_what_is_not_default(empty):
    result = init(every="month", set="schedule=0 6 2 * *")
    assert result.exit_code == 0, result.exception
    files = written(empty)
    assert sorted(files) == ["domains/mine.yaml", "mine/defs.yaml", "warehouse/defs.yaml"]
    warehouse = yaml.safe_load(files["warehouse/defs.yaml"])
    assert warehouse == {"type": "od_assets.components.OdWarehouse", "attributes": {}}
    assert "warehouse/defs.yaml" in result.stdout.replace("\n", "")
    declared = yaml.safe_load(files["mine/defs.yaml"])
    records = {"files": "{period}.csv", "columns": {"date": "date"}, "one_row_a_trip": True}
    expected = ATTRIBUTES | {"name": "mine", "domain": "mine", "trips": records, "periods": {"first": "2001-01"}}
    expected["detail"] = "publication"
    assert declared == {"type": "od_assets.components.OdRelease", "attributes": expected}
    assert 10 <= len(files["mine/defs.yaml"].splitlines()) <= 20
    data_set = yaml.safe_load(files["domains/mine.yaml"])
    cap = data_set.pop("cap")
    assert data_set == {"name": "mine", "unit": "trip", "neighbours": "bounded", "elementary_period": "month"}
    plan = stated("plan", "mine")
    assert Fraction(plan["rho"]) * ROOM <= Fraction(cap["rho"]) < Fraction(plan["rho"]) * ROOM * Fraction(101, 100)
    assert "Used columns of 2001-01.csv: date (VARCHAR), origin (VARCHAR), destination (VARCHAR)." in result.stdout
    assert "Unused columns of 2001-01.csv: none." in result.stdout
    assert not empty.var.exists()


def list_zones(project: Project, zones: int) -> None:
    """Make so many zones of the listed ones, in a third region."""
    further = pd.DataFrame({"region": "Z", "zone": [f"Z{number:03}" for number in range(zones - 6)]})
    listed = pd.read_csv(project.root / "zones.csv", dtype=str)
    pd.concat([listed, further]).to_csv(project.root / "zones.csv", index=False)


FEW_LEVELS = {"tree": "both", "area_totals": {"share": "1/10"}, "estimate": "auto"}
LAPLACE = {"mechanism_options": {"noise_distribution": "laplace"}}


@pytest.mark.representatives
@pytest.mark.parametrize(
    ("zones", "changes", "declared"),
    [
        pytest.param(100, {}, FEW_LEVELS | LAPLACE | {"area_totals": {"share": "31/100"}}, id="many zones"),
        pytest.param(
            1450,
            {},
            LAPLACE | {"tree": "both", "area_totals": {"share": "31/100"}},
            id="too many zones to learn",
            marks=pytest.mark.slow,
        ),
        pytest.param(99, {}, {}, id="fewer"),
        pytest.param(100, {"set": "mechanism=inftda"}, {"mechanism": "inftda"}, id="another mechanism"),
        pytest.param(100, {"cap": "0.5", "reason": "ours"}, FEW_LEVELS, id="a cap in rho"),
        pytest.param(100, {"set": "estimate=least_squares"}, FEW_LEVELS | {"estimate": "least_squares"}, id="estimate"),
        pytest.param(
            100, {"set": "tree=origin"}, {"tree": "origin", "area_totals": FEW_LEVELS["area_totals"]}, id="tree"
        ),
        pytest.param(100, {"set": "area_totals.share=1/5"}, {"area_totals": {"share": "1/5"}}, id="area totals"),
        pytest.param(
            100,
            {"set": "possible.within_zone=false"},
            FEW_LEVELS | LAPLACE | {"area_totals": {"share": "31/100"}},
            id="possible pairs",
        ),
    ],
)
def test_levels_and_noise_of_the_least_expected_error_are_proposed_unless_they_are_stated(
    empty, zones, changes, declared
):
    list_zones(empty, zones)
    result = init(**changes)
    assert result.exit_code == 0, result.exception
    text = written(empty)["mine/defs.yaml"]
    attributes = yaml.safe_load(text)["attributes"]
    names = {"tree", "area_totals", "mechanism", "mechanism_options", "estimate"}
    assert {name: attributes[name] for name in attributes.keys() & names} == declared
    assert ("zone x all" in result.stdout) == ("area_totals" in declared)
    pure = declared.get("mechanism_options") is not None
    assert attributes["privacy"] == {"epsilon": "1"} | ({} if pure else {"delta": "1e-8"})
    own = 1 + pure + ("estimate: auto" in text) + ("tree: both" in text or "tree: origin" in text)
    assert text.count("#") == own
    cap = yaml.safe_load(written(empty)["domains/mine.yaml"])["cap"]
    if pure:
        assert (cap["epsilon"], "delta" in cap) == (str(ROOM), False)
        other = read_declared_series("mine").require_valid()
        plan = other.plan(other.read_geography(), "2001-01")
        gaussian = plan.with_levels_and_noise("both", "gaussian")
        pairs = zip(plan.expected_errors[1:], gaussian.expected_errors[1:], strict=True)
        ratio = math.prod(own / error for own, error in pairs) ** (1 / plan.tree.depth)
        assert f"is {round(100 * ratio)} % of that of Gaussian noise with delta 1e-8" in " ".join(text.split())


@pytest.mark.parametrize(
    ("changes", "is_pure"),
    [
        pytest.param({"unit": "user_period", "column": "rider", "max-trips": "1"}, True, id="one trip"),
        pytest.param(
            {"unit": "user_period", "column": "rider", "max-trips": "4", "max-trips-pair": "1"}, False, id="pair"
        ),
        pytest.param({"unit": "user", "column": "rider", "max-trips": "1"}, False, id="all periods"),
        pytest.param(OF_YEAR | {"column": "rider"}, False, id="year"),
    ],
)
def test_of_users_laplace_noise_is_proposed_without_a_pair_cap_and_period_by_period(empty, changes, is_pure):
    empty.write_records(records().assign(rider="r1"))
    list_zones(empty, 100)
    result = init(**changes)
    assert result.exit_code == 0, result.exception
    declared = yaml.safe_load(written(empty)["mine/defs.yaml"])["attributes"]
    assert declared["tree"] == "both"
    assert ("mechanism_options" in declared) == is_pure


def test_plan_says_in_one_sentence_what_has_less_error(empty):
    """And says no more once it is declared; the percentage is that of the expected errors."""
    list_zones(empty, 100)
    assert init(set="tree=origin").exit_code == 0
    text = " ".join(printed("plan", "mine").split())
    assert (
        "With tree: both, mechanism_options: {noise_distribution: laplace} and privacy: {epsilon: 1} without delta"
        in text
    )
    series = read_declared_series("mine").require_valid()
    plan = series.plan(series.read_geography(), "2001-01")
    other = plan.with_levels_and_noise("both", "laplace")
    errors = [plan.expected_errors[level] for level in (2, 4)]
    ratio = math.prod(own / error for own, error in zip(other.expected_errors[1:], errors, strict=True)) ** 0.5
    assert f"the expected error is {math.ceil(100 * ratio)} % of that of this plan" in text
    assert init(name="other").exit_code == 0
    assert "expected error is" not in printed("plan", "other")


def test_of_users_of_a_year_the_bounds_are_those_of_the_data_set(empty):
    empty.write_records(records().assign(rider="r1"))
    of_year = {"max_trips": "4", "max_trips_pair": "3", "max_trips_year": "10", "id_pattern": "r[0-9]+"}
    result = init(unit="user_year", column="rider", neighbours="unbounded", **of_year)
    assert result.exit_code == 0, result.exception
    assert "Without max_trips_year, it would spend" in " ".join(result.stdout.split())
    settings = read_declared_series("mine").require_valid()
    unit = PrivacyUnit("user_year", "unbounded", "rider", 4, None, 10, "r[0-9]+", 3)
    assert settings.unit == unit
    data_set = yaml.safe_load((empty.defs / "domains" / "mine.yaml").read_text())
    assert data_set["bounds"] == {"max_trips": 4, "max_trips_pair": 3, "max_trips_year": 10}
    of_month = settings.plan(settings.read_geography(), "2001-01").charge.rho
    of_year_alone = compute_largest_rho([Fraction(1)] * 12, 4, 10) * of_month
    assert settings.domain.cap.allowed_rho() >= ROOM * of_year_alone > ROOM * of_month
    release = yaml.safe_load((empty.defs / "mine" / "defs.yaml").read_text())["attributes"]
    assert not release.keys() & of_year.keys()


@pytest.mark.parametrize(
    ("every", "first", "elementary"), [("week", "2001-W02", "week"), ("single", "2001-01--2001-03", "month")]
)
def test_the_elementary_period_is_that_of_the_periods(empty, every, first, elementary):
    result = init(every=every, first=first)
    assert result.exit_code == 0, result.exception
    assert read_declared_series("mine").require_valid().domain.elementary_period == elementary


class Person:
    """Standard input of a terminal, at which each question is answered from its list of answers, by flag.

    A question without a list is left to what it offers; the last answer of a list is given whenever it is asked again.
    """

    def __init__(self, answers: dict[str, str], screen: pytest.CaptureFixture[str]) -> None:
        self.answers = {flag: answer.split("\n") for flag, answer in answers.items()}
        self.screen, self.said, self.asked = screen, "", list[str]()

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        raise OSError

    def readline(self, _size: int = -1) -> str:
        self.said += self.screen.readouterr().out
        places = {self.said.rfind(text): one.flag for one in QUESTIONS for text in (one.asks, one.if_single) if text}
        flag = places[max(places)]
        self.asked.append(flag)
        answers = self.answers.get(flag, [""])
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if answer == "SIGINT":
            raise Interrupted(2)
        return "" if answer == "EOF" or self.asked.count(flag) > 5 else f"{answer}\n"


@pytest.fixture
def typed(monkeypatch, capsys) -> Callable[..., str]:
    """Types answers at a terminal, by flag; what is said."""

    def answer(*more, **changes):
        monkeypatch.setattr(sys, "stdin", Person(FLAGS | changes, capsys))
        app(["init", "mine", *more], standalone_mode=False)
        return sys.stdin.said + capsys.readouterr().out  # type: ignore[attr-defined]  # a Person

    return answer


def start_again(project: Project) -> None:
    """Remove what was declared."""
    for path in written(project):
        (project.defs / path).unlink()
    (project.defs / "mine").rmdir()


def test_at_a_terminal_what_is_missing_is_asked(empty, typed):
    said = typed()
    assert said.index("Unused columns of 2001-01.csv: date (VARCHAR).") < said.index("Column of dates")
    by_terminal = written(empty)
    same = said.partition("The same without questions: od-release init mine ")[2].partition("\n")[0]
    start_again(empty)
    assert init(origin="origin", destination="destination").exit_code == 0
    assert written(empty) == by_terminal
    start_again(empty)
    printed("init", "mine", *shlex.split(same))
    assert written(empty) == by_terminal


@pytest.mark.parametrize("flag", ["levels", "title"])
def test_a_question_can_be_asked_again_and_explained(empty, typed, flag):
    said = typed(**{flag: f"?\nback\n{FLAGS.get(flag, '')}"})
    by_way_back = written(empty)
    assert "write nothing" in " ".join(said.split())
    start_again(empty)
    typed()
    assert written(empty) == by_way_back


@pytest.mark.slow
def test_a_stop_at_any_question_leaves_nothing(empty, typed):
    """By quit, in any case, at the end of input, or by an interrupt."""
    empty.write_records(records().assign(rider="r1", colour="red"))
    users = {name: answer for name, answer in OF_YEAR.items() if name != "column"}
    users |= {"cap": "1", "reason": "x", "one_row_a_trip": "true", "title": "Trips"}
    typed(**users)
    asked = list(dict.fromkeys(sys.stdin.asked))  # type: ignore[attr-defined]  # a Person
    assert len(asked) == 34
    start_again(empty)
    for flag, way in zip(asked[::4], itertools.cycle(("Quit", "EOF", "SIGINT"))):
        assert "Stopped: no file was written, and nothing was spent." in typed(**users | {flag: way}), flag
        assert sys.stdin.asked[-1] == flag  # type: ignore[attr-defined]
        assert written(empty) == {}


def test_the_columns_of_the_files_are_offered(empty, typed):
    """Also answers in capitals, with spaces and in quotes are understood."""
    rows = "home,work,device_id,trips,day\nZ00,Z01,d1,2,2001-01-03\nZ11,Z00,d2,1,2001-01-04\n"
    (empty.root / "2001-01.csv").write_text(rows)
    listed = ZONES.assign(lat=45.5, lon=9.5, **{f"{level}_name": ZONES[level].str.lower() for level in ZONES})
    listed[["zone", "zone_name", "lat", "lon", "region_name", "region"]].to_csv(empty.root / "zones.csv", index=False)
    quick = dict.fromkeys(("date", "levels", "first", "epsilon", "delta"), "")
    typed(**quick | {"kind": " FLOWS ", "records": "' {period}.csv '", "unit": "User_Period ", "every": "MONTH"})
    declared = yaml.safe_load(written(empty)["mine/defs.yaml"])["attributes"]
    assert declared["trips"]["columns"] == {"origin": "home", "destination": "work", "trips": "trips", "date": "day"}
    geography = {"file": "zones.csv", "levels": ["region", "zone"], "coordinates": ["lat", "lon"]}
    assert declared["geography"] == geography | {"names": {"region": "region_name", "zone": "zone_name"}}
    assert (declared["periods"], declared["bounds"]) == ({"first": "2001-01"}, {"max_trips": 10})
    assert yaml.safe_load(written(empty)["domains/mine.yaml"])["column"] == "device_id"


def write_boundaries(project: Project, code: str) -> None:
    """Write squares of one degree: the zone number k in the list reaches from longitude k to k + 1."""
    listed = pd.read_csv(project.root / "zones.csv", dtype=str)["zone"]
    squares = {zone: mapping(box(number, 0, number + 1, 1)) for number, zone in enumerate(listed)}
    features = [{"type": "Feature", "properties": {code: zone}, "geometry": each} for zone, each in squares.items()]
    (project.root / "zones.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": features}))


@pytest.mark.parametrize(
    ("origin", "destination"),
    [
        ("start_lon,start_lat", "end_lon,end_lat"),
        ("Pickup Centroid Longitude,Pickup Centroid Latitude", "Dropoff Centroid Longitude,Dropoff Centroid Latitude"),
    ],
)
def test_columns_of_coordinates_are_offered_and_need_boundaries(empty, typed, origin, destination):
    """The same by options; the columns stand in any order among others with the same words."""
    names = ["start_station_id", *origin.split(",")[::-1], *destination.split(",")[::-1], "end_station", "start_time"]
    records = f"{','.join(names)}\n" + 200 * "s1,0.5,1.5,0.5,2.5,s2,2001-01-03\n"
    (empty.root / "2001-01.csv").write_text(records)
    write_boundaries(empty, "id")
    found = {"date": "", "trips": "none", "one_row_a_trip": "yes"}
    said = typed(**found, boundaries="\nzones.json\nzones.geojson", boundaries_code="zone\nid")
    assert "records with coordinates need the boundaries of zones" in said
    assert "there is no file zones.json" in said
    files = written(empty)
    declared = yaml.safe_load(files["mine/defs.yaml"])["attributes"]
    columns = {"origin": origin.split(","), "destination": destination.split(","), "date": "start_time"}
    assert declared["trips"]["columns"] == columns
    assert declared["geography"]["boundaries"] == {"zone": {"file": "zones.geojson", "code": "id"}}
    start_again(empty)
    given = {"origin": origin, "destination": destination, "date": "start_time", "one_row_a_trip": "true"}
    refused = init(**given).exception
    assert isinstance(refused, OdError)
    assert (refused.code, "--boundaries" in refused.next_step) == ("OD-INIT-FLAG", True)
    result = init(**given, boundaries="zones.geojson", boundaries_code="id")
    assert result.exit_code == 0, result.exception
    assert written(empty) == files


@pytest.mark.parametrize(
    ("header", "row", "offered"),
    [
        ("start_lon,start_lat,origin", "1,2,Z00", "origin"),
        ("start_lon,start_lat,from_zone", "500000,4000000,Z00", "from_zone"),
        ("start_lon,start_lat,from_zone", "1,100,Z00", "from_zone"),
        ("start_lon,start_lat,from_zone", "east,north,Z00", "from_zone"),
        ("start_lon,end_lat,from_zone", "1,2,Z00", "from_zone"),
        ("lon,lat,from_zone", "1,2,Z00", "from_zone"),
        ("start_lon,start_lat,from_zone", "-180,90,Z00", "start_lon,start_lat"),
        ("start_lng,start_lat,from_zone", "1,2,Z00", "start_lng,start_lat"),
        ("startLatitude,startLongitude,from_zone", "1,2,Z00", "startLongitude,startLatitude"),
        ("origin_lon,origin_lat,x", "1,2,Z00", "origin_lon,origin_lat"),
        ("lat_from,lon_from,x", "1,2,Z00", "lon_from,lat_from"),
    ],
)
def test_columns_of_coordinates_are_offered_only_with_degrees_and_without_codes(empty, header, row, offered):
    (empty.root / "2001-01.csv").write_text(f"{header},w\n" + 3 * f"{row},y\n")
    offers = next(question.offers for question in QUESTIONS if question.flag == "origin")
    assert evaluate_expression(offers, {"kind": "flows", "records": "{period}.csv"}, {}) == offered


def test_coordinates_of_counts_and_points_in_one_column_are_declared(empty):
    (empty.root / "2001-01.csv").write_text("lon,lat,day\n" + 3 * "0.5,0.5,2001-01-03\n")
    offers = next(question.offers for question in QUESTIONS if question.flag == "area")
    assert evaluate_expression(offers, {"kind": "counts", "records": "{period}.csv"}, {}) == "lon,lat"
    write_boundaries(empty, "zone")
    for place in ("lon,lat", "[lon]"):
        assert (
            init(kind="counts", area=place, date="day", one_row_a_trip="true", boundaries="zones.geojson").exit_code
            == 0
        )
        declared = yaml.safe_load(written(empty)["mine/defs.yaml"])["attributes"]
        assert declared["trips"]["columns"]["area"] == place.strip("[]").split(",")
        start_again(empty)


def test_without_a_list_of_zones_hexagons_in_an_outline_are_declared(empty, typed):
    (empty.root / "2001-01.csv").write_text(
        "start_lon,start_lat,end_lon,end_lat,day\n" + 3 * "0.5,0.5,0.6,0.6,2001-01-03\n"
    )
    (empty.root / "city.geojson").write_text(json.dumps(mapping(box(0.4, 0.4, 0.7, 0.7))))
    found = {"origin": "", "destination": "", "date": "", "trips": "none"}
    said = typed(**found, outline="city.json\ncity.geojson", resolution="16\n", coarser="4,5", one_row_a_trip="yes")
    assert "there is no file city.json" in said
    assert "a resolution of hexagons is not between 0 and 15" in said
    asked = {*sys.stdin.asked}  # type: ignore[attr-defined]  # a Person
    assert not asked & {"zones", "levels", "names", "boundaries"}
    files = written(empty)
    declared = yaml.safe_load(files["mine/defs.yaml"])["attributes"]["geography"]
    assert declared == {"hexagons": {"within": "city.geojson", "resolution": 8, "coarser": [4, 5]}}
    start_again(empty)
    columns = {"origin": "start_lon,start_lat", "destination": "end_lon,end_lat", "date": "day"}
    given = {**columns, "outline": "city.geojson", "resolution": "8", "coarser": "4,5"}
    with pytest.raises(OdError, match=r"--zones is of a list of zones, and --outline is of zones without a list"):
        raise init(**given).exception
    result = init(**given, zones=None, levels=None)
    assert result.exit_code == 0, result.exception
    assert written(empty) == files


def test_what_does_not_apply_is_not_asked(empty, typed):
    records()[["origin", "destination"]].to_csv(empty.root / "all.csv", index=False)
    said = typed(records="all.csv", date="none", first="2001-01--2001-03", every="single")
    asked = {*sys.stdin.asked}  # type: ignore[attr-defined]  # a Person
    assert not asked & {"trips", "one_row_a_trip", "prefixes", "names", "last", "time_zone", "settled_seconds", "unit"}
    assert "Period that the records cover" in said
    assert "First period" not in said


@pytest.mark.parametrize(
    ("flag", "wrong", "fault"),
    [
        ("records", "{perod}.csv", "there is no file {perod}.csv; similar names that exist: '{period}.csv'"),
        ("records", "  ", "An answer is needed here"),
        ("origin", "from", "2001-01.csv has no column 'from'; it has date, origin, destination"),
        ("origin", "origin,lat", "2001-01.csv has no column 'lat'"),
        ("origin", "a,b,c", "a place has two columns, of longitude and latitude, or one column of points"),
        ("origin", "origin,date", "columns 'origin' and 'date' of 2001-01.csv hold no longitudes and latitudes"),
        ("destination", "origin,date", "column 'origin' cannot be both origin and destination"),
        ("every", "monthly", "there is no length of periods 'monthly' (did you mean 'month'?): choose one of them."),
        ("epsilon", "one", "epsilon is 'one', which is not a finite number: correct the budget."),
        ("zones", "bad.csv", "bad.csv is separated by semicolons, not by commas"),
        ("levels", "zone,region", "the wrong way round?"),
        ("prefixes", "region=two", "geography.prefixes.region: Input should be a valid integer"),
        ("last", "2000-12", "the last period 2000-12 is before the first period 2001-01"),
        ("cap", "-1", "the cap must be from"),
        ("id_pattern", "(", "needs id_pattern, a regular expression"),
    ],
)
def test_an_answer_that_no_declaration_has_is_asked_again_at_once(empty, typed, flag, wrong, fault):
    (empty.root / "bad.csv").write_text("region;zone\nR0;Z00\n")
    right = FLAGS | {"origin": "origin"}
    if flag in OF_YEAR:
        empty.write_records(records().assign(rider="r1"))
        right |= OF_YEAR | {"column": "rider"}
    if flag == "prefixes":
        (empty.root / "zones.csv").write_text("zone\n0101\n0102\n0203\n")
        right |= {"levels": "region,zone", "prefixes": "region=2"}
    said = typed(**right | {flag: f"{wrong}\n{right.get(flag, '')}"})
    asked = next(question.asks for question in QUESTIONS if question.flag == flag)
    assert said.count(f"{asked}:") + said.count(f"{asked} [") == 2
    first, second = said.index(asked), said.rindex(asked)
    assert first < said.index(fault) < second
    assert read_declared_series("mine").require_valid()


@pytest.mark.parametrize("dates", ["15/01/2001", ""])
def test_a_column_without_dates_is_no_column_of_dates(empty, dates):
    """They are read as a release reads them. The message quotes none."""
    empty.write_records(records().assign(day=dates))
    refused = init(date="day").exception
    assert isinstance(refused, OdError)
    assert refused.code == "OD-TRIPS-DATE"
    assert refused.message == "column 'day' of 2001-01.csv holds no date among its first records"
    assert written(empty) == {}


@pytest.mark.parametrize(
    ("first", "rows"),
    [
        (f"2001-01-02,{ZONE},x", ["2001-01-03,Z00,Z01"]),  # a number
        (f"{ZONE},Z00,x", [f"Z01,{ZONE},x1", "Z02,Z03,x2"]),  # a code that stands again
        (f"{ZONE},Z00,x1", ["Z03,Z01,x2", "Z02,Z04,x3"]),  # written as the others
        (f"x,{ZONE},y", []),  # nothing to compare it with
        (f"x,{ZONE},y", ["z,Z01,w"]),  # a column without digits
    ],
)
def test_what_may_be_a_record_is_not_shown_before(empty, first, rows):
    for name in ("2001-01.csv", "zones.csv"):
        (empty.root / name).write_text("\n".join([first, *rows]))
    found = [*describe_records({"records": "{period}.csv"}, {}), *describe_zones({"zones": "zones.csv"}, {})]
    assert [" 3 columns; their names are shown once one of them is named" in line for line in found] == [True, True]
    assert ZONE not in str(found)


def test_levels_without_a_column_are_prefixes_if_they_are_given_twice(empty, typed):
    (empty.root / "zones.csv").write_text("zone\n0101\n0102\n0203\n")
    typed(origin="origin", levels="region,zone\nregion,zone", prefixes="\nregion=2")
    assert yaml.safe_load(written(empty)["mine/defs.yaml"])["attributes"]["geography"]["prefixes"] == {"region": 2}


def test_zones_that_are_the_records_are_not_shown(empty):
    """Without a header their first line is one; with it, they are refused by a column."""
    text = f"Z00,{ZONE}\nZ01,{ZONE}\n"
    (empty.root / "zones.csv").write_text(text)
    result = init(levels="zone")
    assert "zones.csv has 2 columns; their names are shown once one of them is named as a level." in result.stdout
    (empty.root / "zones.csv").write_text(f"region,zone\n{text}")
    refused = init()
    for each in (result, refused):
        assert isinstance(each.exception, OdError)
        assert ZONE not in each.output + str(each.exception)
        assert ZONE in (each.exception.confidential_detail or "")
    assert written(empty) == {}


def test_a_column_of_values_is_shown_by_the_name_of_its_type(empty):
    with duckdb.connect(empty.root / "2001-01.duckdb") as connection:
        kinds = {"a": f"'{ZONE}'::ENUM('{ZONE}')", "b": f"{{'{ZONE}': 1}}", "c": f"MAP {{'{ZONE}'::ENUM('{ZONE}'): 1}}"}
        fields = ", ".join(f"{value} AS {name}" for name, value in kinds.items())
        connection.execute(f'CREATE TABLE t AS SELECT {fields}, union_value("{ZONE}" := 1) AS d')
    given_ = {"records": "{period}.duckdb", "origin": "b", "destination": "c", "set": "trips.table=t"}
    said = init(**given_, date=None).stdout
    assert "Used columns of 2001-01.duckdb: b (STRUCT), c (MAP)." in said
    assert "Unused columns of 2001-01.duckdb: a (ENUM), d (UNION)." in said
    assert ZONE not in str(init(**given_, date="a").exception)  # it holds no date
    assert ZONE not in said


def test_a_folder_of_each_period_is_shown_by_its_first_file(empty):
    for period, ending in (("2001-01", "csv"), ("2001-02", "parquet")):
        folder = empty.root / "data" / period / "part"
        folder.mkdir(parents=True)
        (folder.parent / "_SUCCESS").touch()
        made = records().assign(date=f"{period}-03")
        made.to_csv(folder / "a.csv", index=False) if ending == "csv" else made.to_parquet(folder / "a.parquet")
        result = init(records="data/{period}")
        assert result.exit_code == 0, result.exception
        assert f"Used columns of a.{ending}: date (VARCHAR), origin (VARCHAR), destination" in result.stdout
        attributes = yaml.safe_load(written(empty)["mine/defs.yaml"])["attributes"]
        assert (attributes["trips"]["files"], attributes["periods"]) == ("data/{period}", {"first": "2001-01"})
        shutil.rmtree(empty.defs / "mine")
        (empty.defs / "domains" / "mine.yaml").unlink()


CODES = "code,day,pupil,n\nZ00,2001-01-03,p1,7731\nZ01,2001-01-04,p1,2\n"


def test_counts_by_one_hierarchy_are_declared(empty, typed):
    """The same by flags and at the terminal; what is asked of flows alone is not asked."""
    (empty.root / "2001-01.csv").write_text(CODES)
    users = {"unit": "user", "column": "pupil", "max_trips": "3", "max_trips_pair": "1"}
    answers = {"kind": "counts", "area": "code", "date": "day", "count": "n"} | users
    result = init(**{name.replace("_", "-"): answer for name, answer in answers.items()})
    assert result.exit_code == 0, result.exception
    files = written(empty)
    declared = yaml.safe_load(files["mine/defs.yaml"])
    assert declared["type"] == "od_assets.components.OdCounts"
    columns = {"area": "code", "date": "day", "count": "n"}
    assert declared["attributes"]["trips"] == {"files": "{period}.csv", "columns": columns}
    assert declared["attributes"]["bounds"]["max_trips_pair"] == 1
    settings = read_declared_series("mine").require_valid()
    assert settings.plan(settings.read_geography(), "2001-01").tree.has_one_side
    start_again(empty)
    said = typed(**answers | {"area": "area\ncode", "count": "m\nn"})
    assert written(empty) == files
    assert not any(each in said for each in ("Column of origins", "Column of destinations", "numbers of trips"))


def test_answers_of_mds_are_declared_by_their_reader(empty):
    """Their coordinates are one place; without the reader, JSON is refused, and the reader is named."""
    (empty.root / "2001-01.json").write_text(make_mds([((0.5, 0.5), (1.5, 0.5), 978_350_400_000)]))
    squares = {"Z00": shapely.box(0, 0, 1, 1), "Z01": shapely.box(1, 0, 2, 1)}
    features = [
        {"type": "Feature", "properties": {"zone": zone}, "geometry": json.loads(shapely.to_geojson(square))}
        for zone, square in squares.items()
    ]
    collection = {"type": "FeatureCollection", "features": features}
    (empty.root / "zones.geojson").write_text(json.dumps(collection))
    given: dict[str, Any] = {"records": "{period}.json", "date": None, "time_zone": "Europe/Rome"}
    boundaries = "geography.boundaries={zone: zones.geojson}"
    with pytest.raises(OdError, match=r"records with coordinates need .*give --boundaries"):
        raise init(**given, reader="mds").exception
    result = init(**given, reader="mds", set=boundaries)
    assert result.exit_code == 0, result.exception
    assert "Used columns of 2001-01.json: start_lng (VARCHAR), start_lat (VARCHAR)" in result.stdout.replace("\n", "")
    declared = yaml.safe_load(written(empty)["mine/defs.yaml"])["attributes"]
    assert declared["trips"] == {"files": "{period}.json", "reader": "mds"}
    with pytest.raises(OdError, match=r"OD-FILE-UNREADABLE: .* is JSON .*write reader: mds"):
        raise init(**given, name="other").exception


@pytest.mark.parametrize("unsaid", ["n", ""])
def test_rows_that_may_be_counts_are_refused_until_it_is_said_what_they_are(empty, typed, unsaid):
    rows = CODES if unsaid else "code,day\n" + "".join(f"Z{k:03},2001-01-03\n" for k in range(100))
    (empty.root / "2001-01.csv").write_text(rows.replace("pupil,", "").replace("p1,", ""))
    refused = init(kind="counts", area="code", date="day").exception
    assert isinstance(refused, OdError)
    assert refused.code == "OD-TRIPS-ROWS"
    assert "--count" in refused.next_step
    assert (unsaid or "no code appears twice") in refused.message
    assert written(empty) == {}
    typed(kind="counts", area="code", date="day", count="none", one_row_a_trip=unsaid or "true")
    trips = yaml.safe_load(written(empty)["mine/defs.yaml"])["attributes"]["trips"]
    assert trips["columns"] == {"area": "code", "date": "day"} | ({"count": "n"} if unsaid else {})
    assert trips.get("one_row_a_trip", False) == (not unsaid)


FLOWS = {
    "of a column called so": "date,origin,destination,count\n2001-01-03,Z00,Z01,7731\n2001-01-03,Z01,Z01,9\n",
    "of a column of numbers": "date,origin,destination,antall\n2001-01-03,Z00,Z01,7731\n2001-01-03,Z01,Z01,9\n",
    "of pairs": "date,origin,destination\n" + "".join(f"2001-01-03,Z{k:03},Z01\n" for k in range(100)),
}


@pytest.mark.representatives("of pairs")
@pytest.mark.parametrize("what", FLOWS)
def test_flows_that_would_be_counted_as_trips_are_refused_until_it_is_said_what_they_are(empty, typed, what):
    (empty.root / "2001-01.csv").write_text(FLOWS[what])
    refused = init().exception
    assert isinstance(refused, OdError)
    assert refused.code == "OD-TRIPS-ROWS"
    assert "7731" not in str(refused)
    assert written(empty) == {}
    assert "An answer is needed here" in typed(trips="none", one_row_a_trip="\nYes")
    assert read_declared_series("mine").require_valid().record_format.one_row_a_trip


def test_a_path_that_is_given_twice_is_of_files_that_come_later(empty, typed):
    """Though it looks misspelt."""
    said = typed(records="{period}.parquet\n{period}.parquet", origin="origin")
    assert "There is no file {period}.parquet yet." in said
    assert read_declared_series("mine").require_valid().trips.files == "{period}.parquet"


@pytest.mark.parametrize(
    ("further", "path", "value"),
    [("geography.unknown=264", ("geography", "unknown"), "264"), ("intervals=false", ("intervals",), False)],
)
def test_a_further_field_is_read_as_what_it_is(empty, further, path, value):
    """A code that looks like a number stays a text, with its zeros; a field of numbers has a number."""
    (empty.root / "zones.csv").write_text("region,zone,lat,lon\n1,263,60,10\n2,264,61,11\n")
    result = init("--set", further)
    assert result.exit_code == 0, result.exception
    found = yaml.safe_load(written(empty)["mine/defs.yaml"])["attributes"]
    for part in path:
        found = found[part]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("further", "fault"),
    [
        ("geography.colour=red", r"--set geography\.colour: Extra inputs are not permitted"),
        ("trips.colums.date=day", r"--set trips\.colums: .*\(did you mean 'columns'\?\)"),
    ],
)
def test_a_further_field_that_is_wrong_is_refused_before_a_question_that_would_be_asked_for_ever(
    empty, typed, further, fault
):
    with pytest.raises(OdError, match=f"OD-CONFIG: {fault}"):
        typed("--set", further, origin="origin")
    assert typed("--set", "geography.version=2001", origin="origin").count("Columns of its levels") == 1


def test_what_is_found_is_of_the_newest_period_and_of_no_other_file(empty):
    (empty.root / "2001-02.csv").write_text("date,origin,destination,purpose\n")
    (empty.root / "notes.csv").write_text("date,origin\n")
    said = init().stdout
    assert "Used columns of 2001-02.csv: date (VARCHAR), origin (VARCHAR), destination (VARCHAR)." in said
    assert "Unused columns of 2001-02.csv: purpose (VARCHAR)." in said
    assert "notes.csv" not in said


@pytest.mark.representatives
@pytest.mark.parametrize("odd", ["a: b #{period}.csv", "'{period}'.csv", '"{period}", [x].csv', "ø {period}\t.csv"])
def test_yaml_holds_any_text_as_it_was_given(empty, odd):
    (empty.root / "2001-01.csv").rename(empty.root / odd.replace("{period}", "2001-01"))
    result = init(records=odd, zones="zones.csv")
    assert result.exit_code == 0, result.exception
    assert read_declared_series("mine").require_valid().trips.files == odd


def test_a_section_of_yaml_has_one_line_unless_it_is_too_long():
    short, long = {"rho": "1"}, {"files": "x" * 60, "delimiter": "y" * 60}
    text = format_yaml_block({"name": "z" * 120, "cap": short, "trips": long})
    assert text.splitlines() == [
        f"name: {'z' * 120}",
        "cap: {rho: '1'}",
        "trips:",
        f"  files: {'x' * 60}",
        f"  delimiter: {'y' * 60}",
    ]


def test_an_interruption_leaves_nothing(empty, monkeypatch):
    """Stopped by the operator while the geography is read, once both files are there."""
    from od_assets.series.flows import FlowSeries

    def stop(self):
        assert len(written(empty)) == 2
        raise KeyboardInterrupt

    monkeypatch.setattr(FlowSeries, "read_geography", stop)
    init()
    assert written(empty) == {}
    assert [folder.name for folder in empty.defs.iterdir()] == ["domains"]
