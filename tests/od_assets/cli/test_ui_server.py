"""What keeps the Dagster UI from starting."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from od_assets.cli.ui_server import _lock_ui, _open_listening_socket, serve
from od_core.errors import OdError


def test_a_port_that_is_taken_is_refused_before_anything_starts():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OdError, match=f"OD-UI-PORT: cannot listen on port {port} of 127.0.0.1:"):
            serve(port, [])


def test_an_address_of_ipv6_is_listened_on():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with _open_listening_socket("::1", 0) as listening:
        assert listening.getsockname()[0] == "::1"


def test_a_second_ui_of_a_home_is_refused(tmp_path, monkeypatch):
    """Its daemon would launch what the first one launches."""
    home = tmp_path / "dagster"
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n", encoding="utf-8")
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    with _lock_ui(home), pytest.raises(OdError, match="OD-UI-RUNNING"):
        serve(0, [])


@pytest.mark.parametrize("token", ["", "t" * 31, "t" * 31 + " ", "t" * 31 + ";", "t" * 31 + "\xe9"])
def test_a_token_that_is_short_or_fits_no_header_is_refused(monkeypatch, token):
    monkeypatch.setenv("OD_UI_TOKEN", token)
    with pytest.raises(OdError, match="OD-UI-TOKEN") as refusal:
        serve(0, [])
    assert "ttt" not in str(refusal.value)


@pytest.mark.parametrize("host", ["*", "*.example.org", "https://od.example.org", "od.example.org:443", ""])
def test_a_name_that_is_none_is_refused(host):
    """A wildcard would let any name through, and with it every page whose name comes to point here."""
    with pytest.raises(OdError, match="OD-UI-HOST"):
        serve(0, [host])


@pytest.mark.slow
def test_beside_a_deployment_only_its_pages_are_served(tmp_path):
    """Behind the token, in the home of the deployment, and without a daemon, which would take runs from its queue."""
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n", encoding="utf-8")
    workspace = tmp_path / "workspace.yaml"
    workspace.write_text("load_from: []\n", encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as chosen:
        port = str(chosen.getsockname()[1])
    token = "t" * 32
    environment = os.environ | {"DAGSTER_HOME": str(tmp_path), "OD_UI_TOKEN": token, "OD_VAR": str(tmp_path / "var")}
    options = ["ui", "--workspace", str(workspace), "--listen", "127.0.0.1", "--port", port]
    command = [sys.executable, "-m", "od_assets.cli", *options]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline().strip().endswith(f"http://localhost:{port}/")
        assert answer(port, None) == 401
        assert answer(port, token) == 200
        [web] = children(str(server.pid))
        started = children(web)
        server.terminate()
    assert server.returncode == 0
    assert started == []


def children(process: str) -> list[str]:
    return Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii").split()


def answer(port: str, token: str | None) -> int:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        with urlopen(Request(f"http://localhost:{port}/server_info", headers=headers), timeout=60) as page:
            return int(page.status)
    except HTTPError as refusal:
        return refusal.code
