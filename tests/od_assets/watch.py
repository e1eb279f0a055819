"""The sensors that give notice, looked at again and again as the daemon does, and what they said."""

from __future__ import annotations

import logging
from typing import Any

import dagster as dg

from od_assets.definitions import defs
from od_assets.sensors.notices import Failed, Notices, Published
from od_assets.series.series import Series

from .conftest import Project


class Kept(Notices):
    """Notices that a test looks at."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    def published(self, notice: Published, log: logging.Logger) -> None:
        self.said.append(notice)

    def failed(self, notice: Failed, log: logging.Logger) -> None:
        self.said.append(notice)


class Watch:
    """A sensor of a project, with its cursor."""

    def __init__(
        self,
        project: Project,
        sensor: str | dg.SensorDefinition,
        notices: Notices | None = None,
        component: Series | None = None,
    ) -> None:
        self.project, self.instance, self.notices = project, project.instance, notices
        self.repository = project.definitions(component or project.component()).get_repository_def()
        is_named = isinstance(sensor, str)
        self.sensor = defs().get_repository_def().get_sensor_def(sensor) if is_named else sensor
        self.cursor: str | None = None

    @classmethod
    def begun(cls, *given: Any, **named: Any) -> Watch:
        """A sensor that has looked once: what was there before is no news."""
        watch = cls(*given, **named)
        watch.look()
        return watch

    def look(self) -> Any:
        """One evaluation; what came of it."""
        with dg.build_sensor_context(
            instance=self.instance,
            cursor=self.cursor,
            repository_name=self.repository.name,
            repository_def=self.repository,
            resources={} if self.notices is None else {"od_notices": self.notices},
        ) as context:
            outcome = self.sensor.evaluate_tick(context)
        self.cursor = outcome.cursor
        return outcome
