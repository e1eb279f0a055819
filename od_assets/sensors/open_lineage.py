"""Make OpenLineage events from the event log of a run and the definitions of its assets, and send them.

The events contain names, descriptions, columns, data versions and results of checks of public assets. They contain no
text of an error and no other metadata. What would tell of the records is left out: how long steps took, which step of a
run failed, and results of checks of confidential assets.
"""

import datetime
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from itertools import chain
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import NAMESPACE_URL, uuid5

import dagster as dg
from openlineage.client import OpenLineageClient
from openlineage.client import facet_v2 as facets
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState

from od_assets.metadata import CONFIDENTIAL_TAG, SOURCES
from od_assets.resources.dead_runs import PERIOD_TAG, RELEASE_TAG, REVISION_TAG, TABLE_TAG, find_run_graph
from od_core.errors import OdError

if TYPE_CHECKING:
    from od_assets.compatibility import AssetGraph

_TYPES = dg.DagsterEventType
_READ_TYPES = {
    *(_TYPES.RUN_START, _TYPES.RUN_SUCCESS, _TYPES.RUN_FAILURE, _TYPES.RUN_CANCELED),
    _TYPES.STEP_START,
    *(_TYPES.ASSET_MATERIALIZATION_PLANNED, _TYPES.ASSET_MATERIALIZATION),
    _TYPES.ASSET_CHECK_EVALUATION,
}
_END_STATES = {
    _TYPES.RUN_SUCCESS: RunState.COMPLETE,
    _TYPES.RUN_FAILURE: RunState.FAIL,
    _TYPES.RUN_CANCELED: RunState.ABORT,
}
_NOISE = facets.column_lineage_dataset.Transformation(
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
            message = f"the OpenLineage client refuses its configuration ({type(error).__name__})"
            step = "correct the variables OPENLINEAGE_* or openlineage.yml; releases do not wait for it"
            raise OdError("OD-LINEAGE-CONFIG", message, next_step=step) from None
        self.sent = 0

    def make_events(self, instance: dg.DagsterInstance, run: dg.DagsterRun, graph: "AssetGraph") -> list[RunEvent]:
        """Return the events of a finished run of a release, in order. They are the same at every call."""
        return _Translation(run, instance.all_logs(run.run_id, of_type=_READ_TYPES), graph).make_events()

    def send(self, event: RunEvent) -> str:
        """Send an event, and return why it was not taken; empty if it was.

        The reason has no text of the error, which may contain a password.
        """
        try:
            self._client.emit(event)
        except Exception as error:  # noqa: BLE001  # a transport may raise anything
            status = getattr(getattr(error, "response", None), "status_code", "")
            return f"{type(error).__name__} {status}".strip()
        self.sent += 1
        return ""

    def close(self) -> None:
        """Send the events that the transport still holds, and close it."""
        self._client.close(timeout=5.0)


class _Translation:
    """One finished run, with its events in the log and the definitions of the assets.

    A run is an OpenLineage run of the job ``<series>_release``, or of the project's verification; each of its steps is
    a run of a job of its own, below it. Step runs have ids that follow from the run and the step, so events that are
    sent twice are the same.
    """

    def __init__(self, run: dg.DagsterRun, entries: Sequence[dg.EventLogEntry], graph: "AssetGraph") -> None:
        self.run, self.graph = run, graph
        self.namespace = os.environ.get("OPENLINEAGE_NAMESPACE") or "dagster"
        self.ended = datetime.datetime.fromtimestamp(entries[-1].timestamp, datetime.UTC).date()
        self.logged = [entry.dagster_event for entry in entries if entry.dagster_event is not None]
        self.written = self._group_by_step(_TYPES.ASSET_MATERIALIZATION_PLANNED, "asset_key")
        self.checked = self._group_by_step(_TYPES.ASSET_CHECK_EVALUATION, "asset_key")
        self.evaluations = self._group_by_step(_TYPES.ASSET_CHECK_EVALUATION)
        materializations = self._group_by_step(_TYPES.ASSET_MATERIALIZATION, "materialization")
        self.made = {event.asset_key: event for event in chain.from_iterable(materializations.values())}

    def _group_by_step(self, kind: dg.DagsterEventType, field: str | None = None) -> defaultdict[str, list[Any]]:
        """Return the data of the logged events of a kind, or one field of the data, by key of the step."""
        by_step = defaultdict[str, list[Any]](list)
        for event in self.logged:
            if event.event_type == kind:
                content: Any = event.event_specific_data
                by_step[event.step_key or ""].append(content if field is None else getattr(content, field))
        return by_step

    def make_events(self) -> list[RunEvent]:
        """Return one event for the start and one for the end of the run and, if it was completed, of each of its steps.

        The time of all events is the day on which the run ended, and steps are in the order of their names, because the
        duration of a step depends on the records. So does which step failed, so a failed run has no events of steps.
        """
        state = [_END_STATES[event.event_type] for event in self.logged if event.event_type in _END_STATES][-1]
        steps = list[str]()
        if state is RunState.COMPLETE:
            started = {event.step_key or "" for event in self.logged if event.event_type == _TYPES.STEP_START}
            steps = sorted(started.intersection((*self.written, *self.checked)))
        events = [self._make_event(RunState.START)]
        for step in steps:
            events += [self._make_event(RunState.START, step), self._make_event(RunState.COMPLETE, step)]
        return [*events, self._make_event(state)]

    def _make_event(self, state: RunState, step: str = "") -> RunEvent:
        """Return the event of a start or an end: of the whole run, or of a step with what it reads and writes."""
        keys = self.written[step] if step else []
        return RunEvent(
            eventTime=f"{self.ended}T00:00:00+00:00",
            eventType=state,
            run=self._make_run(step),
            job=self._make_job(step),
            inputs=self._make_inputs(step, keys, done=state is RunState.COMPLETE) if step else [],
            outputs=[self._make_output(key) for key in keys if key in self.made] if state is RunState.COMPLETE else [],
            producer=f"urn:od-release:{version('od-release')}",
        )

    def _make_run(self, step: str) -> Run:
        """Return the run with the tags of the release; for a step, its own run below that."""
        tags = [tag for tag in (RELEASE_TAG, PERIOD_TAG, REVISION_TAG) if tag in self.run.tags]
        fields = [facets.tags_run.TagsRunFacetFields(tag, self.run.tags[tag], "DAGSTER") for tag in tags]
        run_facets: dict[str, facets.RunFacet] = {"tags": facets.tags_run.TagsRunFacet(fields)}
        if not step:
            return Run(self.run.run_id, run_facets)
        job, parent = self._make_job(), facets.parent_run
        run_facets["parent"] = parent.ParentRunFacet(
            parent.Run(self.run.run_id),
            parent.Job(job.namespace, job.name),
            parent.Root(parent.RootRun(self.run.run_id), parent.RootJob(job.namespace, job.name)),
        )
        return Run(str(uuid5(NAMESPACE_URL, f"{self.run.run_id}/{step}")), run_facets)

    def _make_job(self, step: str = "") -> Job:
        """Return the job of the run, which releases a series or verifies the project, or the job of a step of it."""
        graph = find_run_graph(self.run.tags)
        name = graph if self.run.job_name == graph else f"{graph}_release"
        facet = facets.job_type_job.JobTypeJobFacet("BATCH", "DAGSTER", jobType="STEP" if step else "JOB")
        return Job(self.namespace, f"{name}.{step}" if step else name, {"jobType": facet})

    def _make_inputs(self, step: str, written: Iterable[dg.AssetKey], *, done: bool) -> list[InputDataset]:
        """Return the datasets that a step reads: upstream assets, declared files, and the assets that it checks.

        ``written`` has the keys of the assets that it writes. If ``done``, public assets have their check results.
        """
        inputs = set(self.checked[step])
        for key in written:
            sources = chain.from_iterable(self._read_column_sources(key).values())
            parents = self.graph.get(key).parent_keys if self.graph.has(key) else ()
            inputs |= {*parents, *(source.asset_key for source in sources)}
        assets = [
            InputDataset(
                self.namespace,
                key.to_user_string(),
                facets=self._make_facets(key),
                inputFacets=self._make_assertions(step, key) if done and not self._is_confidential(key) else {},
            )
            for key in sorted(inputs.difference(written))
        ]
        if TABLE_TAG in self.run.tags:  # the metadata of shared assets has the files of all series, not of this one
            return assets
        declared = [source for key in written for source in self._read_metadata(key).get(SOURCES, [])]
        return [*assets, *(self._make_file_dataset(source) for source in declared)]

    def _make_assertions(self, step: str, key: dg.AssetKey) -> dict[str, facets.InputDatasetFacet]:
        """Return the results of the checks of a public asset in a step, without their metadata."""
        results = [result for result in self.evaluations[step] if result.asset_key == key]
        assertions = facets.data_quality_assertions_dataset
        outcomes = [assertions.Assertion(result.check_name, result.passed) for result in results]
        return {"dataQualityAssertions": assertions.DataQualityAssertionsDatasetFacet(outcomes)} if results else {}

    def _make_file_dataset(self, source: str) -> InputDataset:
        """Return the dataset of a declared file or address, in which the period of the run replaces ``{period}``."""
        address = source.replace("{period}", self.run.tags.get(PERIOD_TAG, "{period}"))
        parts = urlsplit(address)
        if parts.scheme:
            return InputDataset(f"{parts.scheme}://{parts.netloc}", parts.path.lstrip("/"))
        return InputDataset("file" if address.startswith("/") else self.namespace, address)

    def _make_output(self, key: dg.AssetKey) -> OutputDataset:
        """Return the dataset of an asset that the run made: its version, the sources of its columns, and its rows."""
        materialization, lineage = self.made[key], facets.column_lineage_dataset
        asset_facets = self._make_facets(key)
        output_facets: dict[str, facets.OutputDatasetFacet] = {}
        digest = (materialization.tags or {}).get("dagster/data_version")
        if digest is not None:
            asset_facets["version"] = facets.dataset_version_dataset.DatasetVersionDatasetFacet(digest)
        columns = {}
        for column, sources in self._read_column_sources(key).items():
            if sources:
                columns[column] = lineage.Fields([self._make_input_field(key, source) for source in sources])
        if columns:
            asset_facets["columnLineage"] = lineage.ColumnLineageDatasetFacet(columns)
        rows = materialization.metadata.get("dagster/row_count")
        if rows is not None:
            statistics = facets.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rows.value)
            output_facets["outputStatistics"] = statistics
        return OutputDataset(self.namespace, key.to_user_string(), facets=asset_facets, outputFacets=output_facets)

    def _make_facets(self, key: dg.AssetKey) -> dict[str, facets.DatasetFacet]:
        """Return the facets of an asset's definition: its columns, description, owners and tags, by name of the facet.

        Return none if the project does not define the asset any more.
        """
        if not self.graph.has(key):
            return {}
        node, schema, tags = self.graph.get(key), facets.schema_dataset, facets.tags_dataset
        described = self._read_metadata(key).get("dagster/column_schema")  # an asset of the team may have none
        columns = () if described is None else described.columns
        fields = [schema.SchemaDatasetFacetFields(column.name, column.type, column.description) for column in columns]
        own_tags = [
            tags.TagsDatasetFacetFields(tag, value, "DAGSTER")
            for tag, value in sorted(node.tags.items())
            if tag.startswith("od/")
        ]
        owners = [facets.ownership_dataset.Owner(owner, "OWNER") for owner in node.owners]
        return {
            "schema": schema.SchemaDatasetFacet(fields),
            "documentation": facets.documentation_dataset.DocumentationDatasetFacet(node.description or ""),
            "ownership": facets.ownership_dataset.OwnershipDatasetFacet(owners),
            "tags": tags.TagsDatasetFacet(own_tags),
        }

    def _read_column_sources(self, key: dg.AssetKey) -> Mapping[str, Sequence[dg.TableColumnDep]]:
        """Return the upstream columns of each column of an asset; none if its definition has no lineage."""
        lineage = self._read_metadata(key).get("dagster/column_lineage")
        return {} if lineage is None else lineage.deps_by_column

    def _make_input_field(
        self, key: dg.AssetKey, source: dg.TableColumnDep
    ) -> facets.column_lineage_dataset.InputField:
        """Return the field of an upstream column of an asset.

        If only the upstream asset is confidential, the field states that noise masks its values.
        """
        masked = self._is_confidential(source.asset_key) and not self._is_confidential(key)
        upstream, noise = source.asset_key.to_user_string(), [_NOISE] if masked else []
        return facets.column_lineage_dataset.InputField(self.namespace, upstream, source.column_name, noise)

    def _is_confidential(self, key: dg.AssetKey) -> bool:
        """Return whether an asset is confidential, or is not declared any more."""
        return not self.graph.has(key) or CONFIDENTIAL_TAG in self.graph.get(key).tags

    def _read_metadata(self, key: dg.AssetKey) -> Mapping[str, Any]:
        """Return the metadata of an asset's definition; none if it is not declared any more."""
        return self.graph.get(key).metadata if self.graph.has(key) else {}
