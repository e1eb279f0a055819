"""Trials of the soak with a defect planted, and the same without it: whether the soak would find it."""

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from unittest.mock import patch

from od_core.files import durable as files
from od_core.ledger.ledger import Ledger
from od_core.publication import bundle
from od_core.publication.bundle_files import write_zip
from tests.faults.soak_shim import Operation
from tests.faults.soak_trials import Soak, Start, Trial

START = Start("stops", "later", "table")


def never_charged_again() -> AbstractContextManager[object]:
    """A draw that was lost is made again under its first charge."""
    start_draw = Ledger.start_draw

    def planted(self, key, level, *rest):
        state = self.find_level_state(key, level)
        lost = state is not None and state.kind == "DRAWING"
        return state.draw if lost else start_draw(self, key, level, *rest)

    return patch.object(Ledger, "start_draw", planted)


def never_synced() -> AbstractContextManager[object]:
    """Neither measurements nor their names are forced to the disk before the ledger has them."""
    return patch.object(files, "sync", lambda path: None)


def written_in_place() -> AbstractContextManager[object]:
    """The zip file of a bundle is written where its readers look for it."""

    @contextmanager
    def planted(folder: Path, target: Path) -> Iterator[None]:
        yield
        write_zip(folder, "stops/2001-06/r1", target.with_name(f"{target.name}.zip"))

    return patch.object(bundle, "_publish_zip", planted)


def after_measured(operation: Operation) -> bool:
    return operation.path == "MEASURED 1"


PLANTED: dict[Callable[[], AbstractContextManager[object]], tuple[str, Callable[[Operation], bool]]] = {
    never_charged_again: ("kill", lambda operation: operation.path == "drawn 1"),
    never_synced: ("strict", after_measured),
    written_in_place: ("kill", lambda operation: ".zip" in operation.path and operation.offset > 0),
}
"""Each defect, the fault that shows it, and the operation that meets the fault."""


def violations(soak: Soak, fault: str, meets: Callable[[Operation], bool]) -> list[str]:
    """What does not hold after a fault at the operation, or after any of some power cuts there."""
    number = next(operation.number for operation in soak.undisturbed(START) if meets(operation))
    seeds = range(4) if fault == "strict" else (None,)  # of any one, half of what was not synced is there
    trials = [Trial(START, ((fault, number),), seed) for seed in seeds]
    return [line for trial in trials for line in soak.trial(trial).violations]


def main() -> None:
    del os.environ["LD_PRELOAD"]
    found = {}
    with tempfile.TemporaryDirectory(prefix="od-soak-") as name:
        for defect, (fault, meets) in PLANTED.items():
            for is_planted in (False, True):
                place = Path(name) / f"{defect.__name__}-{is_planted}"
                place.mkdir()
                soak = Soak(place, kinds=["stops"])
                if is_planted:
                    with defect():
                        found[defect.__name__, is_planted] = violations(soak, fault, meets)
                else:
                    found[defect.__name__, is_planted] = violations(soak, fault, meets)
    json.dump([[*key, lines] for key, lines in found.items()], sys.stdout)


if __name__ == "__main__":
    main()
