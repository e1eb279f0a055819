"""Serve the Dagster UI to its operator alone, with the reports of published releases beside it.

``od-release ui`` runs this module and all its child processes as one session.

Dagster's web server accepts every request: from a page of any origin, with any host name, and changes by GET. Anyone
who can reach the server can launch runs, which spend budget, and report asset materializations that never happened. So
the server is guarded (:func:`guard_application`): only its operator can use it, and web pages of other origins cannot.

The reports and atlases of published releases are served behind the same guard (:func:`with_reports`), read-only. The
route serves two files of a published bundle, which are public, and lists nothing.

References:
    OWASP, Cross-Site Request Forgery Prevention Cheat Sheet: "Verifying Origin With Standard Headers".
"""

import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import dagster as dg
import uvicorn
import yaml
from starlette.datastructures import MutableHeaders
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import HTTPConnection
from starlette.responses import FileResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from od_assets.cli import ExitCode
from od_assets.compatibility import DAEMON, make_web_application, run_code_servers
from od_assets.failures import open_dagster_instance
from od_assets.metadata import REPORTS
from od_assets.project import find_current_project
from od_assets.resources.folders import Folders
from od_core.errors import OdError
from od_core.files.durable import lock_file
from od_core.publication.bundle_files import ATLAS, CERTIFICATE, REPORT
from od_core.publication.certificate import read_certificate
from od_core.published.opening import find_bundle_folders

LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")
"""Host names of this machine. Requests with other host names are refused, which stops DNS rebinding."""

_ISOLATION_HEADERS = {"X-Frame-Options": "DENY", "Cross-Origin-Resource-Policy": "same-origin"}
"""Headers that keep other pages from framing the UI or loading its resources."""


def guard_application(app: ASGIApp, token: str, cookie: str, hosts: Sequence[str] = ()) -> ASGIApp:
    """Return an application that refuses requests without the token or from other origins, for HTTP and websockets.

    Args:
        token: secret that every request must carry, in a cookie or as a bearer token.
        cookie: name of that cookie. It should contain the port, because all ports of a host share their cookies.
        hosts: host names that the operator declares, in addition to those of this machine.
    """

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):  # startup and shutdown of the server
            await app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_ISOLATION_HEADERS)
            await send(message)

        refusal_or_redirect = _check_request(HTTPConnection(scope), token, cookie)
        await (refusal_or_redirect or app)(scope, receive, send_with_headers)

    return TrustedHostMiddleware(guard, [*LOCAL_HOSTS, *hosts], www_redirect=False)


def _check_request(request: HTTPConnection, token: str, cookie: str) -> Response | None:
    """Return the response to a request that is not passed on, an error or a redirect; None if it is passed on.

    ``token`` and ``cookie`` are as in :func:`guard_application`.
    """

    def is_the_token(text: str) -> bool:
        return secrets.compare_digest(text.encode(), token.encode())

    # Browsers name the origin when a page sends data or opens a websocket. A request without an origin comes from a
    # program, or only reads a page. Browsers do not show such an answer to pages of other origins.
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("://")[2].lower() != request.headers["host"].lower():
        return PlainTextResponse("The UI answers only its own pages, not a page of another origin.\n", 403)
    if request.scope["type"] == "http" and not _is_ui_request(request):
        return PlainTextResponse("The UI accepts only GET, and POST of JSON to /graphql.\n", 405)
    kind, _, bearer = request.headers.get("authorization", "").partition(" ")
    if is_the_token(request.cookies.get(cookie, "")) or (kind.lower() == "bearer" and is_the_token(bearer)):
        return None
    if request.scope["type"] == "http" and is_the_token(request.query_params.get("token", "")):
        # The same page without the token in the address, which sets the cookie.
        address = str(request.url.remove_query_params("token"))
        answer = RedirectResponse(address, 303, {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"})
        answer.set_cookie(cookie, token, httponly=True, samesite="strict")
        return answer
    return PlainTextResponse("Open the complete address that od-release ui printed, including the token.\n", 401)


def _is_ui_request(request: HTTPConnection) -> bool:
    """Return whether a request has a method and path that the UI uses: GET, or POST of JSON to ``/graphql``."""
    if request.scope["path"] != "/graphql":
        return request.scope["method"] in ("GET", "HEAD")
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return request.scope["method"] == "POST" and kind == "application/json"


_WITHOUT_SCRIPTS = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

_POLICIES = {
    # A report has inline styles and nothing else: no scripts, and nothing that is loaded.
    REPORT: _WITHOUT_SCRIPTS,
    # An atlas also has one script, whose digest the page states. In a sandbox, it has no access to the UI.
    ATLAS: f"{_WITHOUT_SCRIPTS}; script-src 'unsafe-inline'; worker-src blob:; sandbox allow-scripts allow-downloads",
}

_HEADERS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache"}


def with_reports(app: ASGIApp, releases: Path, published: Callable[[], Collection[str]]) -> ASGIApp:
    """Return an application that answers requests below ``REPORTS`` itself and passes all others on to ``app``.

    Args:
        releases: folder of all bundles.
        published: function that returns the keys of the published releases. Only these, and flows that are derived from
            these alone, are served.
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and f"{scope['path']}/".startswith(f"{REPORTS}/"):
            response = _make_report_response(scope["method"], scope["path"], releases, published)
            await response(scope, receive, send)
        else:
            await app(scope, receive, send)

    return answer


def _make_report_response(method: str, path: str, releases: Path, published: Callable[[], Collection[str]]) -> Response:
    """Return the response to a request of an address such as ``/od/reports/us_flights/2001-06/r1/report.html``.

    The address is compared with those of published bundles, so it never becomes a path. No symbolic link is followed.
    """
    if method not in ("GET", "HEAD"):
        return PlainTextResponse("Reports can only be read.\n", 405, {"Allow": "GET, HEAD"})
    absent = PlainTextResponse("No published release has a report or an atlas at this address.\n", 404)
    try:
        published_keys = published()
        bundles = find_bundle_folders(releases.resolve()).items()
    except OdError as error:
        return PlainTextResponse(f"{error}\n", 503)
    pages = {f"{REPORTS}/{key}/{name}": folder / name for key, folder in bundles for name in _POLICIES}
    page = pages.get(path)
    if page is None or not page.is_file() or page.resolve() != page:
        return absent
    if path.removeprefix(f"{REPORTS}/").rpartition("/")[0] not in published_keys:
        sources = read_certificate(page.parent / CERTIFICATE).get("sources", [])
        if not sources or any(source["release"] not in published_keys for source in sources):
            return absent
    headers = _HEADERS | {"Content-Security-Policy": _POLICIES[page.name]}
    return FileResponse(page, headers=headers, media_type="text/html; charset=utf-8")


TOKEN = "OD_UI_TOKEN"  # noqa: S105  # a variable name, not a token
"""Environment variable with a fixed token, for a proxy that signs people in before they reach the UI."""

_LOG_LEVEL = "warning"


def serve(port: int, hosts: Sequence[str], address: str = "127.0.0.1", workspace: Path | None = None) -> ExitCode:
    """Serve the UI until this process is told to end. Its own daemon may end first, which is a fault.

    If ``workspace`` is None, start a code server of the current project and a daemon. Otherwise, it is the file that
    names the code servers of a deployment, whose daemon runs elsewhere. Port 0 is any free port.

    Raises:
        OdError: the address or the port cannot be used; a host is not a valid name; or the token in the
            environment is too short or has other characters than letters, digits, - and _.
    """
    stated_token = os.environ.pop(TOKEN, None)  # runs do not need it
    _refuse_invalid_access(stated_token, hosts)
    token = stated_token or secrets.token_urlsafe(32)
    with ExitStack() as stack:
        listening = stack.enter_context(_open_listening_socket(address, port))
        port = listening.getsockname()[1]
        instance = stack.enter_context(open_dagster_instance())
        daemon = None
        if workspace is None:
            stack.enter_context(_lock_ui(Path(os.environ["DAGSTER_HOME"])))
            workspace = stack.enter_context(_run_code_server(instance))
            daemon = stack.enter_context(_run_daemon(workspace))
        dagster = stack.enter_context(make_web_application(instance, workspace))
        pages = with_reports(dagster, Folders().releases, _list_published_releases)
        app = guard_application(pages, token, f"od_release_ui_{port}", hosts)
        server = uvicorn.Server(uvicorn.Config(app, log_level=_LOG_LEVEL, timeout_graceful_shutdown=1))
        if daemon is not None:
            threading.Thread(target=_end_with_daemon, args=(daemon, server), daemon=True).start()
        query = "" if stated_token else f"?token={token}"
        print(f"The Dagster UI runs until this command ends: http://localhost:{port}/{query}", flush=True)
        server.run(sockets=[listening])
        if server.started and daemon is not None and daemon.poll() is not None:
            print("The Dagster daemon has ended, so the UI has ended too.", file=sys.stderr)
            return ExitCode.FAULT_FOUND
    return ExitCode.DONE


def _refuse_invalid_access(stated_token: str | None, hosts: Sequence[str]) -> None:
    """Raise OdError if the stated token is too short or has other characters, or a host is not a valid name."""
    if stated_token is not None and not re.fullmatch(r"[\w-]{32,}", stated_token, re.ASCII):
        message = f"{TOKEN} must consist of at least 32 letters, digits, - or _"
        raise OdError("OD-UI-TOKEN", message, next_step="create one with openssl rand -hex 32, or leave it unset")
    for host in hosts:
        if not re.fullmatch(r"[\w.-]+|\[[0-9A-Fa-f:]+\]", host, re.ASCII):
            message = f"{host!r} is not a host name"
            step = "give it without scheme, port and wildcard, such as od.example.org"
            raise OdError("OD-UI-HOST", message, next_step=step)


def _list_published_releases() -> set[str]:
    """Return the keys of the releases that the ledger has published; none if there is no ledger yet."""
    folders = Folders()
    if not folders.ledger_chain.exists():
        return set()
    return {key for key, state in folders.ledger.read_states().items() if state.is_published}


def _lock_ui(home: Path) -> AbstractContextManager[None]:
    """Return a context that only one UI of a Dagster home can enter, because two daemons would launch each run twice.

    Entering it raises OdError if another one is in it.
    """
    message, step = f"od-release ui runs already for {home.parent}", "open the address that it printed, or end it first"
    refusal = OdError("OD-UI-RUNNING", message, next_step=step)
    return lock_file(home / "ui.lock", refusal, seconds=0)


def _open_listening_socket(address: str, port: int) -> socket.socket:
    """Return a socket that listens at an address. Raises OdError if it cannot be opened."""
    try:
        family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server((address, port), family=family)
    except OSError as error:
        message = f"cannot listen on port {port} of {address}: {error.strerror}"
        step = "give another --port, or as --listen an address of this machine"
        raise OdError("OD-UI-PORT", message, next_step=step) from None


@contextmanager
def _run_code_server(instance: dg.DagsterInstance) -> Iterator[Path]:
    """Start a code server for the UI and the daemon, and yield a workspace file that names it."""
    project = find_current_project()
    started = run_code_servers(instance, project.module, project.root, project.location, _LOG_LEVEL)
    with started as servers, TemporaryDirectory() as folder:
        workspace = Path(folder) / "workspace.yaml"
        workspace.write_text(yaml.dump({"load_from": servers}), encoding="utf-8")
        yield workspace


@contextmanager
def _run_daemon(workspace: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run the daemon of Dagster, which starts runs and sensors, during this context."""
    command = [sys.executable, "-m", DAEMON, "run", "--workspace", str(workspace), "--log-level", _LOG_LEVEL]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)  # noqa: S603  # this Python itself
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def _end_with_daemon(daemon: subprocess.Popen[bytes], server: uvicorn.Server) -> None:
    """Wait until the daemon has ended, and then tell the server to end, because no run would start without it."""
    daemon.wait()
    server.should_exit = True


def _end_with_standard_input() -> None:
    """End this process when standard input closes, which is a pipe that closes when the parent process ends."""
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """Serve as the arguments say: port, address, workspace file (empty for none), and further host names."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(ExitCode.DONE))
    threading.Thread(target=_end_with_standard_input, daemon=True).start()
    try:
        port, address, workspace, *hosts = sys.argv[1:]
        sys.exit(serve(int(port), hosts, address, Path(workspace) if workspace else None))
    except OdError as error:
        print(error, file=sys.stderr)
        sys.exit(ExitCode.REFUSED)


if __name__ == "__main__":
    main()
