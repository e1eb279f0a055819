"""``od-release ui`` ends as a whole when it is told to, however it was started."""

import os
import signal
from pathlib import Path

import pytest

from tests.servers import PATIENCE, UI, printed_address, processes_with, serving, wait_until

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="Linux lists the processes of others")
def test_all_of_it_ends_where_a_shell_started_it_in_the_background(tmp_path):
    """Such a shell has it ignore SIGINT, and Dagster treats SIGTERM as SIGINT."""
    entry, log = f"OD_VAR={tmp_path / 'var'}", tmp_path / "log"
    environment = os.environ | {"OD_PROJECT": str(ROOT), "OD_VAR": str(tmp_path / "var")}
    script = f'"$@" & echo $! > {tmp_path / "started"}; wait $!; echo $? > {tmp_path / "code"}'
    with serving(["bash", "-c", script, "bash", *UI], ROOT, environment, log) as shell:
        printed_address(log)
        assert len(processes_with(entry)) >= 4  # the shell, the UI, its code server, its daemon
        os.kill(int((tmp_path / "started").read_text()), signal.SIGTERM)
        try:
            wait_until(lambda: not processes_with(entry), log)
        finally:
            for process in processes_with(entry):
                os.kill(process, signal.SIGKILL)
        shell.wait(PATIENCE)
    assert (tmp_path / "code").read_text() == "0\n"
