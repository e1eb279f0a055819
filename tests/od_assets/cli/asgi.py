"""Requests of browsers and programs to an application that is served, without a server."""

import asyncio
from typing import Any, NamedTuple

ACCEPTED = 200
"""The status of a websocket that is accepted."""


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: str


def ask(app: Any, method: str, address: str, headers: dict[str, str]) -> Answer:
    """The answer of an application to a request; its path is as a server has decoded it. ``WS`` opens a websocket."""
    path, _, query = address.partition("?")
    scope = {
        "type": "websocket" if method == "WS" else "http",
        "method": method,
        "scheme": "ws" if method == "WS" else "http",
        "path": path,
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers.items()],
        "extensions": {"websocket.http.response": {}} if method == "WS" else {},
        "subprotocols": [],
    }
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        if sent or method != "WS":
            await asyncio.Event().wait()  # nobody disconnects
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    answer = {name.decode(): value.decode() for name, value in sent[0].get("headers", [])}
    body = b"".join(message.get("body", b"") for message in sent[1:]).decode()
    return Answer(sent[0].get("status", ACCEPTED), answer, body)
