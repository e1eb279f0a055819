"""Noisy vectors: any pieces in, any pieces out, and bytes that tell of the values alone."""

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core.ledger import measurements as noisy_vector
from od_core.ledger.measurements import NoisyVector, write_noisy

any_values = st.lists(st.integers(-(2**62), 2**62) | st.integers(-9, 9), max_size=60)
cuts = st.lists(st.integers(0, 60), max_size=5)


def cut(values: np.ndarray, at: list[int]) -> list[np.ndarray]:
    return np.split(values, sorted(min(place, len(values)) for place in at))


@given(values=any_values, written=cuts, read=cuts, group=st.integers(1, 20))
def test_values_come_back_whatever_the_pieces(values, written, read, group):
    """Row groups, pieces written and pieces read all end at different places, empty pieces among them."""
    values = np.array(values, dtype=np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noisy_vector, "ROW_GROUP", group)
        vector = NoisyVector.from_arrays(cut(values, written))
    assert len(vector) == len(values)
    np.testing.assert_array_equal(vector.read_values(), values)
    expected = cut(values, read)
    pieces = list(vector.iterate_pieces(map(len, expected)))
    for piece, wanted in zip(pieces, expected, strict=True):
        assert piece.dtype == np.int64
        assert not piece.flags.writeable
        assert piece.tolist() == wanted.tolist()


@given(values=any_values, one=cuts, other=cuts)
def test_the_bytes_do_not_tell_how_the_values_were_cut(values, one, other, tmp_path_factory):
    values = np.array(values, dtype=np.int64)
    folder = tmp_path_factory.mktemp("vectors")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noisy_vector, "ROW_GROUP", 7)
        write_noisy(folder / "one", cut(values, one))
        write_noisy(folder / "other", cut(values, other))
    assert (folder / "one").read_bytes() == (folder / "other").read_bytes()


def test_any_reader_reads_plain_integers_and_noise_takes_few_bits(tmp_path):
    values = np.rint(np.random.default_rng(1).normal(0, 18.8, 3_000_000)).astype(np.int64)
    path = tmp_path / "noisy.parquet"
    write_noisy(path, np.array_split(values, 11))
    table = pq.read_table(path)
    assert table.column_names == ["noisy"]
    np.testing.assert_array_equal(table["noisy"].to_numpy(), values)
    groups = [pq.ParquetFile(path).metadata.row_group(k).num_rows for k in range(3)]
    assert groups == [1 << 20, 1 << 20, 3_000_000 - (2 << 20)]
    assert path.stat().st_size * 8 / len(values) < 8.5  # the noise itself has 6.3 bits
