"""Define the schedule and the sensor for arriving files, which release periods automatically."""

import datetime
import json
from collections.abc import Iterator

import dagster as dg

from od_assets.compatibility import UnresolvedJob, make_owners_argument
from od_assets.metadata import make_code_references
from od_assets.resources.arrivals import Arrival, check_arrival, describe_rerelease
from od_assets.resources.dead_runs import make_run_tags
from od_assets.resources.warehouse import Warehouse
from od_assets.series.series import G, P, Series
from od_core.periods import Period

_MAX_PERIODS = 12
"""Largest number of runs that one evaluation of the sensor requests, and of the newest periods that it reports."""


def make_release_schedule(series: Series[P, G], job: UnresolvedJob) -> dg.ScheduleDefinition:
    """Return a schedule that, at each tick, requests the release of the last ended period or reports why it cannot.

    For monthly periods, a daily schedule therefore tries every day until the file arrives or the next month ends, and a
    monthly one only once.
    """

    @dg.schedule(
        name=f"{series.name}_schedule",
        cron_schedule=str(series.schedule),
        job=job,
        execution_timezone=series.periods.dagster_time_zone,
        default_status=dg.DefaultScheduleStatus(series.automation.upper()),
        description="Releases the period that ended before each tick, if its file has arrived.",
        **make_owners_argument(series.owners),
        metadata=make_code_references(__file__),
    )
    def schedule(context: dg.ScheduleEvaluationContext) -> list[dg.RunRequest] | dg.SkipReason:
        warehouse = Warehouse.from_project(series.project)
        tick = context.scheduled_execution_time
        requests_and_reasons = [_find_request_at_tick(row, tick, warehouse) for row in series.rows]
        requests = [request for request in requests_and_reasons if isinstance(request, dg.RunRequest)]
        reason = " ".join(obstacle for obstacle in requests_and_reasons if isinstance(obstacle, str))
        if requests and reason:
            context.log.info(reason)
        return requests or dg.SkipReason(reason)

    return schedule


def _find_request_at_tick(series: Series[P, G], tick: datetime.datetime, warehouse: Warehouse) -> dg.RunRequest | str:
    """Return the request of a run for the last period that ended before a tick, or why there is none."""
    period = series.periods.find_last_ended_period(tick)
    if period is None:
        return f"No period of {series.name} ended right before this tick."
    published = warehouse.find_published_periods(series).get(period.text)
    if published is not None:
        return f"{published} was published."
    arrival = check_arrival(series, period)
    obstacle = _find_obstacle(series, period, arrival, warehouse)
    if obstacle is not None:
        return f"{arrival.key} is waiting: {obstacle}."
    return _make_run_request(series, period, arrival, tick)


def make_arrival_sensor(series: Series[P, G], job: UnresolvedJob) -> dg.SensorDefinition:
    """Return a sensor that releases ended periods whose files have arrived, oldest first.

    The sensor also reports why other periods cannot be released yet. It never releases a published period again, even
    if its file or the declared revision has changed. It requests one run per file. If the run fails and the file is
    replaced, the sensor requests another run, because the run key contains the time at which the file was last changed
    (and nothing else about the file). The cursor has the requested run keys whose releases are not published yet.
    """

    @dg.sensor(
        name=f"{series.name}_arrivals",
        job=job,
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus(series.automation.upper()),
        description="Releases each ended period once its file has arrived, is complete and no longer changes.",
        **make_owners_argument(series.owners),
        metadata=make_code_references(__file__),
    )
    def arrivals(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        warehouse = Warehouse.from_project(series.project)
        requested = set(json.loads(context.cursor or "[]"))
        now = datetime.datetime.now(datetime.UTC)
        ready: dict[str, dg.RunRequest] = {}
        messages: list[str] = []
        for row in series.rows:
            for request_or_reason in _iterate_arrivals(row, now, warehouse):
                if isinstance(request_or_reason, str):
                    messages.append(request_or_reason)
                    continue
                ready[str(request_or_reason.run_key)] = request_or_reason
                if request_or_reason.run_key in requested:
                    advice = "if its run failed, correct its file or run it by hand"
                    messages.append(f"{str(request_or_reason.run_key).partition('@')[0]} was requested; {advice}")
        run_keys = [key for key in ready if key not in requested][:_MAX_PERIODS]
        reason = "; ".join(messages[-_MAX_PERIODS:]) or f"Every ended period of {series.name} is published."
        if run_keys and messages:
            context.log.info(reason)
        return dg.SensorResult(
            run_requests=[ready[key] for key in run_keys],
            skip_reason=None if run_keys else dg.SkipReason(reason),
            cursor=json.dumps(sorted({*(requested & ready.keys()), *run_keys})),
        )

    return arrivals


def _iterate_arrivals(
    series: Series[P, G], now: datetime.datetime, warehouse: Warehouse
) -> Iterator[dg.RunRequest | str]:
    """Yield, oldest first, the request of a run for each period that can be released, and why others cannot.

    A published period is yielded only if there is a reason to release it again, as that reason.
    """
    published = warehouse.find_published_periods(series)
    for period in series.periods.list_ended_periods(now):
        arrival = check_arrival(series, period, now)
        if period.text in published:
            reason_to_rerelease = describe_rerelease(series, arrival, published[period.text], warehouse)
            if reason_to_rerelease is not None:
                yield reason_to_rerelease
            continue
        obstacle = _find_obstacle(series, period, arrival, warehouse)
        if obstacle is not None:
            yield f"{arrival.key} is waiting: {obstacle}"
        else:
            yield _make_run_request(series, period, arrival, arrival.changed)


def _find_obstacle(series: Series[P, G], period: Period, arrival: Arrival, warehouse: Warehouse) -> str | None:
    """Return why a period cannot be released yet, given the state of its file; None if it can."""
    return arrival.waits or warehouse.explain_wait_for_first_run(series, period)


def _make_run_request(
    series: Series[P, G], period: Period, arrival: Arrival, since: datetime.datetime | None
) -> dg.RunRequest:
    """Return the request of a run for a period. Dagster starts one run for each key of requests.

    ``since`` is part of the key: the time of the file's last change, or of a schedule's tick; None without a file.
    """
    stamp = "" if since is None else since.isoformat()
    partition, tags = series.format_partition(period), make_run_tags(series)
    return dg.RunRequest(run_key=f"{arrival.key}@{stamp}", partition_key=partition, tags=tags)
