"""Charge a release to a ledger before it is drawn, or draw it without a ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

from od_core.errors import OdError
from od_core.ledger.confidential import ConfidentialFolder
from od_core.ledger.identity import Counted
from od_core.ledger.ledger import Ledger, other_unit
from od_core.ledger.measurements import Measurements, MemoryMeasurements, begin_release
from od_core.ledger.release_key import ReleaseKey
from od_core.ledger.user_counters import UserCounters
from od_core.noise.sources import NoiseSource, backend_name, laplace_source, noise_named, refuse_too_wide
from od_core.periods import Period
from od_core.privacy.domain import charged_periods, unit_facts
from od_core.privacy.plan import Plan, PlannedRelease
from od_core.privacy.unit import PrivacyUnit

P = TypeVar("P", bound=Plan)
C = TypeVar("C", bound=Counted)
R = TypeVar("R", bound=PlannedRelease)


@dataclass(frozen=True)
class Charged:
    """A ledger that a release is charged to, and the key of the release.

    Attributes:
        ledger: the ledger, in which the privacy domain is declared under the name of the series.
        key: key of the release.
    """

    ledger: Ledger
    key: ReleaseKey

    @property
    def confidential(self) -> ConfidentialFolder:
        """Folder ``confidential`` beside the ledger."""
        return ConfidentialFolder(self.ledger.path.parent / "confidential")

    def counters(self, unit: PrivacyUnit) -> UserCounters | None:
        """Return the counters of users for unit ``user_year``, and None for other units.

        Raises OdError if the data set is not declared, or with another unit.
        """
        if unit.kind != "user_year":
            return None
        domain = self.key.release
        facts = self.ledger.declared(domain)
        if any(facts.get(name) != fact for name, fact in unit_facts(unit).items()):
            raise other_unit(domain)
        elementary, year = facts["elementary_period"], facts["year"]
        charged_periods(Period(self.key.period), elementary, unit.kind)
        return UserCounters(self.confidential, self.ledger, self.key, domain, unit, elementary, year)


@contextmanager
def charged_to(ledger: Ledger | None, release_id: str | None, noise: NoiseSource) -> Iterator[Charged | None]:
    """Yield the ledger and the ``release_id`` that a caller gave, or None without them.

    No other release is counted or drawn with the same ledger in this context. Without a ledger, the privacy guarantee
    covers one call only.

    Raises:
        OdError: only one of ``ledger`` and ``release_id`` is given. Or a ledger is given, and the ``release_id`` is not
            valid, the noise source is not a backend of this library, or another run does not end in time.
    """
    if (ledger is None) != (release_id is None):
        raise OdError(
            "OD-RELEASE-KEY",
            "a ledger needs a release_id, and a release_id needs a ledger",
            next_step="give both, or neither",
        )
    if ledger is None or release_id is None:
        yield None
        return
    if backend_name(noise) is None:
        raise OdError(
            "OD-NOISE-UNCERTIFIED",
            "this noise source is not a backend of this library, so a release with it cannot be charged or published",
            next_step="use one of the named noise backends",
        )
    charged = Charged(ledger, ReleaseKey.parse(release_id))
    with ledger.exclusive(), ledger.kept_open():
        yield charged


def draw_release(
    run: Callable[[P, C, NoiseSource, Measurements], R],
    charged: Charged | None,
    plan: P,
    counted: C,
    noise: NoiseSource,
    counters: UserCounters | None = None,
) -> R:
    """Call ``run``, which makes the release, and return its result. Call this in the context :func:`charged_to`.

    With a ledger, the release is charged first, and its measurements are stored. A repeated call reads them back.
    Without a ledger, the measurements exist only during this call.

    Args:
        run: function that measures the levels that are not measured yet, and estimates the release.
        charged: the ledger and the key of the release.
        plan, counted, noise: arguments of ``run``. The input must be the same in every call for the same release.
        counters: result of :meth:`Charged.counters`, with which the input was counted.

    Raises:
        OdError: :func:`od_core.ledger.measurements.begin_release` or ``run`` raised it. Or there is no ledger, but the
            plan measures the uncounted trips.
    """
    if charged is None:
        if plan.uncounted_step is not None:
            raise OdError(
                "OD-UNCOUNTED",
                "uncounted trips cannot be measured: without a ledger, there are no counters of users",
                next_step="give a ledger and a release_id, or leave out `uncounted`",
            )
        return run(plan, counted, noise, MemoryMeasurements())
    ledger, key, confidential = charged.ledger, charged.key, charged.confidential
    if counters is not None:
        counters.hold_to_input(counted)
    backend = backend_name(noise)
    measurements = begin_release(confidential, ledger, key, key.release, plan, counted, backend, counters=counters)
    made, uncounted = run(plan, counted, noise, measurements), measurements.uncounted(plan)
    return replace(made, spent=ledger.spent(key, plan), noise=ledger.noise(key), uncounted=uncounted)


def release_table(
    run: Callable[[P, C, NoiseSource, Measurements], R],
    plan: P,
    counted: C,
    noise: str | NoiseSource,
    ledger: Ledger | None,
    release_id: str | None,
) -> R:
    """Draw a release whose noise is discrete Laplace and whose input is counted, as :func:`draw_release` does.

    Raises:
        OdError: the noise source draws no Laplace noise or none as wide as the plan's, or a function of this module
            raised it.
    """
    source = noise_named(noise)
    laplace_source(source)
    refuse_too_wide(source, (step.largest_variance for step in plan.steps))
    with charged_to(ledger, release_id, source) as charged:
        return draw_release(run, charged, plan, counted, source)
