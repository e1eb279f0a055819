"""Where a release of one call is charged, and the release drawn under that charge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, TypeVar

from od_core.errors import OdError
from od_core.ledger.confidential import ConfidentialFolder
from od_core.ledger.ledger import Ledger
from od_core.ledger.lock import exclusive
from od_core.ledger.measurements import Measurements, MemoryMeasurements, begin_release
from od_core.ledger.protocols import Counted, Planned
from od_core.ledger.release_key import ReleaseKey
from od_core.noise.sources import NoiseSource, backend_name
from od_core.privacy.budget import Spent


class _Released(Protocol):
    """A release of any kind, a frozen value."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def spent(self) -> Spent: ...

    @property
    def noise(self) -> str | None: ...


R = TypeVar("R", bound=_Released)


@dataclass(frozen=True)
class Charged:
    """The ledger that a release is charged to, and the release's key in it.

    Attributes:
        ledger: its privacy domain, named as the series, is declared there.
        key: of the release.
    """

    ledger: Ledger
    key: ReleaseKey

    @property
    def confidential(self) -> ConfidentialFolder:
        """The folder ``confidential`` beside the ledger."""
        return ConfidentialFolder(self.ledger.path.parent / "confidential")


def charged_to(ledger: Ledger | None, release_id: str | None, noise: NoiseSource) -> Charged | None:
    """Where a release is charged; None without a ledger, where its guarantee is of one call.

    Raises:
        OdError: a ledger without a release_id, or the reverse; a release_id that is none; a noise source that is no
            backend of this library.
    """
    if (ledger is None) != (release_id is None):
        raise OdError("OD-RELEASE-KEY", "a ledger and a release_id go together", next_step="give both, or neither")
    if ledger is None or release_id is None:
        return None
    if backend_name(noise) is None:
        raise OdError(
            "OD-NOISE-UNCERTIFIED",
            "this noise source is no backend of this library, so nothing can be charged or published with it",
            next_step="use a named noise backend",
        )
    return Charged(ledger, ReleaseKey.parse(release_id))


def draw_release(
    run: Callable[[Measurements], R], charged: Charged | None, plan: Planned, counted: Counted, noise: NoiseSource
) -> R:
    """The release that ``run`` makes of its measurements: of this call alone, or charged and kept with a ledger.

    Args:
        run: draws what is not measured yet, and estimates.
        charged: as :func:`charged_to`.
        plan, counted: what is charged, and the input that the release is held to.
        noise: what ``run`` draws by.

    Raises:
        OdError: as :func:`od_core.ledger.measurements.begin_release`, and as ``run`` says.
    """
    if charged is None:
        return run(MemoryMeasurements())
    ledger, key = charged.ledger, charged.key
    with exclusive(ledger.path.parent), ledger.kept_open():
        measurements = begin_release(charged.confidential, ledger, key, key.release, plan, counted, backend_name(noise))
        return replace(run(measurements), spent=ledger.spent(key, plan), noise=ledger.noise(key))
