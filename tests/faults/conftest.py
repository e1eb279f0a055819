"""Processes that run a release in a folder of the test."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def started() -> Callable[..., subprocess.Popen[str]]:
    """Start a module of this folder with the code that the tests run on; ended with the test at the latest."""
    processes: list[subprocess.Popen[str]] = []

    def start(module: str, *arguments: object) -> subprocess.Popen[str]:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        process = subprocess.Popen(
            [sys.executable, "-m", f"tests.faults.{module}", *map(str, arguments)],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()
