"""Every wrong answer to ``od-release init`` is refused in one line: its place, its cause and what to do; nothing stays.

Without a terminal; ``test_init.py`` has what is asked again at a terminal.
"""

import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from od_core.errors import OdError
from tests.od_assets.cli.test_init import init
from tests.od_assets.conftest import Project, projects_in, records, states
from tests.privileges import without_rights_of_root

pytestmark = pytest.mark.usefixtures("one_scratch_database")

OF_FLOWS = {"kind": "flows"}
OF_COUNTS = {"kind": "counts", "area": "origin", "one_row_a_trip": "true"}
OF_USERS = {"unit": "user_period", "column": "destination", "max_trips": "3"}


@dataclass(frozen=True)
class Wrong:
    """Answers of which one is wrong: the code of the refusal, and texts of its place, cause and next step."""

    code: str
    place: str
    cause: str
    step: str
    answers: dict[str, str | None]
    further: str | None = None
    name: str = "mine"

    def __str__(self) -> str:
        return f"{self.name} {self.further or ''} {self.answers}"[:60]


def wrong(code: str, place: str, cause: str, step: str, further: str | None = None, /, **answers: str | None) -> Wrong:
    name = answers.pop("name", None)
    return Wrong(code, place, cause, step, answers, further, "mine" if name is None else name)


AGAIN = "no file was kept, so run init again with another answer"
LETTERS = "lower-case letters, digits and underscores"
MISSING = dict.fromkeys(["records", "zones", "levels", "unit", "delta"]) | {"first": " ", "epsilon": ""}
THERE = "give --records and the path of files that can be read"

WRONG = [
    # The name.
    wrong("OD-RELEASE-KEY", "'../mine'", f"must contain only {LETTERS}", "correct the name", name="../mine"),
    wrong("OD-INIT-EXISTS", "defs/taken", "exists already", "another name", name="taken"),
    wrong("OD-INIT-EXISTS", "domains/us_flights.yaml", "exists already", "another name", name="us_flights"),
    # What is not given.
    *(
        wrong("OD-INIT-FLAG", f"--{flag}", "is missing", f"give --{flag}", **{flag: given})
        for flag, given in MISSING.items()
    ),
    wrong("OD-INIT-FLAG", "--max-trips", "is missing", "give --max-trips", unit="user", column="destination"),
    wrong("OD-INIT-FLAG", "--column", "does not protect users", "leave out --column", column="destination"),
    wrong("OD-INIT-FLAG", "'flow'", "did you mean 'flows'?", "choose one of them", kind="flow"),
    *(
        wrong("OD-INIT-FLAG", f"--{flag}", "--kind does not have it", f"give --kind {other}", **answers, **{flag: "n"})
        for other, flags, answers in (
            ("counts", ("area", "count"), OF_FLOWS),
            ("flows", ("origin", "destination", "trips"), OF_COUNTS),
        )
        for flag in flags
    ),
    wrong("OD-INIT-COLUMN", "'area'", "it has date, origin, destination", "--area", kind="counts"),
    wrong("OD-INIT-COLUMN", "'origin'", "cannot be both area and count", "--area", **OF_COUNTS, count="origin"),
    wrong("OD-CONFIG", "area_totals", "Extra inputs are not permitted", AGAIN, "area_totals.share=1/10", **OF_COUNTS),
    wrong("OD-INIT-FLAG", "--set 'nonsense'", "is not a field and a value", "--set FIELD=VALUE", "nonsense"),
    wrong("OD-INIT-FLAG", "--set 'name=other'", "is the first argument", "od-release init other", "name=other"),
    wrong("OD-INIT-FLAG", "--set '=x'", "is not a field and a value", "--set FIELD=VALUE", "=x"),
    # The files of records.
    wrong("OD-FILE-MISSING", "{perod}.csv", "similar names that exist: '{period}.csv'", THERE, records="{perod}.csv"),
    wrong("OD-FILE-MISSING", "2001-1.csv", "names that exist: '2001-01.csv'", THERE, records="2001-1.csv"),
    wrong("OD-FILE-MISSING", "reords/{period}.csv", "that exist: 'records'", THERE, records="reords/{period}.csv"),
    wrong("OD-FILE-MISSING", "records", "is a folder", THERE, records="records"),
    wrong("OD-FILE-MISSING", "2001-01.csv", "lacks permission", THERE, records="closed/{period}.csv"),
    wrong("OD-FILE-MISSING", "x" * 40, "name too long", THERE, records="x" * 5000),
    wrong("OD-FILE-MISSING", "gone-2001-01.csv", "there is no file", THERE, records="gone-{period}.csv"),
    wrong("OD-TRIPS-FILES", "mine/defs.yaml", "needs {period} and nothing else in braces", AGAIN, records="{year}/{p}"),
    wrong("OD-FILE-UNREADABLE", "book-2001-01.xlsx", "is an Excel workbook", "as CSV", records="book-{period}.xlsx"),
    wrong("OD-FILE-UNREADABLE", "cut-2001-01.csv.gz", "truncated", "download", records="cut-{period}.csv.gz"),
    wrong("OD-READER-UNKNOWN", "reader 'tcl'", "did you mean 'tlc'?", "correct the reader", reader="tcl"),
    # Their columns.
    wrong("OD-INIT-COLUMN", "2001-01.csv", "no column 'from'", "give --origin", origin="from"),
    wrong("OD-INIT-COLUMN", "2001-01.csv", "no column 'h_geocode'", "give --origin", reader="lodes", date=None),
    wrong("OD-INIT-COLUMN", "2001-01.csv", "no column 'n'", "give --trips", trips="n"),
    wrong("OD-INIT-COLUMN", "2001-01.csv", "no column 'begin'", "give", "trips.columns.origin=begin"),
    wrong("OD-INIT-COLUMN", "'origin'", "cannot be both origin and date", "give --date or --origin", date="origin"),
    wrong("OD-TRIPS-ROWS", "flows-2001-01.csv", "counts: 'count'", "give --trips", records="flows-{period}.csv"),
    wrong("OD-CONFIG", "trips.one_row_a_trip", "valid boolean", AGAIN, one_row_a_trip="maybe"),
    # The zone list and its levels.
    wrong("OD-FILE-MISSING", "zone.csv", "there is no file", "give --zones", zones="zone.csv"),
    wrong("OD-FILE-MISSING", "records", "is a folder", "give --zones", zones="records"),
    wrong("OD-FILE-UNREADABLE", "book-2001-01.xlsx", "Excel workbook", "as CSV", zones="book-2001-01.xlsx"),
    wrong("OD-FILE-NOT-UTF8", "bin-2001-01.csv", "not UTF-8", "correct the", zones="bin-2001-01.csv"),
    wrong("OD-FILE-DELIMITER", "semicolons.csv", "separated by semicolons", "with commas", zones="semicolons.csv"),
    wrong("OD-GEOGRAPHY-DUPLICATE", "zones.csv", "the wrong way round?", AGAIN, levels="zone,region"),
    wrong("OD-CONFIG", "geography.prefixes.region", "valid integer", AGAIN, prefixes="region"),
    # Periods.
    wrong("OD-PERIOD", "mine/defs.yaml", "every cannot be 'mnth' (did you mean 'month'?)", AGAIN, every="mnth"),
    wrong("OD-PERIOD-TEXT", "mine/defs.yaml: periods.first", "'2001-13' is not a period", AGAIN, first="2001-13"),
    wrong("OD-TIME-ZONE", "'europe/rome'", "did you mean 'Europe/Rome'?", AGAIN, time_zone="europe/rome"),
    # What is protected, and the budget.
    wrong("OD-UNIT-UNKNOWN", "mine.yaml", "no privacy unit 'trips' (did you mean 'trip'?)", AGAIN, unit="trips"),
    wrong("OD-UNIT-MAX-TRIPS", "mine/defs.yaml", "needs max_trips", AGAIN, **OF_USERS | {"max_trips": "-3"}),
    wrong("OD-BUDGET-NUMBER", "epsilon", "'one', which is not a finite number", AGAIN, epsilon="one"),
    wrong("OD-LEDGER-CAP", "data set 'mine'", "exceeds the cap", AGAIN, cap="1e-6", reason="too low"),
    wrong("OD-DOMAIN-CAP", "mine.yaml", "the cap must be from", AGAIN, cap="-1", reason="negative"),
    wrong("OD-CONFIG", "mine.yaml: cap.reason", "Field required", AGAIN, cap="1"),
    # Other fields.
    wrong("OD-CONFIG", "mine/defs.yaml", "Invalid owner 'me'", AGAIN, owner="me"),
    wrong("OD-CONFIG", "geography.colour", "not permitted", AGAIN, "geography.colour=red"),
    wrong("OD-CONFIG", "about.title", "longer than 120", AGAIN, f"about={{title: {300 * 't'}}}"),
]


@pytest.fixture(scope="module")
def files() -> Iterator[Project]:
    """A project with files that cannot be records or zones, and the names ``taken`` and ``us_flights``."""
    with TemporaryDirectory() as name, projects_in(Path(name)) as make:
        folder, project = Path(name), make()
        folder.chmod(0o755)  # another user than root may enter it
        project.write_records(records(300))
        with zipfile.ZipFile(folder / "book-2001-01.xlsx", "w") as book:
            book.writestr("xl/workbook.xml", "<workbook/>")
        (folder / "bin-2001-01.csv").write_bytes(bytes(range(250, 0, -1)))
        (folder / "cut-2001-01.csv.gz").write_bytes(b"\x1f\x8b\x08\0\0\0")
        (folder / "gone-2001-01.csv").symlink_to("nowhere.csv")
        (folder / "flows-2001-01.csv").write_text("date,origin,destination,count\n2001-01-03,Z00,Z01,7\n")
        (folder / "semicolons.csv").write_text("region;zone\nR0;Z00\n")
        (folder / "records").mkdir()
        (folder / "closed").mkdir()
        shutil.copy(folder / "2001-01.csv", folder / "closed")
        (folder / "closed" / "2001-01.csv").chmod(0)
        (project.defs / "taken").mkdir()
        yield project


@pytest.mark.parametrize("case", WRONG, ids=str)
def test_a_wrong_answer_ends_in_one_line_and_leaves_nothing(files, case):
    before = states(files.defs)
    more = () if case.further is None else ("--set", case.further)
    with without_rights_of_root() if "permission" in case.cause else nullcontext():
        result = init(*more, name=case.name, **case.answers)
    error = result.exception
    assert isinstance(error, OdError), (result.output, error)
    assert error.code == case.code, error
    assert case.place in error.message
    assert case.cause in error.message
    assert case.step in error.next_step
    assert "\n" not in str(error)
    assert "(line " not in error.message  # of a file that is not kept
    assert len(str(error)) < 700
    assert states(files.defs) == before
    assert not files.var.exists()


def test_a_folder_of_declarations_that_may_not_be_written_is_said(files, monkeypatch):
    spilled = files.root / "spilled"
    spilled.mkdir()
    spilled.chmod(0o777)
    monkeypatch.setattr(tempfile, "tempdir", str(spilled))
    (files.defs / "domains").chmod(0o555)
    with without_rights_of_root():
        error = init().exception
    (files.defs / "domains").chmod(0o755)
    assert "OD-INIT-WRITE: domains/mine.yaml cannot be written: Permission denied [nothing was spent; next: " in str(
        error
    )
