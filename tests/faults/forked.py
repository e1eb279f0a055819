"""Processes that run a module of this folder."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

from tests.forked import SERVER


def _run(module: str, arguments: list[str], environment: dict[str, str], said: list[Path]) -> None:
    """Run a module as ``python -m`` does, which writes what it says to two files."""
    for stream, path in enumerate(said, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), stream)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [module, *arguments]
    runpy.run_module(f"tests.faults.{module}", run_name="__main__")


class Forked:
    """A forked process, with the methods of :class:`subprocess.Popen` that tests use."""

    def __init__(self, module: str, arguments: list[str], folder: Path) -> None:
        self._said = [folder / "output", folder / "errors"]
        self._process = SERVER.Process(target=_run, args=(module, arguments, dict(os.environ), self._said))
        self._process.start()
        self.pid, self.kill = self._process.pid, self._process.kill

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for the end of the process, and return what it wrote to both streams."""
        self._process.join(timeout)
        if self.returncode is None and timeout is not None:
            raise subprocess.TimeoutExpired(self._process.name, timeout)
        output, errors = (path.read_text(encoding="utf-8") if path.exists() else "" for path in self._said)
        return output, errors
