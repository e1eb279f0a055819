"""Tables of other libraries are released as data frames are; what is no table is refused without a value of it."""

from __future__ import annotations

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from od_core import Budget, Geography, OdError, PrivacyUnit, release_flows
from od_core.files.data_frame import data_frame, texts
from od_core.group_sizes.groups import GroupSizes
from tests.od_core.doubles import no_noise

ZONES = pd.DataFrame({"region": ["n", "n", "s"], "zone": ["a", "b", "c"]})
FLOWS = pd.DataFrame({"origin": ["a", "b", "c"], "destination": ["c", "c", "a"], "trips": [10, 20, 1_000]})
GROUPS = pd.DataFrame({"group": ["g", "h"], "area": ["a", "c"], "size": [2, 5]})


class OnlyAStream:
    """As Polars: no Arrow type itself, and text in views."""

    def __init__(self, frame: pd.DataFrame) -> None:
        table = pa.Table.from_pandas(frame, preserve_index=False)
        kinds = {field.name: field.type if field.type == pa.int64() else pa.string_view() for field in table.schema}
        self._table = table.cast(pa.schema(kinds))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


KINDS = {
    "pandas": lambda frame: frame,
    "arrow": pa.Table.from_pandas,
    "batches": lambda frame: pa.Table.from_pandas(frame).to_reader(),
    "duckdb": duckdb.from_df,
    "stream": OnlyAStream,
}


@pytest.mark.parametrize("kind", KINDS)
def test_any_table_is_released_as_the_data_frame_is(kind):
    table = KINDS[kind]
    geography = Geography.from_frame(table(ZONES), ["region", "zone"])
    assert geography.digest == Geography.from_frame(ZONES, ["region", "zone"]).digest
    options = {"unit": PrivacyUnit("trip", "bounded"), "budget": Budget(epsilon=1, delta="1e-8"), "noise": no_noise()}
    released, expected = (release_flows(flows, geography, **options).flows for flows in (table(FLOWS), FLOWS))
    pd.testing.assert_frame_equal(released, expected)
    assert released["trips"].sum() == 1_030
    groups, same = (GroupSizes.from_frame(one, geography) for one in (table(GROUPS), GROUPS))
    np.testing.assert_array_equal(groups.area, same.area)
    assert list(groups.size) == list(same.size) == [2, 5]


@pytest.mark.parametrize("wrong", [FLOWS.to_dict("records"), "trips.csv", None, FLOWS["trips"].to_numpy()])
def test_what_is_no_table_is_refused(wrong):
    with pytest.raises(OdError, match=f"OD-TABLE: {type(wrong).__name__} is not a table"):
        data_frame(wrong)


def test_values_that_pandas_cannot_hold_are_refused_and_not_quoted():
    class Broken:
        def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
            raise ValueError("QX-CANARY")

    with pytest.raises(OdError, match="OD-TABLE: pandas cannot represent the values of this Broken") as refused:
        data_frame(Broken())
    assert "QX-CANARY" not in str(refused.value)
    assert refused.value.__cause__ is None


@pytest.mark.parametrize("values", [["a", None, "é", "a", float("nan")], ["\ud800", "a"], ["a", b"b", 1, pd.NA]])
def test_text_is_the_same_in_every_kind_of_column(values):
    """Values that are not text, or that UTF-8 cannot encode, are NULL."""
    expected = [value if isinstance(value, str) and value != "\ud800" else None for value in values]
    column = pd.Series(values, dtype=object)
    assert texts(column).to_pylist() == expected
    if values[0] != "\ud800":  # of which pandas makes no categories
        assert texts(column.astype("category")).to_pylist() == expected
        assert texts(column.astype("category"), (int,)).to_pylist() == texts(column, (int,)).to_pylist()
