"""What fails for a passing reason is tried again, in runs that nobody watches, before noise may have been drawn."""

from contextlib import ExitStack

import dagster as dg
import pytest

from od_assets.assets import flows, release
from od_assets.components.project import OdWarehouse
from od_assets.components.series import build_series_definitions
from od_assets.resources import retries
from od_assets.resources.warehouse import Warehouse
from od_core.errors import OdError
from tests.od_assets.conftest import failure_text

EXECUTOR = dg.Definitions(executor=dg.in_process_executor)

BACKFILL = {"dagster/backfill": "abcdefgh"}


@pytest.fixture
def unwatched_run(project, monkeypatch):
    """A run of a backfill, which need not wait long."""
    monkeypatch.setattr(retries, "WAITS", (0, 0, 0))

    def run(tags=BACKFILL):
        component = project.component()
        warehouse = OdWarehouse.model_validate({"lock_seconds": 0}).build_defs(None)
        job = dg.Definitions.merge(build_series_definitions(component), warehouse, EXECUTOR).resolve_job_def(
            f"{component.name}_release"
        )
        return project.execute(job, partition="2001-01", tags=tags)

    return run


def failing(monkeypatch, module, name, *, times, codes, before=True):
    """Let a function of a module fail some times, before or after it does its work; return how often it was called."""
    real, calls = getattr(module, name), []

    def fail(*arguments, **named):
        calls.append(name)
        result = None if before and len(calls) <= times else real(*arguments, **named)
        if len(calls) <= times:
            raise OdError(codes[(len(calls) - 1) % len(codes)], "it is away", next_step="wait")
        return result

    monkeypatch.setattr(module, name, fail)
    return calls


def list_retries(project, result):
    logs = project.instance.all_logs(result.run_id)
    warnings = [entry.user_message for entry in logs if "tried again" in entry.user_message]
    steps = [entry for entry in logs if entry.is_dagster_event and entry.dagster_event.is_step_up_for_retry]
    return warnings, steps


def test_a_step_before_the_draws_is_tried_again_and_the_log_says_why(project, unwatched_run, monkeypatch):
    codes = ("OD-DISK-WRITE", "OD-LEDGER-UNAVAILABLE", "OD-DATABASE-LOCKED")
    calls = failing(monkeypatch, release, "load_period", times=3, codes=codes)
    result = unwatched_run()
    assert result.success, failure_text(result)
    warnings, steps = list_retries(project, result)
    assert len(calls) == 4
    assert len(steps) == 3
    assert [f"({number} of 3)" in warning for number, warning in enumerate(warnings, 1)] == [True] * 3
    assert [code in warning for code, warning in zip(codes, warnings, strict=True)] == [True] * 3


def test_the_fourth_failure_stands(project, unwatched_run, monkeypatch):
    failing(monkeypatch, release, "load_period", times=4, codes=["OD-DISK-WRITE"])
    result = unwatched_run()
    assert "OD-DISK-WRITE" in failure_text(result)
    assert not Warehouse().ledger.read_states()


@pytest.mark.parametrize(("tags", "code"), [({}, "OD-DISK-WRITE"), (BACKFILL, "OD-COLUMN-ABSENT")])
def test_a_run_by_hand_and_an_error_that_stays_are_not_tried_again(project, unwatched_run, monkeypatch, tags, code):
    calls = failing(monkeypatch, release, "load_period", times=1, codes=[code])
    result = unwatched_run(tags)
    assert code in failure_text(result)
    assert len(calls) == 1
    assert list_retries(project, result) == ([], [])


def test_a_step_that_may_have_drawn_is_not_tried_again_and_the_next_run_draws_nothing_twice(
    project, unwatched_run, monkeypatch
):
    calls = failing(monkeypatch, flows, "measure_level", times=1, codes=["OD-LEDGER-UNAVAILABLE"], before=False)
    result = unwatched_run()
    assert "OD-LEDGER-UNAVAILABLE" in failure_text(result)
    assert len(calls) == 1
    assert list_retries(project, result) == ([], [])
    assert unwatched_run().success
    key = project.component().key("2001-01")
    assert Warehouse().ledger.list_lost_draws(key) == []


def test_the_publication_after_the_draws_is_tried_again(project, unwatched_run, monkeypatch):
    failing(monkeypatch, release, "publish_release", times=1, codes=["OD-DATABASE-LOCKED"])
    result = unwatched_run()
    assert result.success, failure_text(result)
    assert [step.dagster_event.step_key for step in list_retries(project, result)[1]] == [
        f"{project.component().name}__bundle"
    ]


def test_a_lock_at_the_beginning_of_a_run_is_tried_again_and_by_hand_refused(project, unwatched_run, monkeypatch):
    with ExitStack() as held:
        held.enter_context(Warehouse().ledger_chain.lock_for_release(0))
        monkeypatch.setattr(retries.time, "sleep", lambda _: held.close())
        assert not unwatched_run({}).success
        result = unwatched_run()
    assert result.success, failure_text(result)
    assert ["OD-RELEASE-LOCKED" in warning for warning in list_retries(project, result)[0]] == [True]
