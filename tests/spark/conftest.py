"""Where Spark is installed; its sessions, each a process of its own, since one process has one kind of them."""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


SHORT_LIVED = {
    "SPARK_LOCAL_IP": "127.0.0.1",
    "SPARK_TESTING": "true",  # free ports, and the folders of executors among temporary files
    "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
"""For processes of Java that live for seconds, on this machine alone."""


@pytest.fixture(scope="session", autouse=True)
def spark_installed() -> Iterator[None]:
    if importlib.util.find_spec("pyspark") is None:
        pytest.skip("PySpark is not installed: make .venv/installed-spark")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("no Java is installed: Spark is not tested")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SHORT_LIVED.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def spark_process() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a module of this folder to its end."""

    def run(module, *arguments):
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            "PYSPARK_PYTHON": sys.executable,
            "OD_THREADS": "4",
        }
        command = [sys.executable, "-m", f"tests.spark.{module}", *map(str, arguments)]
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=1200
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    return run
