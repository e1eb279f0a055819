"""The Dagster UI of a released month: it asks nobody else, and no page of anybody else does anything."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import dagster as dg
import pytest

from tests.browser.conftest import PERIOD, Ui, outside, show

BUNDLE = f"/assets/us_flights/bundle?view=partitions&partition={PERIOD}"


def test_the_bundle_shows_what_the_report_does(opened, ui):
    """Numbers, tables, where the report is; and the map, which is in the metadata itself."""
    page, seen = opened(ui.at(BUNDLE), 1400, 1300)
    for words in ("Materialized", "report.html", "differentially private", "left_rho", "largest_flows", "lower"):
        page.get_by_text(words).first.wait_for(timeout=120_000)
    show(page, "ui-metadata")
    page.get_by_text("Show Markdown").first.click()
    picture = page.locator("img[src^='data:image/svg+xml']")
    picture.wait_for(timeout=120_000)
    assert picture.evaluate("image => image.naturalWidth") > 300
    show(page, "ui-pictures")
    assert seen.errors == []
    assert outside(seen.asked, ui.address) == []


LAUNCH = """mutation { launchRun(executionParams: {
    selector: {repositoryLocationName: "od-release", repositoryName: "__repository__", jobName: "us_flights_release"}
    runConfigData: {}, executionMetadata: {tags: [{key: "dagster/partition", value: "2001-05"}]}
}) { __typename } }"""
TABLE, BUNDLE_KEY = dg.AssetKey(["us_flights", "flows"]), dg.AssetKey(["us_flights", "bundle"])
CHECK = dg.AssetCheckKey(TABLE, "spend_is_plan")
ATTACK = """async ([ui, launch]) => {
    const read = "{ instance { id } }", query = "/graphql?query=" + encodeURIComponent(launch), sent = {method: "POST"};
    const blind = {mode: "no-cors", credentials: "include"}, seeing = {credentials: "include"};
    const json = {headers: {"content-type": "application/json"}};
    const ask = async (path, how) => (await fetch(ui + path, how)).text();
    const subscribe = () => new Promise((done) => {
        const socket = new WebSocket(ui.replace("http", "ws") + "/graphql", "graphql-ws");
        socket.onopen = () => socket.send(JSON.stringify({type: "connection_init"}));
        socket.onmessage = (message) => done(message.data);
        socket.onerror = () => done("");
    });
    const tried = {
        get: ask(query, blind),
        post: ask(query, {...blind, ...sent}),
        json: ask("/graphql", {...seeing, ...sent, ...json, body: JSON.stringify({query: launch})}),
        made: ask("/report_asset_materialization/us_flights/bundle?partition=2001-05", {...blind, ...sent}),
        observed: ask("/report_asset_observation/us_flights/bundle?partition=2001-05", {...blind, ...sent}),
        checked: ask("/report_asset_check/us_flights/flows?check_name=spend_is_plan&passed=true", {...blind, ...sent}),
        read: ask("/graphql?query=" + encodeURIComponent(read), seeing),
        subscribed: subscribe(),
    };
    const seen = {};
    for (const name in tried) seen[name] = await tried[name].catch(() => "");
    return seen;
}"""


@pytest.fixture
def other_page() -> Iterator[str]:
    """Address of an empty page of another origin on the same machine: browsers send it cookies of the UI."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()

        def log_message(self, *given: Any) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://localhost:{server.server_port}/"
        server.shutdown()


def recorded(ui: Ui) -> dict[str, int]:
    """What a page may have done to an instance."""
    with dg.DagsterInstance.from_config(str(ui.home)) as instance:
        checks = instance.event_log_storage.get_asset_check_execution_history(CHECK, limit=100)
        return {
            "runs": instance.get_runs_count(),
            "made": len(instance.fetch_materializations(BUNDLE_KEY, limit=100).records),
            "observed": len(instance.fetch_observations(BUNDLE_KEY, limit=100).records),
            "checked": len([check for check in checks if check.status.value == "SUCCEEDED"]),
        }


def test_a_page_of_another_origin_does_and_reads_nothing(opened, ui, unguarded_ui, other_page):
    """It does all of it where nothing guards the UI, even without an operator who is signed in."""
    before = recorded(unguarded_ui)
    page, _ = opened(other_page)
    seen = page.evaluate(ATTACK, [unguarded_ui.address, LAUNCH])
    after = recorded(unguarded_ui)
    assert [name for name in after if after[name] > before[name]] == ["runs", "made", "observed", "checked"]
    assert "connection_ack" in seen["subscribed"]

    before = recorded(ui)
    page, _ = opened(ui.at("/runs"))
    page.get_by_text("us_flights_release").first.wait_for(timeout=30_000)  # the browser holds the cookie
    page.goto(other_page)
    seen = page.evaluate(ATTACK, [ui.address, LAUNCH])
    assert recorded(ui) == before
    assert seen == dict.fromkeys(seen, "")


REBOUND = """async (launch) => {
    const query = launch, headers = {"content-type": "application/json"};
    const answer = await fetch("/graphql", {method: "POST", headers, body: JSON.stringify({query})});
    return [answer.status, await answer.text()];
}"""


def test_a_page_whose_name_comes_to_point_here_does_and_reads_nothing(opened, ui, unguarded_ui):
    """To the browser it is of the same origin as the UI then."""

    def asked(one):
        page, _ = opened(one.address.replace("localhost", "evil.example") + "/server_info")
        return tuple(page.evaluate(REBOUND, LAUNCH))

    before, guarded_before = recorded(unguarded_ui), recorded(ui)
    status, text = asked(unguarded_ui)
    assert (status, json.loads(text)["data"]["launchRun"]["__typename"]) == (200, "LaunchRunSuccess")
    assert recorded(unguarded_ui)["runs"] == before["runs"] + 1
    assert asked(ui) == (400, "Invalid host header")
    assert recorded(ui) == guarded_before
