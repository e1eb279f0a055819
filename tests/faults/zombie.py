"""One task of a release in parts, in a process of its own that stops itself between its draw and the keeping of it."""

import os
import pickle
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from od_core.flows.parts import Threads, measure_part, run_on_all_parts
from od_core.ledger.object_store import LocalStore, compute_part_digest


@dataclass(frozen=True)
class StoppingStore(LocalStore):
    """Stops the process just before it keeps one measurement."""

    file: str = ""

    def create_if_absent(self, name: str, content: bytes | pa.Buffer, *, durable: bool = True) -> bool:
        if name == self.file:
            os.kill(os.getpid(), signal.SIGSTOP)
        kept = super().create_if_absent(name, content, durable=durable)
        if name == self.file:
            print("kept" if kept else "lost the race", flush=True)
        return kept


def main() -> None:
    work, part, file = pickle.loads(Path(sys.argv[1]).read_bytes())  # noqa: S301  # the test's own
    run_on_all_parts(Threads(), measure_part, work, [part])
    print(compute_part_digest(work.store, file), flush=True)


if __name__ == "__main__":
    main()
