"""Declare a data set: its privacy unit, and the cap of what all its releases may spend."""

from dataclasses import replace
from functools import partial

from pydantic import ValidationError

from od_assets.project import Project
from od_assets.series.section import Number, Section, first_fault, line_of, yaml_documents
from od_core import PrivacyDomain, PrivacyUnit
from od_core.errors import OdError, nearest_known
from od_core.periods import check_time_zone
from od_core.privacy.budget import Cap, exact_fraction
from od_core.privacy.unit import UNIT_KINDS


class CapSection(Section):
    """The cap of a data set's spending on one elementary period, in rho, or in epsilon and delta."""

    rho: Number | None = None
    epsilon: Number | None = None
    delta: Number = 0
    reason: str

    def cap(self) -> Cap:
        """Convert this section to a cap of od_core. Raises OdError if a number is out of range."""
        return Cap(
            None if self.rho is None else exact_fraction("the cap", self.rho),
            None if self.epsilon is None else exact_fraction("the cap", self.epsilon),
            exact_fraction("the cap's delta", self.delta),
        )


class DomainSection(Section):
    """The privacy unit of a data set, and the cap of its spending."""

    name: str
    unit: str = "trip"
    column: str | None = None
    max_trips: int | None = None
    max_trips_year: int | None = None
    id_pattern: str | None = None
    year: str | None = None
    neighbours: str = "bounded"
    elementary_period: str = "month"
    time_zone: str | None = None
    cap: CapSection

    def domain(self, max_trips: int | None = None, max_weight: int | None = None) -> PrivacyDomain:
        """Convert this section to a privacy domain of od_core, with the bounds that a release declares.

        Args:
            max_trips: contribution bound, the largest number of trips of a user that are counted; None for units trip
                and user_year.
            max_weight: largest number of trips that a record with a weight counts as; None without weights.

        Raises:
            OdError: the unit, the cap or the periods are invalid, or max_trips is declared in the wrong file. The error
                names the file of the domain if what the file declares is at fault, whatever the release declares.
        """
        own = self.max_trips
        if self.unit in UNIT_KINDS and self.unit not in ("trip", "user_year"):
            if own is not None:
                message = f"declares max_trips, which each release of unit {self.unit!r} declares itself"
                step = "move max_trips to the declarations of the releases"
                raise OdError("OD-UNIT-MAX-TRIPS", f"{self._file} {message}", next_step=step, file=self._file)
            own = 1  # in place of that of the release
        try:
            unit = PrivacyUnit(
                self.unit,  # type: ignore[arg-type]  # checked by PrivacyUnit
                self.neighbours,  # type: ignore[arg-type]  # checked by PrivacyUnit
                self.column,
                own,
                max_trips_year=self.max_trips_year,
                id_pattern=self.id_pattern,
            )
            domain = PrivacyDomain(
                self.name,
                unit,
                self.cap.cap(),
                self.cap.reason,
                self.elementary_period,  # type: ignore[arg-type]  # checked by PrivacyDomain
                self.time_zone,
                self.year,
            )
        except OdError as error:
            raise error.in_file(self._file) from None
        if self.unit == "user_year" and max_trips is not None:
            raise OdError(
                "OD-UNIT-MAX-TRIPS",
                "max_trips is declared for one release, but under unit 'user_year' all releases count the same trips",
                next_step=f"move max_trips to {self._file}",
            )
        of_release = self.max_trips or max_trips
        return replace(domain, unit=replace(unit, max_trips=of_release, max_weight=max_weight))

    @property
    def _file(self) -> str:
        return f"{self.name}.yaml"


def read_domain(project: Project, name: str) -> DomainSection:
    """Return the domain of a data set, as the project declares it.

    Raises:
        OdError: the file is missing or cannot be read, or a field is invalid; the message names the file and the field.
    """
    path = project.domains / f"{name}.yaml"
    known = tuple(sorted(file.stem for file in project.domains.glob("*.yaml")))
    if name not in known:
        raise _fault(f"there is no privacy domain {name!r} ({nearest_known(name, known)})")
    try:
        [document] = yaml_documents(path, path.name) or [None]
        declared = DomainSection.model_validate(document)
    except ValidationError as error:
        fault = first_fault(error, DomainSection, partial(line_of, path))
        raise _fault(f"{path.name}: {fault}", path.name) from None
    except ValueError:
        raise _fault(f"{path.name} has more than one YAML document", path.name) from None
    if declared.name != name:
        raise _fault(f"{path.name}: name: {declared.name!r} differs from the name of its file", path.name)
    if declared.time_zone is not None:  # periods are checked in it before the domain is
        try:
            check_time_zone(declared.time_zone)
        except OdError as error:
            raise error.in_file(path.name) from None
    return declared


def _fault(message: str, file: str | None = None) -> OdError:
    step = "correct the files in the folder domains of the declarations"
    return OdError("OD-CONFIG", message, next_step=step, file=file)
