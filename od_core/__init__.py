"""Release origin-destination statistics with differential privacy.

Objects, arrays and tables go in and out. A release of flows takes five steps:

1. Describe the public facts. :class:`Geography` holds the areas, level by level, and :class:`FlowTree` the pairs of
   areas of an origin and a destination geography. :class:`PrivacyUnit` says what is protected, and :class:`Budget` what
   may be spent.
2. Plan. :func:`plan_release` returns a :class:`ReleasePlan` with the noise, the charge and the expected error of every
   measured level, before any data is read. A mechanism is a name or an object such as :class:`InfTDA`.
3. Release. :func:`release_flows` counts the confidential trips, draws the noise and returns a :class:`Release`.
   Without a ledger, the guarantee covers this one call. With ``ledger`` and ``release_id``, the release is charged to a
   data set, and a repeated call reads the stored measurements. ``noise`` is the name of a backend or a
   :class:`NoiseSource`.
4. Open, query and verify. :func:`open_release` opens a published release. :meth:`Release.flows_at` returns the flows at
   any pair of levels, with 90 % intervals on request, and :meth:`Release.trips_between` a sum with its interval. The
   command ``od-release verify`` recomputes published releases from their measurements.
5. Evaluate. :func:`evaluate` returns the errors of a release against the true flows. The result is NOT private.

Inputs and states that the library refuses raise :class:`OdError`. Group-size tables are in :mod:`od_core.group_sizes`,
trips with stops in :mod:`od_core.stops`; :func:`open_release` opens bundles of all three kinds.
"""

from od_core.errors import OdError
from od_core.evaluation.metrics import evaluate
from od_core.flows.mechanisms.inftda import InfTDA
from od_core.flows.plan import ReleasePlan, plan_release
from od_core.flows.release import Release, release_flows
from od_core.geography.flow_tree import FlowTree
from od_core.geography.geography import Geography
from od_core.noise.sources import NoiseSource
from od_core.privacy.budget import Budget
from od_core.privacy.unit import PrivacyUnit
from od_core.published.opening import open_release

__all__ = [
    "Budget",
    "FlowTree",
    "Geography",
    "InfTDA",
    "NoiseSource",
    "OdError",
    "PrivacyUnit",
    "Release",
    "ReleasePlan",
    "evaluate",
    "open_release",
    "plan_release",
    "release_flows",
]
