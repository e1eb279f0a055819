"""Tests of what another user than root may not read or write."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

_NOBODY = 65534


@contextmanager
def without_rights_of_root() -> Iterator[None]:
    """Root may read everything; another user may not."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)
