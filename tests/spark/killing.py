"""A store that kills the executor that it runs on, at one moment of one file; and noise that says when it is drawn."""

import os
import secrets
import signal
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa

from od_core.ledger.object_store import LocalStore
from od_core.noise.backends import resolve_noise_source

MOMENTS = ("before the claim", "claimed", "drawn", "kept")


@dataclass(frozen=True)
class KillingStore(LocalStore):
    """Once only: a file beside the folder says that it has killed.

    Attributes:
        moment: one of the moments.
        file: name of the claim, or of the measurement, at which it kills.
    """

    moment: str = ""
    file: str = ""

    def create_if_absent(self, name: str, content: bytes | pa.Buffer, *, durable: bool = True) -> bool:
        """As in any store, but for one moment."""
        if name == self.file and self.moment in ("before the claim", "drawn"):
            self._kill_once()
        kept = super().create_if_absent(name, content, durable=durable)
        if name == self.file and self.moment in ("claimed", "kept"):
            self._kill_once()
        return kept

    def _kill_once(self) -> None:
        try:
            (self.folder.parent / "killed").touch(exist_ok=False)
        except FileExistsError:
            return
        daemon = os.getppid()
        executor = _parent_of(daemon)
        for process in (executor, daemon, os.getpid()):
            os.kill(process, signal.SIGKILL)


def _parent_of(process: int) -> int:
    status = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    return int(status.rpartition(")")[2].split()[1])


@dataclass(frozen=True)
class LoggedNoise:
    """Real noise of backend ``table``; each draw leaves a file with the level and the rank of its first cell."""

    log: Path

    def draw(self, variance: Fraction, level: int, first: int, size: int) -> np.ndarray:
        return resolve_noise_source("table").draw(variance, level, first, size)

    def draw_nodes(self, variance: Fraction, level: int, first_rank: np.ndarray) -> np.ndarray:
        self.log.mkdir(exist_ok=True)
        (self.log / f"{level}.{first_rank[0]}.{secrets.token_hex(4)}").touch()
        return resolve_noise_source("table").draw(variance, level, 0, len(first_rank))
