"""Trials of the soak: a release that a fault meets, run again, and what must hold of it then.

A trial is named by a text from which it can be repeated, as ``flows.first.table:kill@137``: the kind of release,
whether it is the first in its folder or a later one, the noise backend, and the fault with the number of the operation
that it meets; two faults, the second in the run that takes up the first, are joined by ``+``. A power cut is named
``flows.later.table:strict@137~5``: the model, the last operation before the cut, and a seed of what it leaves; one of
the run that takes up another fault ``flows.later.table:kill@137+strict@20~5``.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import traceback
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import duckdb

from od_core.errors import OdError
from od_core.ledger.release_key import ReleaseKey
from od_core.publication.bundle_files import check_checksums
from od_core.publication.database import CLOSED_SETTINGS
from od_core.published.publishing import Published
from od_core.published.verification import verify_release
from tests.faults.soak_models import MODELS, Disk, kept_by_cut
from tests.faults.soak_releases import EARLIER, PERIOD, RELEASES, marked, publish
from tests.faults.soak_shim import FAULTS, Operation, arm, operations
from tests.od_core.ledger.ledger_rows import ledger_at, rows
from tests.postgres import Server

RUNS = 2
"""How often an operator runs a release again before it must be published."""

LONGEST = 300
"""Seconds after which a run that does not end is ended; what it leaves is looked at as ever."""

_NAME = re.compile(r"(\w+)\.(first|later)\.(\w+):(.+)")


Runs = list[list[Operation]]
"""The operations of each run, one after the other."""

Shown = dict[str, bytes]
"""Public files that somebody may have read, and their bytes."""


@dataclass(frozen=True)
class Start:
    """What is run, and where it begins.

    Attributes:
        kind: of release.
        begin: ``first``, in an empty folder; ``later``, beside a published release of the period before.
        noise: name of the backend.
    """

    kind: str
    begin: str
    noise: str

    def __str__(self) -> str:
        return f"{self.kind}.{self.begin}.{self.noise}"


@dataclass(frozen=True)
class Trial:
    """One trial.

    Attributes:
        start: what is run.
        faults: each with the number of the operation that it meets, run after run; of a power cut, which is the last,
            the model.
        seed: of what a power cut leaves.
    """

    start: Start
    faults: tuple[tuple[str, int], ...]
    seed: int | None = None

    def __str__(self) -> str:
        faults = "+".join(f"{fault}@{number}" for fault, number in self.faults)
        return f"{self.start}:{faults}" + ("" if self.seed is None else f"~{self.seed}")

    @classmethod
    def named(cls, text: str) -> Trial:
        """The trial of that name. Raises ValueError where it is none."""
        match = _NAME.fullmatch(text)
        if match is None or match[1] not in RELEASES:
            raise ValueError(f"no trial: {text}")
        faults, _, seed = match[4].partition("~")
        pairs = [fault.partition("@") for fault in faults.split("+")]
        if any(fault not in FAULTS[1:] for fault, _, _ in pairs[:-1]) or pairs[-1][0] not in (
            MODELS if seed else FAULTS[1:]
        ):
            raise ValueError(f"no trial: {text}")
        met = tuple((fault, int(number)) for fault, _, number in pairs)
        return cls(Start(match[1], match[2], match[3]), met, int(seed) if seed else None)


@dataclass
class Outcome:
    """What came of a trial.

    Attributes:
        ended: of each disturbed run, how it ended.
        places: of each of its faults that was met, where: as :func:`places`.
        violations: what did not hold, a line each; empty where all did.
        draws: how many were begun, in all runs; of a level in parts, those of the part that was drawn most often.
        charges: how many were set aside.
    """

    ended: list[str] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    draws: int = 0
    charges: int = 0


class Soak:
    """Where trials run: a folder with the releases that later ones begin beside, and what each start does undisturbed.

    Args:
        folder: an empty one; in memory it is fastest, since no disk is tested.
        kinds: of releases that are tried.
        server: that has the ledgers; None for SQLite files in the folders.
    """

    def __init__(self, folder: Path, kinds: Sequence[str], server: Server | None = None) -> None:
        self._folder, self._server = folder.resolve(), server
        self._undisturbed: dict[Start, list[Operation]] = {}
        self._earlier: dict[str, dict[str, object]] = {}
        for kind in dict.fromkeys(kinds):  # compiles and loads what the children share
            (self._folder / kind).mkdir()
            if server:
                server.new_ledger(self._folder / kind)
            verify_release(publish(self._folder / kind, kind, "table", EARLIER))
            self._earlier[kind] = _rows_of(self._folder / kind / "release.duckdb", str(ReleaseKey(kind, EARLIER)))
        gc.freeze()  # children look at what they collect, and each page that they touch is copied
        atexit.register(gc.unfreeze)

    def undisturbed(self, start: Start) -> list[Operation]:
        """What a start does undisturbed. Raises RuntimeError where the log of operations does not give its files."""
        if start not in self._undisturbed:
            root, log = self._begun(start)
            now = Disk(root)
            ended = self._run(start, root, log, f"{start}", "none", 0)
            made = list(operations(log, root))
            now.apply(made)
            if ended != "published" or now.contents() != {
                f"{path.relative_to(root)}": path.read_bytes() for path in root.rglob("*") if path.is_file()
            }:
                raise RuntimeError(f"{start}: {ended}, or operations are missing from the log")
            self._undisturbed[start] = made
        return self._undisturbed[start]

    def trial(self, trial: Trial) -> Outcome:
        """Make a trial."""
        root, log = self._begun(trial.start)
        try:
            disturbed = self._disturbed if trial.seed is None else self._cut
            outcome, made, shown = disturbed(trial, root, log)
            self._look(trial, root, log, shown, outcome)
            made.append(list(operations(log, root)))
            _count(root, trial.start.kind, made, outcome)
            return outcome
        finally:
            if self._server:
                self._server.drop_ledger(root)
            shutil.rmtree(root.parent)

    def _disturbed(self, trial: Trial, root: Path, log: Path) -> tuple[Outcome, Runs, Shown]:
        """Meet the faults, run after run."""
        outcome, runs = Outcome(), []
        for number, (fault, at) in enumerate(trial.faults):
            outcome.ended.append(self._run(trial.start, root, log, f"{trial} {number}", fault, at))
            runs.append(list(operations(log, root)))
            log.unlink()
            outcome.places += [place for place, done in zip(places(runs[-1]), runs[-1], strict=True) if _met(done)]
        return outcome, runs, {}

    def _cut(self, trial: Trial, root: Path, log: Path) -> tuple[Outcome, Runs, Shown]:
        """Make what a power cut leaves, of the first run, or of one that takes up another fault.

        A server of ledgers is another machine, and loses nothing: a run that is killed after the last operation before
        the cut leaves it as it is then.
        """
        *before_cut, (model, cut) = trial.faults
        before, made, outcome = Disk(root), [], Outcome()
        if before_cut:
            outcome, (made,), _ = self._disturbed(replace(trial, faults=tuple(before_cut)), root, log)
        self._run(trial.start, root, log, f"{trial} last", "kill", cut + 1)
        made = made + [done for done in operations(log, root) if done.number <= cut]
        public = public_files(root)
        log.unlink()
        chance = random.Random(f"{trial}")  # noqa: S311  # to be repeated
        before.apply(kept_by_cut(made, chance, model))
        shutil.rmtree(root)
        before.write(root, chance, model)
        bundle = f"releases/{ReleaseKey(trial.start.kind, PERIOD).folder}"
        is_public = any(done.kind == "RENAME" and done.second == bundle for done in made)
        outcome.ended.append("cut")
        outcome.places.append(places(made)[-1])
        return outcome, [made], public if is_public else {}

    def _begun(self, start: Start) -> tuple[Path, Path]:
        """A folder in which a start is about to be run, and the place of the log."""
        above = Path(tempfile.mkdtemp(dir=self._folder))
        root = above / "root"
        earlier = self._folder / start.kind if start.begin == "later" else None
        if earlier:
            shutil.copytree(earlier, root)
        else:
            root.mkdir()
        if self._server:
            self._server.new_ledger(root, like=earlier)
        return root, above / "log"

    def _run(self, start: Start, root: Path, log: Path, seed: str, fault: str, at: int) -> str:
        """Release and publish in a process of its own; how it ended."""
        said = log.with_name("said")

        def run():
            marked(seed)
            arm(root, log, at, fault)
            ended = _tried(start, root)
            said.write_text(ended or "published")

        said.unlink(missing_ok=True)
        signal_number = _forked(run, log.with_name("output"))
        if signal_number not in (0, signal.SIGKILL):
            return f"ended by {signal.Signals(signal_number).name}"
        return said.read_text() if said.exists() else "killed"

    def _look(self, trial: Trial, root: Path, log: Path, shown: dict[str, bytes], outcome: Outcome) -> None:
        """Look at what is public, run the release again, and verify it, in a process of its own."""
        start, said = trial.start, log.with_name("violations")
        earlier = self._folder / start.kind

        def look():
            marked(f"{trial} again")
            violations = list(damaged(root))
            arm(root, log)
            seen = public_files(root) | shown
            if start.begin == "later":
                violations += differing_earlier(root, start.kind, self._earlier[start.kind])
                seen |= public_files(earlier)
            errors = []
            while len(errors) < RUNS and (error := _tried(start, root)):
                errors.append(error)
            if len(errors) == RUNS:
                violations.append(f"running again does not end it: {errors[-1]}")
            else:
                ledger = ledger_at(root / "ledger.sqlite")
                place = Published.from_folder(root, ReleaseKey(start.kind, PERIOD), ledger)
                violations += [f"{found.part}: {found.fault}" for found in verify_release(place) if found.fault]
                now = public_files(root)
                violations += [f"{name} was public, and is another" for name in seen if now.get(name) != seen[name]]
                if start.begin == "later":
                    violations += differing_earlier(root, start.kind, self._earlier[start.kind])
            said.write_text(json.dumps(violations))

        output = log.with_name("output")
        signal_number = _forked(look, output)
        found = json.loads(said.read_text()) if said.exists() else [f"no look at it: {signal_number}, {_end(output)}"]
        outcome.violations += [line.replace(str(root), "") for line in dict.fromkeys(found)]


def places(made: Sequence[Operation]) -> list[str]:
    """Where each operation lies: in a ``draw``, between DRAWING and MEASURED (``window``), or ``elsewhere``."""
    drawing: set[str] = set()
    drawn: set[str] = set()
    found = []
    for done in made:
        found.append("draw" if drawn else "window" if drawing else "elsewhere")
        if done.kind == "MARK":
            word, _, name = done.path.partition(" ")
            if word in ("DRAWING", "MEASURED"):
                (drawing.add if word == "DRAWING" else drawing.discard)(name)
            elif word in ("draw", "drawn"):
                (drawn.add if word == "draw" else drawn.discard)(name)
    return found


def public_files(root: Path) -> dict[str, bytes]:
    """The files that a reader of the public folder finds."""
    paths = [path.relative_to(root) for path in (root / "releases").rglob("*") if path.is_file()]
    return {f"{path}": (root / path).read_bytes() for path in paths if not any(part[0] == "." for part in path.parts)}


def damaged(root: Path) -> Iterator[str]:
    """What is wrong with public files, however far their release has come."""
    for bundle in (root / "releases").glob("*/*/r*"):
        if bundle.is_dir():
            yield from (f"damaged public file: {bundle.name}/{name} {fault}" for name, fault in check_checksums(bundle))
        else:
            try:
                whole = zipfile.ZipFile(bundle).testzip() is None
            except (OSError, zipfile.BadZipFile):
                whole = False
            if not whole:
                yield f"damaged public file: {bundle.name}"
    database = root / "release.duckdb"
    if database.exists():
        try:
            duckdb.connect(str(database), read_only=True, config=CLOSED_SETTINGS).close()
        except duckdb.Error as error:
            yield f"damaged public file: release.duckdb ({str(error).partition(chr(10))[0][:100]})"


def differing_earlier(root: Path, kind: str, expected: dict[str, object]) -> list[str]:
    """Where the database does not hold of the period before what it held."""
    try:
        now = _rows_of(root / "release.duckdb", str(ReleaseKey(kind, EARLIER)))
    except duckdb.Error:
        return ["the database that held the period before cannot be read"]
    return [] if now == expected else ["the database holds another period before"]


def _rows_of(database: Path, key: str) -> dict[str, object]:
    """How many rows each table has of a release, and a sum over them."""
    with closing(duckdb.connect(str(database), read_only=True, config=CLOSED_SETTINGS)) as connection:
        tables = connection.execute("SELECT DISTINCT table_name FROM duckdb_columns() WHERE column_name = 'release'")
        names = [name for (name,) in tables.fetchall() if not name.endswith("by_level")]
        query = "SELECT count(*), bit_xor(hash(one)) FROM {} one WHERE release = ?"
        return {name: connection.execute(query.format(name), [key]).fetchone() for name in names}


def _count(root: Path, kind: str, runs: Sequence[Sequence[Operation]], outcome: Outcome) -> None:
    """Count draws that were begun, in all runs, and what was set aside for them; noise without a draw is none's."""
    draws: Counter[str] = Counter()
    for made in runs:
        for done, place in zip(made, places(made), strict=True):
            if done.kind == "MARK" and done.path.startswith("draw "):
                draws[done.path.removeprefix("draw ")] += 1
            if done.kind == "MARK" and done.path in ("noise", "bits") and place != "draw":
                outcome.violations.append("noise was drawn outside of any draw")
    entries, release = rows(root / "ledger.sqlite"), str(ReleaseKey(kind, PERIOD))
    charges = Counter(row["level"] for row in entries if (row["kind"], row["release"]) == ("RESERVED", release))
    most: dict[int, int] = {}
    for name, number in draws.items():
        level = int(name.partition(".")[0])
        most[level] = max(number, most.get(level, 0))
        if number > charges.get(level, 0):
            outcome.violations.append(
                f"level {name} was drawn {number} times, and charged {charges.get(level, 0)} times"
            )
    outcome.draws, outcome.charges = sum(most.values()), sum(charges.values())


def _met(done: Operation) -> bool:
    return done.kind == "FAULT"


def _tried(start: Start, root: Path) -> str:
    """Release and publish; the error where it fails."""
    try:
        publish(root, start.kind, start.noise)
    except OdError as error:
        return f"{error}"
    except Exception as error:  # noqa: BLE001  # whatever a fault brings about
        return f"{type(error).__name__}: {' '.join(f'{error}'.split())[:200]}"
    return ""


def _forked(work: Callable[[], None], output: Path) -> int:
    """Work in a child process; the signal that ended it, 0 where none did."""
    child = os.fork()
    if child == 0:
        signal.alarm(LONGEST)
        try:
            with output.open("wb") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            work()
        except BaseException:  # noqa: BLE001  # nothing of the parent goes on in the child
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def _end(output: Path) -> str:
    return output.read_text(errors="replace").strip().rpartition("\n")[2]
