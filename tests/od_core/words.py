"""Sources of words for tests of the table: chosen bits, few bits a word, and a record of what was given."""

import numpy as np
from numpy.typing import NDArray

from od_core.noise.table_sampler import Keystream, Words


def _kind(bits: int) -> type[np.unsignedinteger]:
    return np.uint16 if bits <= 16 else np.uint64


class ExhaustedError(Exception):
    """More bits were asked for than were listed."""


class ListedWords:
    """The bits of one number, from the highest on."""

    def __init__(self, number: int, bits: int) -> None:
        self.number, self.left = number, bits

    def draw_words(self, bits: int, size: int) -> NDArray[np.unsignedinteger]:
        given = np.empty(size, dtype=_kind(bits))
        for i in range(size):
            if self.left < bits:
                raise ExhaustedError
            self.left -= bits
            given[i] = self.number >> self.left & ((1 << bits) - 1)
        return given


class ListedArrays:
    """Prepared arrays of words, one a call."""

    def __init__(self, *arrays: NDArray[np.int64]) -> None:
        self._arrays = iter(arrays)

    def draw_words(self, bits: int, size: int) -> NDArray[np.unsignedinteger]:
        array = next(self._arrays, None)
        if array is None:
            raise ExhaustedError
        assert (len(array), bool(np.all(array >> bits == 0))) == (size, True)
        return array.astype(_kind(bits))


class NarrowWords:
    """Real words of which only the highest bits are used."""

    def __init__(self) -> None:
        self._keystream = Keystream()

    def draw_words(self, bits: int, size: int) -> NDArray[np.unsignedinteger]:
        wide = 16 if bits <= 16 else 64
        return self._keystream.draw_words(wide, size) >> _kind(bits)(wide - bits)


class RecordedWords:
    """The words of another source, kept in the order of the calls."""

    def __init__(self, source: Words) -> None:
        self._source = source
        self.given: list[tuple[int, NDArray[np.unsignedinteger]]] = []

    def draw_words(self, bits: int, size: int) -> NDArray[np.unsignedinteger]:
        words = self._source.draw_words(bits, size)
        self.given.append((bits, words.copy()))
        return words
