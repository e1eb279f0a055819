"""Groups of areas by day against a count with pandas; faults record by record."""

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from od_core import Geography, OdError
from od_core.group_sizes.groups import AreasByDay
from od_core.records.load import RecordColumns, load_records

ZONES = pd.DataFrame({"region": ["A", "A", "B"], "zone": ["01", "02", "03"]})
GEOGRAPHY = Geography.from_frame(ZONES, ["region", "zone"])
COLUMNS = RecordColumns("home", "home", date="day")


def loaded(folder, records):
    records.to_csv(folder / "given.csv", index=False)
    load_records(folder / "given.csv", COLUMNS, "2001-02", folder / "records.parquet")
    return folder / "records.parquet"


def random_records(number=5_000):
    generator = np.random.default_rng(1)
    days = pd.Timestamp("2001-02-01") + pd.to_timedelta(generator.integers(0, 28, number), "D")
    return pd.DataFrame({"home": generator.choice(["01", "03"], number), "day": days.strftime("%Y-%m-%d")})


def test_sizes_are_those_of_a_group_by(tmp_path):
    records = random_records()
    groups = AreasByDay().count_records(loaded(tmp_path, records), GEOGRAPHY, "2001-02")
    counts = records.groupby(["home", "day"]).size()
    for number, zone in enumerate(GEOGRAPHY.zones):
        expected = sorted(counts[zone]) if zone in counts else []
        expected = [0] * (28 - len(expected)) + expected
        assert groups.size[groups.area == number].tolist() == expected
    of_days = AreasByDay().count_groups_per_area(GEOGRAPHY, 28)
    assert groups.count_per_area(GEOGRAPHY).tolist() == of_days.tolist() == [28] * 3


def test_faults_are_dropped_or_go_to_the_unknown_area(tmp_path):
    """One unlisted area and one day of another month: over the threshold refused, below it decided one by one."""
    faulty = pd.DataFrame({"home": ["99", "01"], "day": ["2001-02-03", "2001-03-01"]})
    file = loaded(tmp_path, pd.concat([random_records(100), faulty]))
    with pytest.raises(OdError, match="OD-TRIPS-FAULTS") as error:
        AreasByDay().count_records(file, GEOGRAPHY, "2001-02", Fraction(1, 100))
    assert "99" not in str(error.value)
    assert AreasByDay().count_records(file, GEOGRAPHY, "2001-02", Fraction(1, 10)).size.sum() == 100
    unknown = Geography.from_frame(ZONES, ["region", "zone"], unknown="02")
    groups = AreasByDay().count_records(file, unknown, "2001-02", Fraction(1, 10))
    assert groups.size.sum() == 101
    assert groups.size[groups.area == 1].tolist() == [0] * 27 + [1]
