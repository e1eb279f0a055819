"""Tables in files: the same counts as from a frame, and a mark that says why their truth may be known."""

import pickle
from functools import partial

import numpy as np
import pandas as pd
import pytest

from od_core import Geography, OdError
from od_core.evaluation.known_flows import KnownFlows, read_known_flows
from od_core.records.load import RecordColumns

ZONES = pd.DataFrame({"region": ["A", "A", "B"], "zone": ["01", "02", "03"]})
FLOWS = pd.DataFrame({"home": ["01", "03", "01"], "work": ["02", "03", "02"], "count": [5, 7, 2]})
COLUMNS = RecordColumns("home", "work", trips="count")


def known_table(folder, marking="public", **changes):
    given = {"flows": folder / "flows.csv", "zones": folder / "zones.csv", "columns": COLUMNS} | changes
    return partial(read_known_flows, "commuters", marking, levels=("region", "zone"), **given)


@pytest.fixture
def folder(tmp_path):
    FLOWS.to_csv(tmp_path / "flows.csv", index=False)
    ZONES.to_csv(tmp_path / "zones.csv", index=False)
    return tmp_path


def test_a_file_gives_what_a_frame_gives(folder):
    """Counts, truth and digest; also after the table was sent to another process, as a comparison does."""
    read = pickle.loads(pickle.dumps(known_table(folder)))()  # noqa: S301  # our own
    frame = FLOWS.set_axis(["origin", "destination", "trips"], axis="columns")
    expected = KnownFlows.from_frame("commuters", "public", frame, Geography.from_frame(ZONES, ["region", "zone"]))
    assert read.digest == expected.digest
    for mine, other in zip(read.truth.levels, expected.truth.levels, strict=True):
        assert np.array_equal(mine, other)


def test_a_table_that_is_not_marked_is_refused_by_name_before_it_is_read(tmp_path):
    with pytest.raises(OdError, match="OD-EVALUATION-CONFIDENTIAL: data set 'commuters' is not marked"):
        known_table(tmp_path / "absent", "confidential")()


def test_faulty_files_are_refused(folder):
    with pytest.raises(OdError, match="OD-FILE-MISSING"):
        known_table(folder, flows=folder / "absent.csv")()
    FLOWS.replace({"03": "99"}).to_csv(folder / "flows.csv", index=False)
    with pytest.raises(OdError, match="OD-TRIPS-FAULTS"):
        known_table(folder)()
