"""Serve the Dagster UI behind its guard, with its code server and its daemon.

``od-release ui`` runs this module and all its child processes as one session.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import dagster as dg
import uvicorn
import yaml
from dagster._cli.proxy_server_manager import ProxyServerManager
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import WorkspaceFileTarget
from dagster_webserver.app import create_app_from_workspace_process_context

from od_assets.cli.ui_guard import guarded
from od_assets.project import project_root
from od_core.errors import OdError
from od_core.ledger.lock import exclusive

TOKEN = "OD_UI_TOKEN"  # noqa: S105  # a variable name, not a token
"""Environment variable with a fixed token, for a proxy that signs people in before they reach the UI."""

_LONG_ENOUGH = r"[\w-]{32,}"

_HOST = r"[\w.-]+|\[[0-9A-Fa-f:]+\]"

_LOG_LEVEL = "warning"


def serve(port: int, hosts: Sequence[str]) -> int:
    """Serve the UI until this process is told to end, and return the exit code: 1 if the daemon ended first, else 0.

    Args:
        port: port on the loopback interface; 0 takes any free port.
        hosts: further host names that requests may have.

    Raises:
        OdError: the port is taken; a host is not a valid name; the given token is too short or has other characters
            than letters, digits, - and _.
    """
    given = os.environ.pop(TOKEN, None)  # runs do not need it
    if given is not None and not re.fullmatch(_LONG_ENOUGH, given, re.ASCII):
        raise OdError(
            "OD-UI-TOKEN",
            f"{TOKEN} must consist of at least 32 letters, digits, - or _",
            next_step="create one with openssl rand -hex 32, or leave it unset",
        )
    for host in hosts:
        if not re.fullmatch(_HOST, host, re.ASCII):
            raise OdError(
                "OD-UI-HOST",
                f"{host!r} is not a host name",
                next_step="give it without scheme, port and wildcard, such as od.example.org",
            )
    token = given or secrets.token_urlsafe(32)
    with ExitStack() as stack:
        listening = stack.enter_context(_listening(port))
        port = listening.getsockname()[1]
        with exclusive(Path(os.environ["DAGSTER_HOME"])):  # else two processes may create its tables at once
            instance = stack.enter_context(dg.DagsterInstance.get())
        instance.optimize_for_webserver(15_000, 3600, 20)  # as dagster-webserver does
        workspace = stack.enter_context(_code_server(instance))
        daemon = stack.enter_context(_daemon(workspace))
        target = WorkspaceFileTarget([str(workspace)])
        context = stack.enter_context(WorkspaceProcessContext(instance, target, version=dg.__version__))
        app = guarded(create_app_from_workspace_process_context(context), token, f"od_release_ui_{port}", hosts)
        server = uvicorn.Server(uvicorn.Config(app, log_level=_LOG_LEVEL, timeout_graceful_shutdown=1))
        threading.Thread(target=_end_without, args=(daemon, server), daemon=True).start()
        query = "" if given else f"?token={token}"
        print(f"The Dagster UI runs until this command ends: http://localhost:{port}/{query}", flush=True)
        server.run(sockets=[listening])
        if server.started and daemon.poll() is not None:
            print("The Dagster daemon has ended, so the UI has ended too.", file=sys.stderr)
            return 1
    return 0


def _listening(port: int) -> socket.socket:
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise OdError(
            "OD-UI-PORT", f"cannot listen on port {port}: {error.strerror}", next_step="give another --port"
        ) from None


@contextmanager
def _code_server(instance: dg.DagsterInstance) -> Iterator[Path]:
    """Start a code server for the UI and the daemon, as ``dg dev`` does, and yield a workspace file that names it."""
    target = WorkspaceFileTarget([str(project_root() / "workspace.yaml")])
    with ProxyServerManager(instance, target, _LOG_LEVEL) as servers, TemporaryDirectory() as folder:
        workspace = Path(folder) / "workspace.yaml"
        workspace.write_text(yaml.dump({"load_from": list(servers.get_code_server_specs())}), encoding="utf-8")
        yield workspace


@contextmanager
def _daemon(workspace: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "dagster._daemon", "run", "--workspace", str(workspace)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)  # noqa: S603  # this Python itself
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def _end_without(daemon: subprocess.Popen[bytes], server: uvicorn.Server) -> None:
    daemon.wait()
    server.should_exit = True


def _end_with_standard_input() -> None:
    """Wait until standard input closes, then end this process.

    Standard input is a pipe from the parent process, so it closes when the parent process ends.
    """
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """Serve on the port of the first argument; the other arguments are further host names."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    threading.Thread(target=_end_with_standard_input, daemon=True).start()
    try:
        sys.exit(serve(int(sys.argv[1]), sys.argv[2:]))
    except OdError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
