"""What is no table is refused without a value of it; text is the same in every kind of column."""

import pandas as pd
import pytest

from od_core import OdError
from od_core.files.data_frame import convert_to_data_frame, convert_to_texts

FLOWS = pd.DataFrame({"origin": ["a"], "destination": ["c"], "trips": [10]})


@pytest.mark.parametrize("wrong", [FLOWS.to_dict("records"), "trips.csv", None, FLOWS["trips"].to_numpy()])
def test_what_is_no_table_is_refused(wrong):
    with pytest.raises(OdError, match=f"OD-TABLE: {type(wrong).__name__} is not a table"):
        convert_to_data_frame(wrong)


def test_values_that_pandas_cannot_hold_are_refused_and_not_quoted():
    class Broken:
        def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
            raise ValueError("QX-CANARY")

    with pytest.raises(OdError, match="OD-TABLE: pandas cannot represent the values of this Broken") as refused:
        convert_to_data_frame(Broken())
    assert "QX-CANARY" not in str(refused.value)
    assert refused.value.__cause__ is None


@pytest.mark.parametrize("values", [["a", None, "é", "a", float("nan")], ["\ud800", "a"], ["a", b"b", 1, pd.NA]])
def test_text_is_the_same_in_every_kind_of_column(values):
    """Values that are not text, or that UTF-8 cannot encode, are NULL."""
    expected = [value if isinstance(value, str) and value != "\ud800" else None for value in values]
    column = pd.Series(values, dtype=object)
    assert convert_to_texts(column).to_pylist() == expected
    if values[0] != "\ud800":  # of which pandas makes no categories
        assert convert_to_texts(column.astype("category")).to_pylist() == expected
        category = convert_to_texts(column.astype("category"), (int,))
        assert category.to_pylist() == convert_to_texts(column, (int,)).to_pylist()
