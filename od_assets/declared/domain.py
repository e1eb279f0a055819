"""Read the privacy domain of a data set from its YAML file, which all releases of the data set share."""

from pydantic import Field, ValidationError

from od_assets.declared.section import Number, Section, first_fault
from od_assets.declared.yaml_file import yaml_documents
from od_assets.project import Project
from od_core import PrivacyUnit
from od_core.errors import OdError, nearest_known
from od_core.privacy.budget import exact_fraction
from od_core.privacy.cap import Cap
from od_core.privacy.domain import PrivacyDomain


class CapSection(Section):
    """The cap of a data set's spending on one elementary period, in rho, or in epsilon and delta."""

    rho: Number | None = None
    epsilon: Number | None = None
    delta: Number = 0
    reason: str = Field(
        ..., description="Reason for the cap. A changed cap needs a new reason; the ledger records both."
    )

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
    unit: str = Field("trip", description="Privacy unit: trip, user or user_period.")
    column: str | None = Field(None, description="Column of user ids, for the user units.")
    neighbours: str = Field(
        "bounded", description="bounded (one unit is replaced) or unbounded (one unit is added or removed)."
    )
    elementary_period: str = Field("month", description="day, month or year: the shortest period of any release.")
    time_zone: str | None = Field(
        None,
        description=(
            "Time zone in which days begin, for schedules (default: UTC) and times with a zone (refused without it)."
        ),
    )
    cap: CapSection

    def domain(self, max_trips: int | None, max_weight: int | None = None) -> PrivacyDomain:
        """Convert this section to a privacy domain of od_core, with the bounds that a release declares.

        Args:
            max_trips: contribution bound, the largest number of trips of a user that are counted; None for unit trip.
            max_weight: largest number of trips that a record with a weight counts as; None without weights.

        Raises:
            OdError: the unit, the cap or the periods are invalid.
        """
        try:
            unit = PrivacyUnit(self.unit, self.neighbours, self.column, max_trips, max_weight)  # type: ignore[arg-type]  # checked by PrivacyUnit
            return PrivacyDomain(
                self.name,
                unit,
                self.cap.cap(),
                self.cap.reason,
                self.elementary_period,  # type: ignore[arg-type]  # checked by PrivacyDomain
                self.time_zone,
            )
        except OdError as error:
            of_release = error.code == "OD-UNIT-MAX-TRIPS" or "max_" in error.message
            raise error if of_release else error.in_file(f"{self.name}.yaml") from None


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
        raise _fault(f"{path.name}: {first_fault(error, DomainSection)}") from None
    except ValueError:
        raise _fault(f"{path.name} has more than one YAML document") from None
    if declared.name != name:
        raise _fault(f"{path.name}: name: {declared.name!r} differs from the name of its file")
    return declared


def _fault(message: str) -> OdError:
    return OdError("OD-CONFIG", message, next_step="correct the files in the folder domains of the declarations")
