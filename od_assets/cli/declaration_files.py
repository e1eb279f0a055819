"""Write the files of a new declaration as YAML, and remove them if the declaration is refused."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from od_core.errors import OdError
from od_core.files.durable import PUBLIC_FILE_MODE, write_durably

_WIDTH = 110
"""Maximum number of characters in a line of YAML."""


def yaml_block(declared: Mapping[str, Any], indent: int = 0) -> str:
    """Return YAML with one line per field. A section that is too long for a line has one line per field of its own."""
    lines = ""
    for name, value in declared.items():
        line = f"{' ' * indent}{name}: {_flow(value)}\n"
        if len(line) > _WIDTH and isinstance(value, dict):
            line = f"{' ' * indent}{name}:\n{yaml_block(value, indent + 2)}"
        lines += line
    return lines


def _flow(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=math.inf, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")


def write_text(path: Path, text: str) -> None:
    """Write a text file that everybody may read. The file is whole or absent."""
    write_durably(path, lambda file: file.write_text(text, encoding="utf-8"), mode=PUBLIC_FILE_MODE)


def make_file(path: Path, text: str, made: list[Path]) -> None:
    """Write a new file, and its folder if needed, and add both to ``made``. Raises OdError if it exists."""
    try:
        if not path.parent.exists():
            path.parent.mkdir()
            made.append(path.parent)
        path.open("x").close()  # never overwrite a file created in the meantime
        made.append(path)
        write_text(path, text)
    except FileExistsError:
        raise already_there(path) from None
    except OSError as error:
        raise OdError(
            "OD-INIT-WRITE",
            f"{path.parent.name}/{path.name} cannot be written: {error.strerror}",
            next_step="correct the rights or the disk of the folder of the declarations",
        ) from None


@contextmanager
def removed_if_refused() -> Iterator[list[Path]]:
    """Yield an empty list for the paths that the body creates, and remove these paths if the body raises."""
    made: list[Path] = []
    try:
        yield made
    except BaseException as error:
        for path in reversed(made):
            if path.is_dir():
                path.rmdir()
            else:
                path.unlink(missing_ok=True)
        if isinstance(error, OdError):
            step = f"{error.next_step}: no file was kept, so run init again with another answer"
            raise error.changed(next_step=step) from None
        raise


def already_there(path: Path) -> OdError:
    """Return the OdError for a file that ``init`` would overwrite."""
    where = f"{path.parent.name}/{path.name}"
    return OdError(
        "OD-INIT-EXISTS",
        f"{where} exists already",
        next_step="choose another name; or remove it, if nothing was released with it",
    )
