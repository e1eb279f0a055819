"""Interrupts of commands: what is begun after them, what they say, and their exit codes."""

import signal
import sys
import uuid
from types import SimpleNamespace

import dagster as dg
import pytest

from od_assets.cli import ExitCode
from od_assets.cli import app as cli
from od_assets.interrupts import Interrupted, get_received_signal, handle_interrupts, refuse_if_interrupted
from od_assets.resources import warehouse
from od_assets.runs import jobs, period_status
from od_core.errors import OdError
from od_core.ledger.release_key import ReleaseKey

PERIODS = ["2001-01", "2001-02", "2001-03"]


@pytest.fixture(params=[(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["SIGINT", "SIGTERM"])
def interrupt(request) -> tuple[signal.Signals, int]:
    """A signal and the exit code of a command that it ends."""
    found: tuple[signal.Signals, int] = request.param
    return found


def said_by(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, code: int, *arguments: str
) -> tuple[str, str]:
    monkeypatch.setattr(sys, "argv", ["od-release", *arguments])
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == code
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    said = capsys.readouterr()
    return said.out, said.err


@pytest.mark.parametrize("as_seen", [None, OdError("OD-CONFIDENTIAL-ERROR", "a step failed", next_step="look")])
def test_no_period_is_begun_after_an_interrupt(interrupt, as_seen, project, capsys, monkeypatch):
    """Also where a library has made another error of it."""
    number, code = interrupt
    begun = []

    def run(_component, _job, period, *, quiet):
        begun.append(period)
        if period == "2001-02":
            try:
                signal.raise_signal(number)
            except Interrupted:
                raise as_seen or Interrupted(number) from None
        return SimpleNamespace(facts={"release": period}, released=True)

    project.component()  # writes the domain
    project.declare()
    monkeypatch.setattr(period_status, "choose_periods", lambda *_, **__: PERIODS)
    monkeypatch.setattr(jobs, "find_release_job", lambda _: None)
    monkeypatch.setattr(jobs, "run_period", run)
    output, errors = said_by(capsys, monkeypatch, code, "run", "trips", "--all", "--json")
    assert begun == ["2001-01", "2001-02"]
    assert errors.startswith(f"OD-INTERRUPTED: stopped by {number.name}: 2 of 3 periods were not run [")
    assert errors.count("\n") == 1
    assert '"release": "2001-01"' in output
    assert "2001-02" not in output


def test_no_release_is_verified_after_an_interrupt(interrupt, project, capsys, monkeypatch):
    number, code = interrupt
    ledger = SimpleNamespace(list_published_releases=lambda: [ReleaseKey("trips", period) for period in PERIODS])
    monkeypatch.setattr(warehouse.Warehouse, "open_existing_ledger", lambda _: ledger)
    monkeypatch.setattr(warehouse.Warehouse, "list_public_releases", lambda _: [])
    monkeypatch.setattr(warehouse.Warehouse, "locate_release", lambda *_: signal.raise_signal(number))
    output, errors = said_by(capsys, monkeypatch, code, "verify")
    assert output == ""
    assert errors.startswith(f"OD-INTERRUPTED: stopped by {number.name}: 3 of 3 releases were not verified [")


def test_a_run_of_dagster_ends_with_the_signal_that_it_received(interrupt):
    """Dagster makes the same error of both signals, and a run that failed of it."""
    number, code = interrupt
    after = []

    @dg.asset
    def flows() -> None:
        signal.raise_signal(number)

    @dg.asset(deps=[flows])
    def bundle() -> None:
        after.append(1)

    definitions = dg.Definitions(assets=[flows, bundle], jobs=[dg.define_asset_job("release")])
    with dg.DagsterInstance.ephemeral() as instance, handle_interrupts():
        run_id = str(uuid.uuid4())
        with pytest.raises(Interrupted) as ended:
            jobs.execute_job(definitions.resolve_job_def("release"), instance, run_id, None)
        run = instance.get_run_by_id(run_id)
    assert ExitCode.from_signal(ended.value.number) == code
    assert not after
    assert run is not None
    assert run.status is dg.DagsterRunStatus.FAILURE


def test_a_signal_in_a_finalizer_is_kept_and_nothing_is_printed_of_it(capsys):
    """Python passes on no exception of a finalizer. Its hook prints them, and fails a test."""

    class Ended:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGTERM)

    with handle_interrupts():
        Ended()
        assert get_received_signal() == signal.SIGTERM
        with pytest.raises(Interrupted):
            refuse_if_interrupted()
    assert capsys.readouterr().err == ""
