"""What belongs to the checkout's user and to no test: ``var``, where releases and their budget ledger are."""

import os
import re
import traceback
from pathlib import Path
from typing import Any

from tests.audited import listen

VAR = Path(__file__).parents[1] / "var"

_RELATIVE = re.compile("//|/[.]{1,2}(/|$)")
"""What an absolute path has that does not begin like the folder, but may lead into it."""

_TOUCHED: list[str] = []


def refuse_what_was_touched() -> None:
    """Fail where a file below the checkout's ``var`` was opened, listed or changed since this was last asked."""
    seen = _TOUCHED.copy()
    _TOUCHED.clear()
    assert not seen, f"a test uses the checkout's own var: {seen}"


def _is_of_no_test() -> bool:
    """Whether pkgutil looks into every folder beside the packages, or shutil removes another folder, which it opened.

    Frictionless lets pkgutil find plug-ins. The names that shutil removes are relative to that other folder.
    """
    frames = [frame for frame, _ in traceback.walk_stack(None)]
    return any(
        frame.f_globals.get("__name__") == "pkgutil" or frame.f_code.co_name == "_rmtree_safe_fd" for frame in frames
    )


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    for argument in arguments[:1] if event == "open" else arguments:  # the second is a mode
        if isinstance(argument, (str, bytes, os.PathLike)):
            place = os.fsdecode(argument).removeprefix("file:")
            if place.startswith("/") and not place.startswith(str(VAR)) and not _RELATIVE.search(place):
                continue  # this is nearly every file, and most of what a listener costs
            path = os.path.abspath(place)  # noqa: PTH100  # links are left as they are
            if f"{path}/".startswith(f"{VAR}/") and not _is_of_no_test():
                _TOUCHED.append(f"{event} {place}")


listen(_note)  # from here on, so that fixtures of the whole session are heard as well
