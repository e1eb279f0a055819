"""Release origin-destination statistics with differential privacy.

Arguments and results are Python objects, arrays and tables. Import every public name from this package itself; the
module that defines it is loaded when the name is first used. Here is what the library does, by purpose, in lines to
paste one after the other. Examples elsewhere go on with the names of this tour.

**Describe what is public.** :class:`Geography` contains the areas of each level, and :class:`FlowTree` the pairs of
areas of an origin and a destination geography; :class:`PossiblePairs` are those that can have trips, if some cannot.
:class:`KnownTotals` are numbers from or to zones that are public beforehand. :class:`PrivacyUnit` defines what is
protected, and :class:`Budget` how much may be spent.

>>> from fractions import Fraction
>>> from pathlib import Path
>>> from tempfile import mkdtemp
>>> import pandas as pd
>>> from od_core import Budget, Cap, Geography, Ledger, PrivacyDomain, PrivacyUnit
>>> from od_core import plan_release, release_flows, release_group_sizes, release_stops
>>> zones = pd.DataFrame({"region": ["north", "north", "south"], "zone": ["N1", "N2", "S1"]})
>>> geography = Geography.from_frame(zones, levels=["region", "zone"])
>>> unit, budget = PrivacyUnit("trip", neighbours="bounded"), Budget(epsilon=1, delta="1e-8")

**Plan.** :func:`plan_release` returns a :class:`ReleasePlan` with the noise, the charge and the expected error of every
measured level, before any data is read. A mechanism is given as a name or as an object such as :class:`InfTDA`. With
``segments``, every trip is also counted by public categories, such as modes of transport. With :class:`Uncounted`, the
number of trips that the bounds of a year leave out is measured, too. With ``found`` and :class:`InfTDAStability`, zones
that no public list has are found in the records.

>>> plan = plan_release(geography, unit=unit, budget=budget)
>>> plan.to_frame()["expected_error"].round(1).tolist()  # trips of each level
[10.5, 9.8, 9.0, 8.8, 8.8]

**Release.** :func:`release_flows` counts the confidential trips, draws the noise of the plan and returns a
:class:`Release`.
Without a ledger, the guarantee covers this one call. With a :class:`Ledger` and a ``release_id``, the release is
charged to a :class:`PrivacyDomain`, whose :class:`Cap` limits what is spent in each period, and a repeated call reads
the stored measurements. ``noise`` is the name of a backend or a :class:`NoiseSource`. :func:`release_counts` does the
same for a table of counts by one hierarchy, such as people by area.

>>> trips = {"origin": ["N1", "N2", "S1"], "destination": ["S1", "N1", "S1"], "trips": [900, 150, 2000]}
>>> flows = pd.DataFrame(trips)
>>> earlier = release_flows(flows, plan)
>>> ledger = Ledger(Path(mkdtemp()) / "ledger.sqlite")
>>> ledger.declare(PrivacyDomain("flights", unit, Cap(rho="1/2"), cap_reason="agreed by the board"))
>>> release = release_flows(flows, plan, ledger=ledger, release_id="flights/2001-06/r1")
>>> release.flows.equals(release_flows(flows, plan, ledger=ledger, release_id="flights/2001-06/r1").flows)
True

**Ask.** :meth:`Release.flows_at` returns the flows at any pair of levels, with 90 % intervals on request.
:meth:`Release.trips_between` returns a sum of trips with its interval. At no privacy cost, :func:`sum_releases` sums
releases of several periods, as a :class:`FlowSum`, and :func:`assist_release` estimates the flows of a release again
with the help of earlier ones, as :class:`AssistedFlows`.

>>> release.flows_at("region", "region", interval=True).columns.tolist()
['origin', 'destination', 'trips', 'lower', 'upper']
>>> release.trips_between("zone", ["N1", "N2"], "region", ["south"])
TripsBetween(trips=..., lower=..., upper=...)

**Open and verify what is published.** :func:`open_release` opens the folder of a published release of any kind, and
:func:`verify_release` recomputes it from its measurements. :func:`data_contract` describes it for a data catalogue,
:func:`disclosure_documents` for a registry, an evaluator, the people in the data and their organisation, and
:func:`explain_release` says what an attacker learns from it.

**Evaluate.** :func:`evaluate` returns the errors of a release against the true flows, and :func:`evaluate_area_totals`
those of its totals by zone. The results are NOT private.

**Group sizes**, the number of groups with j members in every area: :func:`plan_group_sizes`,
:func:`release_group_sizes`, :class:`GroupSizeRelease`, :class:`TopCodeEstimate`, :func:`evaluate_group_sizes`.

>>> groups = pd.DataFrame({"area": ["N1", "N1", "S1"], "size": [1, 2, 3], "groups": [5, 2, 1]})
>>> sizes = release_group_sizes(groups, geography, unit=PrivacyUnit("trip"), budget=Budget(epsilon=1), top_code=4)

**Trips with stops**, as boxes of a grid: :class:`Grid` or :class:`MapGrid`, :class:`Trajectories`, :func:`plan_stops`,
:func:`release_stops`, :class:`StopsRelease`, :func:`evaluate_stops`, :func:`evaluate_stops_entropy`.

>>> points = [[1, 1], [1, 2], [6, 7]]
>>> boxes = release_stops(points, (8, 8), unit=PrivacyUnit("trip"), budget=Budget(epsilon=1))

If the library refuses an input or a state, it raises an :class:`OdError`, such as :class:`BudgetExceeded` or
:class:`InputError`. :func:`intopt` computes only the projection step of InfTDA.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
