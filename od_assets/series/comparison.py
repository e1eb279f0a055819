"""Declare a comparison of mechanisms on synthetic and public data."""

from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import Self

from pydantic import Field

from od_assets.project import Project
from od_assets.series.section import Named, Number, Section
from od_core import Budget, OdError
from od_core.evaluation.comparison import CONTENDERS, DELTA, EPSILONS, NUMBER_OF_RUNS, Run, list_runs
from od_core.evaluation.known_flows import KnownFlows, list_synthetic_data_sets, read_known_flows, refuse_unmarked
from od_core.flows.mechanisms import MECHANISMS
from od_core.meaning.features import refuse_unsupported
from od_core.records.formats import RecordColumns
from od_core.registry import find_by_name


class TableColumns(Section):
    """Columns of a file of flows that are not confidential."""

    origin: str = "origin"
    destination: str = "destination"
    trips: str | None = None


class KnownTableSection(Section):
    """A table whose true flows are not confidential."""

    name: str
    marked: str | None = None
    flows: str
    columns: TableColumns = Field(default_factory=TableColumns)
    one_row_a_trip: bool = False
    zones: str
    levels: list[str]

    def make_reader(self, project: Project) -> Callable[[], KnownFlows]:
        """Return the function that reads the table. Raises OdError if it is not marked as public or synthetic."""
        refuse_unmarked(self.name, self.marked)
        return partial(
            read_known_flows,
            self.name,
            self.marked,  # type: ignore[arg-type]  # just checked
            project.root / self.flows,
            project.root / self.zones,
            tuple(self.levels),
            RecordColumns(**self.columns.model_dump()),
            one_row_a_trip=self.one_row_a_trip,
        )


class Comparison(Named):
    """A comparison of mechanisms, as a project declares it."""

    owners: list[str]
    synthetic: list[str] = Field([])
    tables: list[KnownTableSection] = Field([])
    mechanisms: list[str] | None = None
    epsilons: list[Number] = Field(list[Number](EPSILONS))
    runs: int = NUMBER_OF_RUNS

    def require_valid(self) -> Self:
        """Return the comparison, whose values are valid. Raises OdError if one is wrong."""
        # Each of these raises OdError for a wrong value.
        for name in {*(self.mechanisms or ())} - {rival.label for rival in CONTENDERS}:
            refuse_unsupported("flows", MECHANISMS.make(name).features)
        for epsilon in self.epsilons:
            Budget(epsilon, DELTA)
        if self.runs < 1:
            message = "a comparison needs at least one run"
            raise OdError("OD-EVALUATION-RUNS", message, next_step="set runs to at least 1")
        _ = self.data_sets
        return self

    @cached_property
    def data_sets(self) -> dict[str, Callable[[], KnownFlows]]:
        """Functions that make or read the data sets, by name.

        Raises OdError if a synthetic data set is unknown, or a table is not marked as public or synthetic.
        """
        known = list_synthetic_data_sets()
        step = "correct the declaration of the comparison"
        synthetic = {
            name: find_by_name("synthetic data set", name, known, code="OD-EVALUATION-UNKNOWN", next_step=step)
            for name in self.synthetic
        }
        return synthetic | {table.name: table.make_reader(self.project) for table in self.tables}

    @property
    def folder(self) -> Path:
        """Folder of the runs, tables and figures."""
        return self.project.var / "evaluation" / self.name

    def list_runs(self, data_set: str) -> list[Run]:
        """Return the planned runs on one data set: of each wanted mechanism, with each epsilon."""
        wanted = {*(MECHANISMS if self.mechanisms is None else self.mechanisms)}  # labels, or names of mechanisms
        contenders = [rival for rival in CONTENDERS if wanted & {rival.label, MECHANISMS.make(rival.mechanism).name}]
        return list_runs([data_set], contenders, epsilons=tuple(map(str, self.epsilons)), number=self.runs)
