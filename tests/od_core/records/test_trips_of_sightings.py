"""The documented rule that makes trips of sightings, by brute force; each person's trips follow from own sightings."""

import datetime
import re
from collections import defaultdict
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path

import duckdb
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core import OdError
from od_core.records.formats import find_format

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "zones-and-records.md"
NINE = datetime.datetime(2001, 6, 4, 9)

SIGHTINGS = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from("XYZ"), st.integers(0, 12).map(lambda n: 10 * n)), max_size=25
)
"""Person, cell and minutes after nine."""


def make_trips(sightings) -> list[tuple]:
    """What the page does: person, origin, destination and the time of departure."""
    [sql] = re.findall(r"```sql\n(CREATE TABLE trips AS\n.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    rows = [(person, cell, NINE + datetime.timedelta(minutes=minute)) for person, cell, minute in sightings]
    frame = pd.DataFrame(rows, columns=["person", "cell", "seen"]).astype({"person": "str", "cell": "str"})
    with duckdb.connect() as connection:
        connection.register("frame", frame)
        connection.sql("CREATE TABLE sightings AS SELECT person, cell, seen::TIMESTAMP AS seen FROM frame")
        connection.sql(sql)
        return connection.sql("SELECT person, origin, destination, departed FROM trips ORDER BY ALL").fetchall()


def expect(sightings) -> list[tuple]:
    of_person = defaultdict(list)
    for person, cell, minute in sightings:
        of_person[person].append((minute, cell))
    trips = []
    for person, seen in of_person.items():
        stays = []
        for cell, visit in groupby(sorted(seen), itemgetter(1)):
            minutes = [minute for minute, _ in visit]
            if minutes[-1] - minutes[0] >= 20:
                stays.append((cell, minutes[-1]))
        for (origin, departed), (destination, _) in pairwise(stays):
            if origin != destination:
                trips.append((person, origin, destination, NINE + datetime.timedelta(minutes=departed)))
    return sorted(trips)


@given(sightings=SIGHTINGS)
def test_the_rule_of_the_page_is_the_one_that_it_states(sightings):
    assert make_trips(sightings) == expect(sightings)


@given(ours=SIGHTINGS, theirs=SIGHTINGS)
def test_sightings_of_one_person_change_no_trips_of_another(ours, theirs):
    own = [(f"ours {person}", cell, minute) for person, cell, minute in ours]
    others = [(f"theirs {person}", cell, minute) for person, cell, minute in theirs]
    assert [trip for trip in make_trips([*own, *others]) if trip[0].startswith("ours")] == make_trips(own)


def test_one_sighting_may_change_several_trips():
    """So unit ``trip`` would not protect it."""
    stay = [("a", cell, minute + begin) for cell, begin in (("X", 0), ("Y", 30), ("X", 60)) for minute in (0, 20)]
    assert len(make_trips(stay)) == 2
    assert make_trips([row for row in stay if row != ("a", "Y", 50)]) == []


def test_there_is_no_reader_of_sightings():
    with pytest.raises(OdError, match=r"OD-READER-UNKNOWN: there is no reader 'cdr' \(known: table, lodes, tlc"):
        find_format("cdr")
