"""Generate uniform random words with AES-256 in counter mode. The operating system provides each key."""

from __future__ import annotations

import os
from typing import Any, Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

_ZEROS = memoryview(bytes(1 << 19))
"""Plaintext to encrypt: it fits in the cache, and is so long that threads rarely wait for the interpreter's lock."""


class Words(Protocol):
    """A source of uniform random bits."""

    def words(self, bits: int, size: int) -> NDArray[Any]:
        """Return the next ``size`` unsigned words of ``bits`` random bits each; shape (size,)."""
        ...


class Keystream:
    """A stream of uniform words. Each stream has its own random key, which exists only inside this object.

    Make a new stream in every call that draws. Then neither two threads nor two processes after a fork can use the same
    stream.
    """

    __slots__ = ("_encryptor",)

    def __init__(self) -> None:
        key, nonce = os.urandom(32), os.urandom(16)
        self._encryptor = Cipher(algorithms.AES256(key), modes.CTR(nonce)).encryptor()

    def words(self, bits: int, size: int) -> NDArray[Any]:
        """Return the next ``size`` unsigned words of ``bits`` random bits each, 16 or 64; shape (size,)."""
        words = np.empty(size, dtype=f"u{bits // 8}")
        room = words.view(np.uint8).data
        for start in range(0, len(room), len(_ZEROS)):
            piece = room[start : start + len(_ZEROS)]
            self._encryptor.update_into(_ZEROS[: len(piece)], piece)
        return words
