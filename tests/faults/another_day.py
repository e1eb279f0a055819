"""Runs a module of this folder in a process whose clock stands some days later or earlier."""

import datetime
import sys
import time

from tests.faults import publisher, worker

REAL_NOW, REAL_TIME = datetime.datetime.now, time.time


def set_clock(days: float) -> None:
    """Whatever asks for date or time is told this; the machine's own clock is not ours to set."""

    class Shifted(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:
            return REAL_NOW(tz) + datetime.timedelta(days=days)

    datetime.datetime = Shifted  # type: ignore[misc]
    time.time = lambda: REAL_TIME() + 86_400 * days


if __name__ == "__main__":
    set_clock(float(sys.argv[1]))
    if sys.argv[2] == "worker":
        worker.main(*sys.argv[3:])
    else:
        publisher.main(*sys.argv[3:])
