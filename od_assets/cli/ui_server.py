"""Serve the Dagster UI behind its access control, with its own code server and daemon, or beside those of a deployment.

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
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import dagster as dg
import uvicorn
import yaml
from dagster._cli.proxy_server_manager import ProxyServerManager
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import ModuleTarget, WorkspaceFileTarget, WorkspaceLoadTarget
from dagster_webserver.app import create_app_from_workspace_process_context

from od_assets.cli.ui_guard import guarded
from od_assets.cli.ui_reports import with_reports
from od_assets.instance import dagster_instance
from od_assets.project import Project, current_project, releases_folder
from od_assets.resources.folders import Folders
from od_core.errors import OdError
from od_core.files.lock import locked

TOKEN = "OD_UI_TOKEN"  # noqa: S105  # a variable name, not a token
"""Environment variable with a fixed token, for a proxy that signs people in before they reach the UI."""

_LONG_ENOUGH = r"[\w-]{32,}"

_HOST = r"[\w.-]+|\[[0-9A-Fa-f:]+\]"

_LOG_LEVEL = "warning"


LOOPBACK = "127.0.0.1"
"""Address of this machine that other machines cannot reach."""


def serve(port: int, hosts: Sequence[str], address: str = LOOPBACK, workspace: Path | None = None) -> int:
    """Serve the UI until this process is told to end. Return the exit code: 1 if its own daemon ended first, else 0.

    Args:
        port: port to listen on; 0 takes any free port.
        hosts: further host names that requests may have.
        address: address to listen on.
        workspace: file that names the code servers of a deployment, whose daemon runs elsewhere. If it is None, start a
            code server of the current project and a daemon.

    Raises:
        OdError: the address or the port cannot be used; a host is not a valid name; or the token in the
            environment is too short or has other characters than letters, digits, - and _.
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
        listening = stack.enter_context(_listening(address, port))
        port = listening.getsockname()[1]
        instance = stack.enter_context(dagster_instance())
        instance.optimize_for_webserver(15_000, 3600, 20)  # as dagster-webserver does
        daemon = None
        if workspace is None:
            stack.enter_context(_only_one(Path(os.environ["DAGSTER_HOME"])))
            workspace = stack.enter_context(_code_server(instance))
            daemon = stack.enter_context(_daemon(workspace))
        target = WorkspaceFileTarget([str(workspace)])
        context = stack.enter_context(WorkspaceProcessContext(instance, target, version=dg.__version__))
        dagster = create_app_from_workspace_process_context(context)
        pages = with_reports(dagster, releases_folder(current_project().var), _published)
        app = guarded(pages, token, f"od_release_ui_{port}", hosts)
        server = uvicorn.Server(uvicorn.Config(app, log_level=_LOG_LEVEL, timeout_graceful_shutdown=1))
        if daemon is not None:
            threading.Thread(target=_end_without, args=(daemon, server), daemon=True).start()
        query = "" if given else f"?token={token}"
        print(f"The Dagster UI runs until this command ends: http://localhost:{port}/{query}", flush=True)
        server.run(sockets=[listening])
        if server.started and daemon is not None and daemon.poll() is not None:
            print("The Dagster daemon has ended, so the UI has ended too.", file=sys.stderr)
            return 1
    return 0


def _published() -> set[str]:
    """Return the keys of the releases that the ledger has published; none if there is no ledger yet."""
    folders = Folders()
    if not folders.ledger_chain.exists():
        return set()
    return {key for key, state in folders.ledger.states().items() if state.is_published}


def _only_one(home: Path) -> AbstractContextManager[None]:
    """Return a context that only one UI of a Dagster home can be in: two daemons would launch each run twice."""
    held = OdError(
        "OD-UI-RUNNING",
        f"od-release ui runs already for {home.parent}",
        next_step="open the address that it printed, or end it first",
    )
    return locked(home / "ui.lock", held, seconds=0)


def _listening(address: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server((address, port), family=family)
    except OSError as error:
        raise OdError(
            "OD-UI-PORT",
            f"cannot listen on port {port} of {address}: {error.strerror}",
            next_step="give another --port, or as --listen an address of this machine",
        ) from None


@contextmanager
def _code_server(instance: dg.DagsterInstance) -> Iterator[Path]:
    """Start a code server for the UI and the daemon, as ``dg dev`` does, and yield a workspace file that names it."""
    target = _code_location(current_project())
    with ProxyServerManager(instance, target, _LOG_LEVEL) as servers, TemporaryDirectory() as folder:
        workspace = Path(folder) / "workspace.yaml"
        workspace.write_text(yaml.dump({"load_from": list(servers.get_code_server_specs())}), encoding="utf-8")
        yield workspace


def _code_location(project: Project) -> WorkspaceLoadTarget:
    """Return what the UI loads: the workspace file of a project, or else the module of its definitions."""
    workspace = project.root / "workspace.yaml"
    if workspace.is_file():
        return WorkspaceFileTarget([str(workspace)])
    return ModuleTarget(project.module, None, str(project.root), project.root.name)


@contextmanager
def _daemon(workspace: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "dagster._daemon", "run", "--workspace", str(workspace), "--log-level", _LOG_LEVEL]
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
    """End this process when standard input closes, which is a pipe that closes when the parent process ends."""
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """Serve as the arguments say: port, address, workspace file (empty for none), and further host names."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    threading.Thread(target=_end_with_standard_input, daemon=True).start()
    try:
        port, address, workspace, *hosts = sys.argv[1:]
        sys.exit(serve(int(port), hosts, address, Path(workspace) if workspace else None))
    except OdError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
