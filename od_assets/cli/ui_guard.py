"""Guard the Dagster UI, so that only its operator can use it, and web pages of other origins cannot.

Dagster's web server accepts every request: from a page of any origin, with any host name, and changes by GET. Anyone
who can reach the server can launch runs, which spend budget, and report asset materializations that never happened.

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
"""Host names of this machine. Requests with other host names are refused, which stops DNS rebinding."""

_GRAPHQL = "/graphql"
"""The only path to which the UI sends POST requests, for both queries and changes."""

_KEPT_APART = {"X-Frame-Options": "DENY", "Cross-Origin-Resource-Policy": "same-origin"}
"""Headers that keep other pages from framing the UI or loading its resources."""


def guarded(app: ASGIApp, token: str, cookie: str, hosts: Sequence[str] = ()) -> ASGIApp:
    """Return an application that refuses requests without the token or from other origins, for HTTP and websockets.

    Args:
        app: Dagster's web application.
        token: secret that every request must carry, in a cookie or as a bearer token.
        cookie: name of that cookie. It should contain the port, because all ports of a host share their cookies.
        hosts: host names that the operator declares, in addition to those of this machine.
    """
    return TrustedHostMiddleware(_Guard(app, token, cookie), [*LOCAL_HOSTS, *hosts], www_redirect=False)


class _Guard:
    """An application that passes on a request only if no other origin sent it and it carries the token."""

    def __init__(self, app: ASGIApp, token: str, cookie: str) -> None:
        self._app, self._token, self._cookie = app, token, cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):  # startup and shutdown of the server
            await self._app(scope, receive, send)
            return

        async def send_apart(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_KEPT_APART)
            await send(message)

        await (self._refusal(HTTPConnection(scope)) or self._app)(scope, receive, send_apart)

    def _refusal(self, asked: HTTPConnection) -> Response | None:
        """Return the response to a request that is not passed on, an error or a redirect; None if it is passed on."""
        if not _is_of_own_origin(asked.headers):
            return PlainTextResponse("The UI answers only its own pages, not a page of another origin.\n", 403)
        if asked.scope["type"] == "http" and not _is_asked_by_the_ui(asked):
            return PlainTextResponse("The UI accepts only GET, and POST of JSON to /graphql.\n", 405)
        if self._is_known(asked):
            return None
        if asked.scope["type"] == "http" and self._is_the_token(asked.query_params.get("token", "")):
            return self._signed_in(asked)
        return PlainTextResponse("Open the complete address that od-release ui printed, including the token.\n", 401)

    def _is_known(self, asked: HTTPConnection) -> bool:
        kind, _, bearer = asked.headers.get("authorization", "").partition(" ")
        return (kind.lower() == "bearer" and self._is_the_token(bearer)) or self._is_the_token(
            asked.cookies.get(self._cookie, "")
        )

    def _is_the_token(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(), self._token.encode())

    def _signed_in(self, asked: HTTPConnection) -> Response:
        """Return a redirect to the same page without the token in the address, which sets the cookie."""
        there = str(asked.url.remove_query_params("token"))
        answer = RedirectResponse(there, 303, {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"})
        answer.set_cookie(self._cookie, self._token, httponly=True, samesite="strict")
        return answer


def _is_of_own_origin(headers: Headers) -> bool:
    """Return whether a request comes from a page of the requested host and port, or names no origin.

    Browsers name the origin when a page sends data or opens a websocket. A request without an origin comes from a
    program, or only reads a page. Browsers do not show such an answer to pages of other origins.
    """
    origin = headers.get("origin")
    return origin is None or origin.partition("://")[2].lower() == headers["host"].lower()


def _is_asked_by_the_ui(asked: HTTPConnection) -> bool:
    """Return whether a request has a method and path that the UI uses: GET, or POST of JSON to ``/graphql``."""
    method, to_graphql = asked.scope["method"], asked.scope["path"] == _GRAPHQL
    if method == "POST":
        kind = asked.headers.get("content-type", "").partition(";")[0].strip().lower()
        return to_graphql and kind == "application/json"
    return method in ("GET", "HEAD") and not to_graphql
