"""What the guard of the Dagster UI lets through, asked as browsers and programs ask."""

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from od_assets.cli.ui_server import guard_application
from tests.od_assets.cli.asgi import ACCEPTED, Answer, ask

TOKEN, COOKIE = "t" * 32, "od_release_ui_3000"
KNOWN = {"cookie": f"other=1; {COOKIE}={TOKEN}"}
JSON = {"content-type": "application/json"}
OWN, FOREIGN = {"origin": "http://localhost:3000"}, {"origin": "http://localhost:8000"}
REFUSED = {"host": 400, "method": 405, "origin": 403, "token": 401}


async def page(request: Request) -> PlainTextResponse:
    return PlainTextResponse("inside")


async def socket(websocket: WebSocket) -> None:
    await websocket.accept()


METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"]
APP = Starlette(routes=[WebSocketRoute("/graphql", socket), Route("/{path:path}", page, methods=METHODS)])


def asked(method: str, address: str, headers: dict[str, str], hosts: tuple[str, ...] = ()) -> Answer:
    return ask(guard_application(APP, TOKEN, COOKIE, hosts), method, address, {"host": "localhost:3000", **headers})


@pytest.mark.parametrize(
    ("method", "address", "headers"),
    [
        ("GET", "/runs", KNOWN),
        ("GET", "/", KNOWN | {"host": "127.0.0.1:3000"}),
        ("GET", "/", KNOWN | {"host": "[::1]:3000"}),
        ("HEAD", "/", KNOWN),
        ("POST", "/graphql?op=Runs", KNOWN | JSON | OWN),
        ("POST", "/graphql", KNOWN | OWN | {"content-type": "Application/JSON; charset=utf-8"}),
        ("POST", "/graphql", KNOWN | JSON | {"host": "localhost:8080", "origin": "http://localhost:8080"}),  # a tunnel
        ("POST", "/graphql", JSON | {"authorization": f"Bearer {TOKEN}"}),  # a program, or a proxy that knows people
        ("WS", "/graphql", KNOWN | OWN),
    ],
)
def test_what_the_ui_itself_asks_is_let_through(method, address, headers):
    assert asked(method, address, headers)[0] == ACCEPTED


@pytest.mark.parametrize(
    ("reason", "method", "address", "headers"),
    [
        # A page whose name was made to point here, in the middle of its visit.
        ("host", "GET", "/", KNOWN | {"host": "evil.example:3000"}),
        (
            "host",
            "POST",
            "/graphql",
            KNOWN | JSON | {"host": "evil.example:3000", "origin": "http://evil.example:3000"},
        ),
        ("host", "WS", "/graphql", KNOWN | {"host": "evil.example:3000", "origin": "http://evil.example:3000"}),
        ("host", "GET", "/", KNOWN | {"host": "localhost.evil.example"}),
        ("host", "GET", "/", KNOWN | {"host": ""}),
        # Another page, whose browser holds the cookie: of this site, too, where only the port differs.
        ("origin", "POST", "/graphql", KNOWN | JSON | FOREIGN),
        ("origin", "POST", "/graphql", KNOWN | JSON | {"origin": "null"}),
        ("origin", "POST", "/graphql", KNOWN | JSON | {"origin": "https://evil.example"}),
        ("origin", "POST", "/graphql", KNOWN | JSON | {"origin": "http://127.0.0.1:3000"}),
        ("origin", "WS", "/graphql", KNOWN | FOREIGN),
        ("origin", "GET", "/runs", KNOWN | FOREIGN),
        # Changes by GET, by a form, and where Dagster takes what was never made.
        ("method", "GET", "/graphql?query=mutation", KNOWN),
        ("method", "GET", "/graphql", KNOWN | {"accept": "text/html"}),
        ("method", "POST", "/graphql?query=mutation", KNOWN | OWN | {"content-type": "text/plain"}),
        ("method", "POST", "/graphql", KNOWN | OWN),
        ("method", "POST", "/graphql", KNOWN | OWN | {"content-type": "text/plain; application/json"}),
        ("method", "POST", "/report_asset_materialization/us_flights/bundle", KNOWN | JSON | OWN),
        ("method", "POST", "/report_asset_check/us_flights/flows", KNOWN | JSON | OWN),
        ("method", "POST", "/report_asset_observation/us_flights/flows", KNOWN | JSON | OWN),
        ("method", "POST", "/graphql/", KNOWN | JSON | OWN),
        ("method", "DELETE", "/graphql", KNOWN | JSON | OWN),
        ("method", "OPTIONS", "/graphql", KNOWN | FOREIGN | {"origin": "http://localhost:3000"}),
        # Whoever is on this machine, too.
        ("token", "GET", "/", {}),
        ("token", "GET", "/?token=other", {}),
        ("token", "POST", "/graphql", JSON | {"cookie": "od_release_ui_3001=" + TOKEN}),
        ("token", "POST", "/graphql", JSON | {"cookie": f"{COOKIE}="}),
        ("token", "POST", "/graphql", JSON | {"authorization": f"Basic {TOKEN}"}),
        ("token", "POST", "/graphql", JSON | {"authorization": "Bearer \xe9"}),
        ("token", "WS", "/graphql", OWN),
        ("token", "WS", f"/graphql?token={TOKEN}", OWN),
    ],
)
def test_everything_else_is_refused(reason, method, address, headers):
    assert asked(method, address, headers)[0] == REFUSED[reason]


def test_the_address_that_is_printed_signs_in_and_its_token_is_not_kept_in_it():
    status, answer, _ = asked("GET", f"/runs?a=1&token={TOKEN}", {})
    assert (status, answer["location"]) == (303, "http://localhost:3000/runs?a=1")
    cookie = answer["set-cookie"]
    assert cookie.startswith(f"{COOKIE}={TOKEN};")
    assert {"HttpOnly", "SameSite=strict"} <= set(cookie.split("; "))


def test_a_declared_name_is_let_through_with_its_own_origin():
    host = {"host": "od.example.org", "origin": "https://od.example.org", "authorization": f"Bearer {TOKEN}"}
    assert asked("POST", "/graphql", JSON | host)[0] == REFUSED["host"]
    assert asked("POST", "/graphql", JSON | host, ("od.example.org",))[0] == ACCEPTED
    assert asked("POST", "/graphql", JSON | host | OWN, ("od.example.org",))[0] == REFUSED["origin"]


def test_no_other_page_frames_or_loads_it():
    for headers in (KNOWN, {}):
        answer = asked("GET", "/", headers)[1]
        assert answer["x-frame-options"] == "DENY"
        assert answer["cross-origin-resource-policy"] == "same-origin"
