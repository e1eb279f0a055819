"""Mutants of the whole product: small defects, each with the tests that must find it.

The tables in this folder list them, a table for each package. A mutant replaces ``old``, a text that its file has once,
with ``new``. They were chosen by a seeded sample of all functions, in proportion to their lines of logic; those of
``meaning.yaml`` are pages and promises that say what is not so. ``python -m tests.mutants`` checks that each is still
found, so that a change of the tests that loses one is seen.
"""

import multiprocessing
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
LONGEST = 600
"""Seconds after which a test that does not end is taken for one that found the mutant."""

_LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", "build", "node_modules", "var")
FORKED = multiprocessing.get_context("forkserver")
"""Starts the processes that run tests, from one that has imported what they need: that takes most of their time."""

FORKED.set_forkserver_preload(
    ["dagster", "duckdb", "hypothesis", "numba", "pandas", "pyarrow.parquet", "pytest", "scipy.optimize"]
)

_COMMON = {"test", "tests", "of", "the", "a", "and", "in", "init", "py"}
_FAILED, _NO_SUCH_TEST = 1, (4, 5)  # how pytest ends


@dataclass(frozen=True)
class Mutant:
    """A defect: a text of a file and what replaces it, and the tests that find it."""

    file: str
    old: str
    new: str
    tests: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.file}: {' '.join(self.new.split()) or 'without ' + ' '.join(self.old.split())}"[:150]


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant, and which test found it."""

    mutant: Mutant
    state: str
    test: str = ""
    seconds: float = 0

    @property
    def is_caught(self) -> bool:
        """Whether a test found the mutant."""
        return self.state == "caught"


def listed(pattern: str = "") -> list[Mutant]:
    """Return the mutants of all tables whose file or tests contain a text."""
    rows = [row for table in sorted(Path(__file__).parent.glob("*.yaml")) for row in yaml.safe_load(table.read_text())]
    mutants = [Mutant(row["file"], row["old"], row["new"], tuple(row["tests"])) for row in rows]
    return [mutant for mutant in mutants if pattern in " ".join((mutant.file, *mutant.tests))]


class Copy:
    """A copy of the checkout in which mutants are tried, with machine code and temporary files of its own."""

    def __init__(self, folder: Path) -> None:
        self.root, self._said = folder / "checkout", folder / "said"
        if not self.root.exists():
            shutil.copytree(ROOT, self.root, ignore=_LEFT_OUT)
        self._kernels = folder / "kernels"
        (folder / "tmp").mkdir(mode=0o711, exist_ok=True)
        self._kernels.mkdir(mode=0o700, exist_ok=True)
        places = {"TMPDIR": folder / "tmp", "NUMBA_CACHE_DIR": self._kernels, "PYTHONPATH": self.root}
        self._environment = {name: str(place) for name, place in places.items()}
        self.pytest("--version")  # makes the folder of machine code of the sources without a mutant

    def pytest(self, *arguments: str) -> tuple[int | None, str]:
        """Run tests in the copy; return how pytest ended, or None if it did not end, and what it printed."""
        sound = min(self._kernels.iterdir(), key=lambda folder: folder.stat().st_ctime_ns, default=None)
        process = FORKED.Process(target=_run, args=(self.root, self._environment, sound, arguments, self._said))
        process.start()
        process.join(LONGEST)
        if process.exitcode is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.join()
            return None, ""
        return process.exitcode, self._said.read_text(encoding="utf-8", errors="replace")

    def failing(self, tests: Sequence[str]) -> str:
        """Return what pytest says of tests that fail without any mutant, or nothing."""
        state, said = self.pytest(*tests)
        return "" if state == 0 else said

    def outcome(self, mutant: Mutant, tests: Sequence[str]) -> Outcome:
        """Return which of some tests finds a mutant first. They run until one fails."""
        file, begun = self.root / mutant.file, time.perf_counter()
        text = file.read_text(encoding="utf-8") if file.is_file() else ""
        if text.count(mutant.old) != 1:
            return Outcome(mutant, "not found" if mutant.old not in text else "found more than once")
        stated = file.stat()
        try:
            file.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
            state, said = self.pytest("-x", *tests)
        finally:
            file.write_text(text, encoding="utf-8")
            os.utime(file, ns=(stated.st_atime_ns, stated.st_mtime_ns))  # compiled code of it is valid again
            bytecode = Path(cache_from_source(str(file)))  # would serve the next mutant of this second and size
            bytecode.unlink(missing_ok=True)
            for other in sorted(self._kernels.iterdir(), key=lambda folder: folder.stat().st_ctime_ns)[1:]:
                shutil.rmtree(other)
        took = time.perf_counter() - begun
        if state is None:
            return Outcome(mutant, "caught", "does not end", took)
        if state == _FAILED and (found := re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", said, re.MULTILINE)):
            return Outcome(mutant, "caught", found[1], took)
        if state in _NO_SUCH_TEST:
            return Outcome(mutant, "no such test", "", took)
        return Outcome(mutant, "survived" if state == 0 else f"pytest ended with {state}", "", took)


def _run(root: Path, environment: dict[str, str], sound: Path | None, arguments: Sequence[str], said: Path) -> None:
    """Run pytest in this process, which is a new one, with the modules of a copy, and end with its exit code.

    Args:
        root: the copy.
        environment: variables of the environment to set.
        sound: machine code of the sources without a mutant. Most of it is valid with a mutant, too: Numba compiles what
            is in the changed file again. Callers in other files keep the code without the mutant, so that a mutant may
            survive because of it, but none is caught because of it.
        arguments: what to run.
        said: file for what pytest prints.
    """
    os.setsid()
    output = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ.update(environment)
    tempfile.tempdir = None
    os.chdir(root)
    sys.dont_write_bytecode = False
    sys.path.insert(0, str(root))
    for name in [name for name in sys.modules if name.partition(".")[0] in ("od_core", "od_assets", "tests")]:
        del sys.modules[name]
    import od_assets
    import od_core

    if not all(Path(str(package.__file__)).is_relative_to(root) for package in (od_core, od_assets)):
        raise RuntimeError(
            "the copy is not what Python imports"
        )  # but the installed packages, which are the checkout's
    from od_core.kernels import make_cache_folder

    kernels = make_cache_folder()
    if sound is not None and kernels is not None and not any(kernels.iterdir()):
        shutil.copytree(sound, kernels, dirs_exist_ok=True)
    options = ("-q", "-p", "no:cacheprovider", "--assert=plain", "--tb=no", "-rfE")
    sys.exit(pytest.main([*options, *arguments]))


def nearest(mutant: Mutant) -> list[str]:
    """Return the fast test files that are nearest to a mutant's file, by their names and by the names that they use."""
    text = (ROOT / mutant.file).read_text(encoding="utf-8")
    names = set(re.findall(r"^(?:class|def|    def) ([A-Za-z]\w+)", text, re.MULTILINE))
    around = re.findall(r"(?:class|def) _*(\w+)", text[: text.find(mutant.old)])[-1:]
    module, folders = mutant.file.removesuffix(".py").replace("/", "."), Path(mutant.file).parts
    words = _words(mutant.file)
    ranked = []
    for path in _fast_tests():
        used = set(re.findall(r"\w+", said := path.read_text(encoding="utf-8")))
        place = path.relative_to(ROOT)
        score = 6 * len(words & _words(path.stem)) + 4 * (f"from {module} import" in said) + 3 * len(used & set(around))
        score += min(len(used & names), 4) + 4 * len(set(folders[:-1]) & set(place.parts))
        ranked.append((-score, path.stat().st_size, str(place)))
    return [name for _, _, name in sorted(ranked)[:8]]


def _fast_tests() -> Iterator[Path]:
    for package in ("od_core", "od_assets"):
        yield from (ROOT / "tests" / package).rglob("test_*.py")


def _words(name: str) -> set[str]:
    """Return the words of a module's name, without plurals, so that they are found in names of tests."""
    return {word.rstrip("s") for word in re.split(r"[^a-z]+", name.split("/")[-1].lower())} - _COMMON - {""}
