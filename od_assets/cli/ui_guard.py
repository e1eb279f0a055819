"""What stands before the Dagster UI: it answers its operator alone, and no other web page.

Dagster's web server takes every request for its operator's: from a page of any origin, under any name of the host, and
by GET. Whoever reaches it can launch runs, which spend budget, and report what was never made.

References:
    OWASP, Cross-Site Request Forgery Prevention Cheat Sheet: "Verifying Origin With Standard Headers".
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")
"""Names of this machine. A page that lets its own name point here asks under that name."""

_GRAPHQL = "/graphql"
"""The one address that the UI sends anything to; queries and changes alike."""

_KEPT_APART = {"X-Frame-Options": "DENY", "Cross-Origin-Resource-Policy": "same-origin"}
"""No other page shows the UI in a frame, or loads anything of it."""


def guarded(app: ASGIApp, token: str, cookie: str, hosts: Sequence[str] = ()) -> ASGIApp:
    """Return an application behind its guard, for HTTP and for websockets.

    Args:
        app: Dagster's own web application.
        token: what every request must know: in a cookie, or as a bearer token.
        cookie: name of that cookie. Cookies do not tell ports apart, so the name should.
        hosts: names of the host that the operator declares, beside those of this machine.
    """
    return TrustedHostMiddleware(_Guard(app, token, cookie), [*LOCAL_HOSTS, *hosts], www_redirect=False)


class _Guard:
    """Passes on what the UI's own pages ask, for whoever knows the token."""

    def __init__(self, app: ASGIApp, token: str, cookie: str) -> None:
        self._app, self._token, self._cookie = app, token, cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):  # start and end of the server
            await self._app(scope, receive, send)
            return

        async def send_apart(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_KEPT_APART)
            await send(message)

        await (self._refusal(HTTPConnection(scope)) or self._app)(scope, receive, send_apart)

    def _refusal(self, asked: HTTPConnection) -> Response | None:
        """What is answered in place of the UI; None where the request is passed on."""
        if not _is_of_own_origin(asked.headers):
            return PlainTextResponse("The UI answers its own pages, and no page of another origin.\n", 403)
        if asked.scope["type"] == "http" and not _is_asked_by_the_ui(asked):
            return PlainTextResponse("The UI reads by GET, and sends JSON to /graphql by POST. Nothing else.\n", 405)
        if self._is_known(asked):
            return None
        if asked.scope["type"] == "http" and self._is_the_token(asked.query_params.get("token", "")):
            return self._signed_in(asked)
        return PlainTextResponse("Open the whole address that od-release ui has printed, with its token.\n", 401)

    def _is_known(self, asked: HTTPConnection) -> bool:
        kind, _, bearer = asked.headers.get("authorization", "").partition(" ")
        return (kind.lower() == "bearer" and self._is_the_token(bearer)) or self._is_the_token(
            asked.cookies.get(self._cookie, "")
        )

    def _is_the_token(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(), self._token.encode())

    def _signed_in(self, asked: HTTPConnection) -> Response:
        """The same page with a cookie, and without the token in its address."""
        there = str(asked.url.remove_query_params("token"))
        answer = RedirectResponse(there, 303, {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"})
        answer.set_cookie(self._cookie, self._token, httponly=True, samesite="strict")
        return answer


def _is_of_own_origin(headers: Headers) -> bool:
    """Whether the page that asks, where one does, came from the very host and port that it asks.

    Browsers name the origin of everything that a page sends, and of every websocket. What names none is a program, or
    a page that is read; the answer to that is kept from other origins by the browser.
    """
    origin = headers.get("origin")
    return origin is None or origin.partition("://")[2].lower() == headers["host"].lower()


def _is_asked_by_the_ui(asked: HTTPConnection) -> bool:
    """Whether the UI makes such requests: an address that Dagster has beside them is closed, and changes by GET are."""
    method, to_graphql = asked.scope["method"], asked.scope["path"] == _GRAPHQL
    if method == "POST":
        kind = asked.headers.get("content-type", "").partition(";")[0].strip().lower()
        return to_graphql and kind == "application/json"
    return method in ("GET", "HEAD") and not to_graphql
