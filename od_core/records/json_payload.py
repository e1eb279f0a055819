"""Read the records of a JSON payload one by one, since a payload may be larger than the memory."""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import IO

_PIECE_CHARACTERS = 1 << 20  # least number of characters that are read at a time
_MAX_VALUE_CHARACTERS = 1 << 26  # far above any record

_decode = json.JSONDecoder().raw_decode
_find_visible = re.compile(r"[^ \t\n\r]").search


class JsonPayload:
    """A JSON object, read piece by piece from a position. All methods raise ValueError if the JSON is invalid."""

    def __init__(self, text: IO[str]) -> None:
        self._text, self._piece, self._position = text, "", 0

    def list_records(self, list_name: str) -> Iterator[str]:
        """Yield the JSON of each record in the list ``list_name``, a member of the object or of its member ``data``.

        Raises ValueError if there is no such list.
        """
        has_list = self._peek() == "{" and (yield from self._read_object(list_name, is_top=True))
        if not has_list:
            raise ValueError("no list of records")
        if self._peek():
            raise ValueError("invalid JSON")

    def _read_object(self, list_name: str, *, is_top: bool) -> Generator[str, None, bool]:
        """Yield the JSON of each record in an object, and return whether the object has the list of records.

        ``is_top`` says that the object is the whole payload, whose member ``data`` may have the list, too.
        """
        has_list = False
        for _ in self._walk("}"):
            name = json.loads(self._read_value())
            self._take(":")
            opening = self._peek()
            if name == list_name and opening == "[":
                has_list = True
                for _ in self._walk("]"):
                    yield self._read_value()
            elif name == "data" and is_top and opening == "{":
                has_list |= yield from self._read_object(list_name, is_top=False)
            else:
                self._read_value()
        return has_list

    def _walk(self, closing: str) -> Iterator[None]:
        """Walk through a list or object: yield before each item, which the caller must read, to ``closing``."""
        self._position += 1
        while self._peek() != closing:
            yield
            if self._peek() != closing:
                self._take(",")
        self._position += 1

    def _peek(self) -> str:
        """Move to the next character that is not blank, and return it; "" at the end of the text."""
        while (found := _find_visible(self._piece, self._position)) is None:
            self._position = len(self._piece)
            if not self._read_on():
                return ""
        self._position = found.start()
        return found[0]

    def _take(self, mark: str) -> None:
        """Move behind the next character that is not blank. Raises ValueError unless it is ``mark``."""
        if self._peek() != mark:
            raise ValueError("invalid JSON")
        self._position += 1

    def _read_value(self) -> str:
        """Return the JSON of the next value, and move behind it."""
        self._peek()
        while True:
            with suppress(ValueError, RecursionError):
                end = _decode(self._piece, self._position)[1]
                if end < len(self._piece):  # a number that ends with the piece may have more digits
                    value, self._position = self._piece[self._position : end], end
                    return value
            if len(self._piece) - self._position > _MAX_VALUE_CHARACTERS or not self._read_on():
                raise ValueError("invalid JSON")

    def _read_on(self) -> bool:
        """Read the next piece of the text, drop what is before the position, and return whether anything was read.

        The piece is at least as long as what is kept, so that the time to read a long value grows linearly.
        """
        rest = self._piece[self._position :]
        more = self._text.read(max(_PIECE_CHARACTERS, len(rest)))
        self._piece, self._position = rest + more, 0
        return bool(more)
