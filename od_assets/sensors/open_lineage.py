"""Make OpenLineage events from the event log of a run and the definitions of its assets, and send them.

The events contain names, descriptions, columns, data versions and results of checks of public assets. They contain no
text of an error and no other metadata. What would tell of the records is left out: how long steps took, which step of a
run failed, and results of checks of confidential assets.
"""

import datetime
import os
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from itertools import chain
from typing import Any
from urllib.parse import urlsplit
from uuid import NAMESPACE_URL, uuid5

import dagster as dg
from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    column_lineage_dataset,
    data_quality_assertions_dataset,
    dataset_version_dataset,
    documentation_dataset,
    job_type_job,
    output_statistics_output_dataset,
    ownership_dataset,
    parent_run,
    schema_dataset,
    tags_dataset,
    tags_run,
)

from od_assets.metadata import CONFIDENTIAL_TAG, SOURCES
from od_assets.resources.dead_runs import PERIOD_TAG, RELEASE_TAG, REVISION_TAG
from od_core.errors import OdError

_TYPES = dg.DagsterEventType
_TOLD = {
    *(_TYPES.RUN_START, _TYPES.RUN_SUCCESS, _TYPES.RUN_FAILURE, _TYPES.RUN_CANCELED),
    _TYPES.STEP_START,
    *(_TYPES.ASSET_MATERIALIZATION_PLANNED, _TYPES.ASSET_MATERIALIZATION),
    *(_TYPES.ASSET_CHECK_EVALUATION_PLANNED, _TYPES.ASSET_CHECK_EVALUATION),
}
_ENDS = {_TYPES.RUN_SUCCESS: RunState.COMPLETE, _TYPES.RUN_FAILURE: RunState.FAIL, _TYPES.RUN_CANCELED: RunState.ABORT}
_NOISE = column_lineage_dataset.Transformation(
    "DIRECT", "TRANSFORMATION", "Noise of a differentially private mechanism is added.", masking=True
)


class Sender:
    """The OpenLineage client of one evaluation, and the number of events that it sent.

    The client finds its configuration itself: ``OPENLINEAGE_URL``, ``openlineage.yml`` and so on. It would add the
    remote address of the Git repository to every event; since this may contain a password, that is switched off.

    Raises:
        OdError: the client refuses its configuration, whose text is not repeated, because it may contain a password.
    """

    def __init__(self) -> None:
        try:
            self._client = OpenLineageClient(config={"facets": {"source_code_location": {"disabled": True}}})
        except Exception as error:  # noqa: BLE001  # a transport may raise anything
            raise OdError(
                "OD-LINEAGE-CONFIG",
                f"the OpenLineage client refuses its configuration ({type(error).__name__})",
                next_step="correct the variables OPENLINEAGE_* or openlineage.yml; releases do not wait for it",
            ) from None
        self.sent = 0

    def events(self, instance: dg.DagsterInstance, run: dg.DagsterRun, graph: Any) -> list[RunEvent]:
        """Return the events of a finished run of a release, in order. They are the same at every call."""
        return _Translation(run, instance.all_logs(run.run_id, of_type=_TOLD), graph).events()

    def send(self, event: RunEvent) -> str:
        """Send an event, and return why it was not taken; empty if it was. Texts of errors may contain passwords."""
        try:
            self._client.emit(event)
        except Exception as error:  # noqa: BLE001  # a transport may raise anything
            status = getattr(getattr(error, "response", None), "status_code", "")
            return f"{type(error).__name__} {status}".strip()
        self.sent += 1
        return ""

    def close(self) -> None:
        """Deliver what the transport still holds."""
        self._client.close(timeout=5.0)


class _Translation:
    """One finished run, with its events in the log and the definitions of the assets.

    A run is an OpenLineage run of the job ``<series>_release``; each of its steps is a run of a job of its own, below
    it. Step runs have ids that follow from the run and the step, so events that are sent twice are the same.
    """

    def __init__(self, run: dg.DagsterRun, entries: Sequence[dg.EventLogEntry], graph: Any) -> None:
        self.run, self.graph = run, graph
        self.namespace = os.environ.get("OPENLINEAGE_NAMESPACE") or "dagster"
        self.logged = [(entry.timestamp, entry.dagster_event) for entry in entries if entry.dagster_event is not None]
        self.written: dict[str, list[dg.AssetKey]] = {}  # planned assets by step
        self.checked: dict[str, list[dg.AssetKey]] = {}
        self.evaluations: dict[str, list[Any]] = {}
        self.made: dict[dg.AssetKey, Any] = {}
        for _, event in self.logged:
            self._collect(event)

    def _collect(self, event: dg.DagsterEvent) -> None:
        step, data = event.step_key or "", event.event_specific_data
        if event.event_type == _TYPES.ASSET_MATERIALIZATION_PLANNED:
            self.written.setdefault(step, []).append(event.asset_materialization_planned_data.asset_key)
        elif event.event_type == _TYPES.ASSET_MATERIALIZATION:
            materialization = event.step_materialization_data.materialization
            self.made[materialization.asset_key] = materialization
        elif event.event_type == _TYPES.ASSET_CHECK_EVALUATION_PLANNED:
            self.checked.setdefault(step, []).append(data.asset_key)  # type: ignore[union-attr]
        elif event.event_type == _TYPES.ASSET_CHECK_EVALUATION:
            self.evaluations.setdefault(step, []).append(data)

    def events(self) -> list[RunEvent]:
        """Return one event per start and per end of the run and, if it was completed, of each of its steps.

        All have the day on which the run ended as their time, and steps stand in the order of their names, because how
        long a step took depends on the records. So does which step failed: a run that was not completed is told without
        its steps.
        """
        state = [_ENDS[event.event_type] for _, event in self.logged if event.event_type in _ENDS][-1]
        steps = list[str]()
        if state is RunState.COMPLETE:
            started = {event.step_key or "" for _, event in self.logged if event.event_type == _TYPES.STEP_START}
            steps = sorted(started.intersection((*self.written, *self.checked)))
        told = [self._event(each, step) for step in steps for each in (RunState.START, RunState.COMPLETE)]
        return [self._event(RunState.START), *told, self._event(state)]

    def _event(self, state: RunState, step: str = "") -> RunEvent:
        written = self.written.get(step, []) if step else []
        ended = datetime.datetime.fromtimestamp(self.logged[-1][0], datetime.UTC).date()
        return RunEvent(
            eventTime=f"{ended}T00:00:00+00:00",
            eventType=state,
            run=self._run(step),
            job=self._job(step),
            inputs=self._inputs(step, written, done=state is RunState.COMPLETE) if step else [],
            outputs=[self._output(key) for key in written if key in self.made] if state is RunState.COMPLETE else [],
            producer=f"urn:od-release:{version('od-release')}",
        )

    def _run(self, step: str) -> Run:
        if not step:
            return Run(self.run.run_id, self._run_facets())
        job, above = self._job(), Run(self.run.run_id)
        parent = parent_run.ParentRunFacet(
            parent_run.Run(above.runId),
            parent_run.Job(job.namespace, job.name),
            parent_run.Root(parent_run.RootRun(above.runId), parent_run.RootJob(job.namespace, job.name)),
        )
        return Run(str(uuid5(NAMESPACE_URL, f"{self.run.run_id}/{step}")), {**self._run_facets(), "parent": parent})

    def _run_facets(self) -> dict[str, Any]:
        told = [tag for tag in (RELEASE_TAG, PERIOD_TAG, REVISION_TAG) if tag in self.run.tags]
        fields = [tags_run.TagsRunFacetFields(tag, self.run.tags[tag], "DAGSTER") for tag in told]
        return {"tags": tags_run.TagsRunFacet(fields)}

    def _job(self, step: str = "") -> Job:
        name = f"{self.run.tags[RELEASE_TAG]}_release"
        facet = job_type_job.JobTypeJobFacet("BATCH", "DAGSTER", jobType="STEP" if step else "JOB")
        return Job(self.namespace, f"{name}.{step}" if step else name, {"jobType": facet})

    def _inputs(self, step: str, written: Iterable[dg.AssetKey], *, done: bool) -> list[InputDataset]:
        """Return the datasets that a step reads: upstream assets, declared files, and the assets that it checks."""
        read = set(self.checked.get(step, []))
        for key in written:
            sources = chain.from_iterable(self._sources(key).values())
            read |= {*self._parents(key), *(source.asset_key for source in sources)}
        keys = sorted(read.difference(written))
        results = [
            each for each in self.evaluations.get(step, []) if done and not self._is_confidential(each.asset_key)
        ]
        assets = [
            InputDataset(
                self.namespace, key.to_user_string(), facets=self._facets(key), inputFacets=_assertions(key, results)
            )
            for key in keys
        ]
        declared = [source for key in written for source in self._metadata(key).get(SOURCES, [])]
        return [*assets, *(self._file(source) for source in declared)]

    def _file(self, source: str) -> InputDataset:
        """Return a declared file or address of records or zones; of the run's period if there is a file of each."""
        place = source.replace("{period}", self.run.tags.get(PERIOD_TAG, "{period}"))
        parts = urlsplit(place)
        if parts.scheme:
            return InputDataset(f"{parts.scheme}://{parts.netloc}", parts.path.lstrip("/"))
        return InputDataset("file" if place.startswith("/") else self.namespace, place)

    def _output(self, key: dg.AssetKey) -> OutputDataset:
        made = self.made[key]
        facets, digest = self._facets(key), (made.tags or {}).get("dagster/data_version")
        if digest is not None:
            facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(digest)
        if lineage := self._lineage(key):
            facets["columnLineage"] = column_lineage_dataset.ColumnLineageDatasetFacet(lineage)
        rows = made.metadata.get("dagster/row_count")
        counted: dict[str, Any] = (
            {}
            if rows is None
            else {"outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rows.value)}
        )
        return OutputDataset(self.namespace, key.to_user_string(), facets=facets, outputFacets=counted)

    def _facets(self, key: dg.AssetKey) -> dict[str, Any]:
        """Return what the definition says; nothing if the declaration has changed since, and has no such asset."""
        if not self.graph.has(key):
            return {}
        node = self.graph.get(key)
        fields = [
            schema_dataset.SchemaDatasetFacetFields(column.name, column.type, column.description)
            for column in self._metadata(key)["dagster/column_schema"].columns
        ]
        tags = [
            tags_dataset.TagsDatasetFacetFields(tag, value, "DAGSTER")
            for tag, value in sorted(node.tags.items())
            if tag.startswith("od/")
        ]
        owners = [ownership_dataset.Owner(owner, "OWNER") for owner in node.owners]
        return {
            "schema": schema_dataset.SchemaDatasetFacet(fields),
            "documentation": documentation_dataset.DocumentationDatasetFacet(node.description or ""),
            "ownership": ownership_dataset.OwnershipDatasetFacet(owners),
            "tags": tags_dataset.TagsDatasetFacet(tags),
        }

    def _lineage(self, key: dg.AssetKey) -> dict[str, column_lineage_dataset.Fields]:
        return {
            column: column_lineage_dataset.Fields([self._field(key, source) for source in sources])
            for column, sources in self._sources(key).items()
            if sources
        }

    def _sources(self, key: dg.AssetKey) -> Mapping[str, Sequence[dg.TableColumnDep]]:
        """Return the upstream columns of each column of an asset."""
        lineage = self._metadata(key).get("dagster/column_lineage")
        return {} if lineage is None else lineage.deps_by_column

    def _field(self, key: dg.AssetKey, source: dg.TableColumnDep) -> column_lineage_dataset.InputField:
        """Return an upstream column; its values are masked if they are confidential and those of the asset are not."""
        masked = self._is_confidential(source.asset_key) and not self._is_confidential(key)
        name = source.asset_key.to_user_string()
        return column_lineage_dataset.InputField(self.namespace, name, source.column_name, [_NOISE] if masked else [])

    def _parents(self, key: dg.AssetKey) -> set[dg.AssetKey]:
        return set(self.graph.get(key).parent_keys) if self.graph.has(key) else set()

    def _is_confidential(self, key: dg.AssetKey) -> bool:
        """Return whether an asset is confidential, or is not declared any more."""
        return not self.graph.has(key) or CONFIDENTIAL_TAG in self.graph.get(key).tags

    def _metadata(self, key: dg.AssetKey) -> Mapping[str, Any]:
        metadata: Mapping[str, Any] = self.graph.get(key).metadata if self.graph.has(key) else {}
        return metadata


def _assertions(key: dg.AssetKey, results: Iterable[Any]) -> dict[str, Any]:
    """Return the results of the checks of an asset, without their metadata."""
    own = [result for result in results if result.asset_key == key]
    told = [data_quality_assertions_dataset.Assertion(result.check_name, result.passed) for result in own]
    return (
        {"dataQualityAssertions": data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet(told)}
        if own
        else {}
    )
