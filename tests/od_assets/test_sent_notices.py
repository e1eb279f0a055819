"""Notices that are sent by configuration alone: to an HTTP server and an SMTP server, which take them or do not."""

from __future__ import annotations

import json
import logging
import socketserver
import threading
import traceback
from collections.abc import Iterator
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from dagster._core.remote_representation.external_data import RepositorySnap
from dagster_shared.serdes import serialize_value
from dagster_shared.utils.warnings import disable_dagster_warnings

from od_assets.components import OdWarehouse
from od_assets.components.project import find_broken_declarations
from od_assets.sensors.notices import Failed, Notices, Published, SentNotices
from od_core.errors import OdError
from tests.od_assets.conftest import records
from tests.od_assets.watch import Watch
from tests.projects import declare

SECRET = "hunter2"  # noqa: S105  # invented

PUBLISHED = Published("trips/2001-01/r1", {"epsilon": 1.0, "trips": 1998})
FAILED = Failed("trips", "2001-02", "7", ("trips/raw_trips: OD-FILE-MISSING: a file is missing",), "0.0125")


class Webhook(BaseHTTPRequestHandler):
    """A service that takes a message as JSON, or answers that it is unavailable."""

    taken: list[dict[str, Any]]
    paths: list[str]
    is_up: bool

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self.paths.append(self.path)
        if self.is_up:
            self.taken.append(json.loads(content))
        self.send_response(200 if self.is_up else 503)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class Mailbox(socketserver.StreamRequestHandler):
    """A mail server without encryption, which keeps what it takes."""

    taken: list[EmailMessage]
    is_up: bool

    def handle(self) -> None:
        self.wfile.write(b"220 test\r\n" if self.is_up else b"421 not now\r\n")
        while self.is_up and (line := self.rfile.readline()):
            command = line[:4].upper()
            if command == b"DATA":
                self.wfile.write(b"354 go on\r\n")
                lines = iter(self.rfile.readline, b".\r\n")
                self.taken.append(message_from_bytes(b"".join(lines), policy=policy.default))
            self.wfile.write(b"221 bye\r\n" if command == b"QUIT" else b"250 ok\r\n")
            if command == b"QUIT":
                return


@pytest.fixture
def webhook() -> Iterator[tuple[type[Webhook], str]]:
    Webhook.taken, Webhook.paths, Webhook.is_up = [], [], True
    with HTTPServer(("127.0.0.1", 0), Webhook) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Webhook, f"json://127.0.0.1:{server.server_port}/services/{SECRET}"
        server.shutdown()


@pytest.fixture
def mailbox() -> Iterator[tuple[type[Mailbox], str]]:
    Mailbox.taken, Mailbox.is_up = [], True
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Mailbox) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        place = f"127.0.0.1:{server.server_address[1]}"
        yield Mailbox, f"mailto://{place}?from=od@example.org&to=team@example.org&mode=insecure"
        server.shutdown()


def bound(notices: Any) -> Notices:
    """The channel that the warehouse binds for a value of ``notices``."""
    found: Any = OdWarehouse.model_validate({"notices": notices}).build_defs(None).resources["od_notices"]
    return found


def test_a_webhook_and_a_mailbox_receive_what_happened_what_was_spent_and_the_next_step(webhook, mailbox, caplog):
    (hook, address), (box, mail) = webhook, mailbox
    channel = bound({"to": [address, mail]})
    channel.published(PUBLISHED, logging.getLogger("sensor"))
    channel.failed(FAILED, logging.getLogger("sensor"))
    bodies = [
        "epsilon: 1.0\ntrips: 1998\nNext: read its report, which od-release report trips --period 2001-01 opens.",
        "trips/raw_trips: OD-FILE-MISSING: a file is missing\n"
        "The run charged rho 0.0125, which stays charged. Another run draws nothing twice.\n"
        "Next: do what is stated above, and run it again. od-release status lists what is measured and spent.\nRun: 7",
    ]
    assert [(each["title"], each["message"], each["type"]) for each in hook.taken] == [
        ("Published trips/2001-01/r1", bodies[0], "success"),
        ("Failed trips, 2001-02", bodies[1], "failure"),
    ]
    assert hook.paths == [f"/services/{SECRET}"] * 2
    assert [mail["Subject"] for mail in box.taken] == ["Published trips/2001-01/r1", "Failed trips, 2001-02"]
    assert all(mail["To"] == "team@example.org" for mail in box.taken)
    contents = [mail.get_body(("plain",)).get_content().strip().replace("\r\n", "\n") for mail in box.taken]
    assert contents == bodies


@pytest.mark.parametrize(("rho", "said"), [(None, "recorded no charge"), ("0.5", "charged rho 0.5, which stays")])
def test_a_failure_says_whether_budget_was_spent(rho, said):
    assert said in str(Failed("trips", "2001-02", "7", ("a",), rho))


def test_only_the_notices_that_are_asked_for_are_sent_and_all_are_in_the_log(webhook, caplog):
    hook, address = webhook
    caplog.set_level(logging.INFO)
    channel = bound({"to": [address], "of": ["failed"]})
    channel.published(PUBLISHED, logging.getLogger("sensor"))
    channel.failed(FAILED, logging.getLogger("sensor"))
    assert [each["title"] for each in hook.taken] == ["Failed trips, 2001-02"]
    assert caplog.messages == [str(PUBLISHED), str(FAILED)]


def test_an_address_that_does_not_take_a_notice_has_it_again_and_the_other_only_once(webhook, mailbox, caplog):
    """No secret is in the error or in a log, not even in one that asks for all that libraries have to say."""
    (hook, address), (box, mail) = webhook, mailbox
    caplog.set_level(logging.DEBUG)
    channel = bound({"to": [address, mail]})
    hook.is_up = False
    for _ in range(3):
        with pytest.raises(
            OdError, match=r"OD-NOTICE-UNSENT: address 1 of notices.to did not take a notice"
        ) as refused:
            channel.failed(FAILED, logging.getLogger("sensor"))
        assert SECRET not in "".join(traceback.format_exception(refused.value))
    assert (len(hook.paths), len(box.taken)) == (3, 1)
    hook.is_up = True
    channel.failed(FAILED, logging.getLogger("sensor"))
    assert (len(hook.taken), len(box.taken)) == (1, 1)
    box.is_up = False
    with pytest.raises(OdError, match=r"address 2 of notices\.to"):
        channel.failed(FAILED, logging.getLogger("sensor"))
    assert len(hook.taken) == 2  # another notice with the same words is sent again
    assert SECRET not in caplog.text
    assert "127.0.0.1" not in caplog.text


def test_a_failed_run_is_sent_by_the_sensor_once_the_service_is_back(project, webhook):
    hook, address = webhook
    hook.is_up = False
    watch = Watch.begun(project, "release_failed", bound({"to": [address]}))
    project.write_records(records().assign(origin="NOWHERE"))
    project.run()
    with pytest.raises(OdError, match="OD-NOTICE-UNSENT"):
        watch.look()
    hook.is_up = True
    watch.look()
    watch.look()
    [message] = hook.taken
    assert message["title"] == "Failed trips, 2001-01"
    assert "OD-CHECK-FAILED: trips/raw_trips: check meets_expectations failed." in message["message"]
    assert "The run recorded no charge" in message["message"]
    assert "NOWHERE" not in message["message"]


def test_no_definition_that_the_ui_shows_has_an_address(project, webhook, monkeypatch):
    monkeypatch.setenv("TEAM_HOOK", webhook[1])
    component = OdWarehouse.model_validate({"notices": {"to": ["{{ env.TEAM_HOOK }}"]}})
    assert SECRET not in repr(component) + str(component.model_dump()) + component.model_dump_json()
    definitions = component.build_defs(None)
    assert isinstance(definitions.resources["od_notices"], SentNotices)
    assert SECRET not in repr(definitions)
    with disable_dagster_warnings():  # Dagster's own snapshot reads a deprecated property
        shown = serialize_value(RepositorySnap.from_def(definitions.get_repository_def()))
    assert "od_notices" in shown
    assert SECRET not in shown


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"to": [f"https-typo://{SECRET}"]}, "address 1"),
        ({"to": ["json://127.0.0.1", f"slack://{SECRET}"]}, "address 2"),
        ({"to": [f"{SECRET}"]}, "address 1"),
        ({"to": []}, "to"),
        ({"to": ["json://127.0.0.1"], "of": ["late"]}, "of"),
        ({"of": ["failed"]}, "to"),
        ("yes please", "notices"),
    ],
)
def test_a_wrong_address_is_said_without_it(project, wrong, said, caplog):
    caplog.set_level(logging.DEBUG)
    declare(project.defs, "warehouse", "OdWarehouse", {"notices": wrong})
    [fault] = find_broken_declarations().values()
    assert said in fault.message
    assert SECRET not in str(fault) + "".join(traceback.format_exception(fault)) + caplog.text


def test_true_is_the_log_alone_and_false_leaves_the_resource_to_the_project():
    assert type(bound(True)) is Notices
    assert "od_notices" not in OdWarehouse.model_validate({"notices": False}).build_defs(None).resources
