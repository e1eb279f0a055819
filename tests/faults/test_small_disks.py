"""Disks that are full or mounted read-only: in one line that says whose disk it is, and nothing is charged or lost."""

import gc
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import pytest

from od_assets.failures import open_dagster_instance
from od_core import OdError
from od_core.ledger.ledger import Ledger
from tests.od_assets.conftest import SILENT
from tests.od_core.ledger.ledger_rows import domain


@contextmanager
def mounted(folder: Path, size: str) -> Iterator[None]:
    """A small disk of its own."""
    folder.mkdir(parents=True)
    mount = ["/bin/mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs root, and a system that lets it mount")
    try:
        yield
    finally:
        subprocess.run(["/bin/umount", "--lazy", str(folder)], check=True)


@dg.op
def talk(context):
    for _ in range(1000):
        context.log.info("x" * 1000)


@dg.job
def talking() -> None:
    talk()


# Dagster leaves a coroutine behind where the loop of a browser's test still runs in this process.
@pytest.mark.filterwarnings("ignore:coroutine 'BaseEventLoop.shutdown_asyncgens':RuntimeWarning")
@pytest.mark.parametrize("size", ["60k", "900k"])
def test_a_full_disk_of_dagsters_storage_ends_in_one_line(size, tmp_path, monkeypatch, capfd):
    """While its tables are made, and while a run writes its events."""
    home = tmp_path / "var" / "dagster"
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    with mounted(home, size):
        (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n", encoding="utf-8")
        with pytest.raises(OdError) as failed, open_dagster_instance() as instance:
            talking.execute_in_process(instance=instance, run_config=SILENT)
    error = failed.value
    assert error.code == "OD-DISK-WRITE"
    assert f"MiB are free for {home}, and a run needs about 16 MiB" in error.message
    assert error.__cause__ is error.__context__ is None
    assert "\n" not in str(error)
    assert "Exception while writing" not in capfd.readouterr().err
    del failed
    gc.collect()  # while the warning is ignored


def test_a_ledger_on_a_disk_that_is_mounted_read_only_is_read_and_not_charged(tmp_path):
    """Also by root, who may write whatever the modes."""
    folder = tmp_path / "var"
    with mounted(folder, "10m"):
        Ledger(folder / "ledger.sqlite").declare(domain(1))
        subprocess.run(["/bin/mount", "-o", "remount,ro", str(folder)], check=True)
        reader = Ledger(folder / "ledger.sqlite", whole=False)
        assert reader.verify() == 2
        for add in (lambda: reader.declare(domain(2, "more")), lambda: Ledger(folder / "ledger.sqlite")):
            with pytest.raises(OdError, match=r"OD-LEDGER-UNAVAILABLE: .* mounted read-only.*mount its file"):
                add()
