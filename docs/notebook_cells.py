"""Execute the notebooks of the documentation, and show them as pages. No Jupyter is needed.

    python docs/notebook_cells.py docs/tutorial/library.ipynb

executes a notebook in a temporary copy of its folder, and stores the outputs in it.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[1]
LIBRARY = ROOT / "docs" / "tutorial" / "library.ipynb"


def read(notebook: Path) -> dict[str, Any]:
    """Return a notebook in the format nbformat 4."""
    content: dict[str, Any] = json.loads(notebook.read_text(encoding="utf-8"))
    return content


def executed(notebook: dict[str, Any]) -> tuple[list[list[dict[str, Any]]], dict[str, Any]]:
    """Execute the code cells in order, where ``../../data`` is the data of the repository.

    Returns:
        The outputs of each code cell, and the names that the cells defined.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    before = Path.cwd()
    with TemporaryDirectory() as folder:
        here = Path(folder) / "docs" / "tutorial"
        here.mkdir(parents=True)
        (Path(folder) / "data").symlink_to(ROOT / "data")
        os.chdir(here)
        try:
            codes = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
            return [_outputs("".join(cell["source"]), names, number) for number, cell in enumerate(codes, 1)], names
        finally:
            os.chdir(before)


def _outputs(source: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """Execute one cell, and return what it prints and the value of its last expression, as Jupyter does."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, f"cell {number}", "exec"), names)  # noqa: S102  # a notebook of our own
        value = None
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)  # noqa: S307
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": _lines(printed.getvalue())})
    if value is not None:
        data = {"text/plain": _lines(repr(value))}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = _lines(value._repr_html_())
        result = {"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"}
        outputs.append(result)
    return outputs


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def shown(output: dict[str, Any]) -> str:
    """Return an output as plain text."""
    return "".join(output["text"] if output["output_type"] == "stream" else output["data"]["text/plain"]).rstrip()


def page(notebook: Path = LIBRARY) -> Iterator[str]:
    """Yield a notebook as Markdown: its text, its code, and its stored outputs."""
    for cell in read(notebook)["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            yield f"\n{source}\n"
            continue
        yield f"\n```python\n{source}\n```\n"
        for output in cell["outputs"]:
            html = output.get("data", {}).get("text/html")
            is_release = html is not None and "".join(html).startswith("<table>")
            yield "\n" + ("".join(html) if is_release else f"```text\n{shown(output)}\n```") + "\n"


def main() -> None:
    """Execute the notebooks that are named, and store their outputs."""
    for name in sys.argv[1:]:
        notebook = read(Path(name))
        outputs, _ = executed(notebook)
        codes = (cell for cell in notebook["cells"] if cell["cell_type"] == "code")
        for number, (cell, made) in enumerate(zip(codes, outputs, strict=True), 1):
            cell["execution_count"], cell["outputs"] = number, made
        Path(name).write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
