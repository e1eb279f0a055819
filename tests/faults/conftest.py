"""Processes that run a release in a folder of the test."""

from collections.abc import Callable, Iterator

import pytest

from tests.faults.forked import Forked


@pytest.fixture
def started(tmp_path_factory) -> Iterator[Callable[..., Forked]]:
    """Start a module of this folder in a process of its own; ended with the test at the latest."""
    processes: list[Forked] = []

    def start(module, *arguments):
        processes.append(Forked(module, list(map(str, arguments)), tmp_path_factory.mktemp(module)))
        return processes[-1]

    yield start
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()
