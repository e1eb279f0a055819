"""Options of mechanisms as people give them and as they are written down."""

from __future__ import annotations

import re


def whole_number(option: object) -> int | None:
    """The whole number behind an option or its text; None where it is none."""
    if isinstance(option, str) and re.fullmatch(r"-?[0-9]{1,18}", option):
        return int(option)
    return option if isinstance(option, int) and not isinstance(option, bool) else None
