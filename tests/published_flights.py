"""Two months of flights as they are published, with bundles and database, for tests of what readers do with them."""

from pathlib import Path

import pandas as pd

from od_core import Budget, Geography, PrivacyUnit, Release, release_flows
from od_core.flows.publishing.kind import FLOWS
from od_core.ledger.release_key import ReleaseKey
from od_core.publication.certify import build_certificate
from tests.od_core.ledger import ledger_rows
from tests.od_core.publication.examples import CHECKS, RECORD, staged_bundle

KEYS = [ReleaseKey("us_flights", period) for period in ("2001-05", "2001-06")]
FEW = ledger_rows.FLOWS.loc[ledger_rows.FLOWS.index.repeat(ledger_rows.FLOWS["trips"]), ["origin", "destination"]]
"""Of both months, one row a trip, between the zones of ``ONE_LEVEL``: its bundles have a fifth of the files."""


def publish_flights(var: Path, months: dict[str, pd.DataFrame], geography: Geography) -> list[Release]:
    """Release two months, and write their bundles and the database below a folder."""
    made = []
    for key in KEYS:
        given = {"unit": PrivacyUnit("trip"), "budget": Budget(epsilon=1, delta="1e-8"), "fault_threshold": 0}
        release = release_flows(months[key.period], geography, **given, noise="table", one_row_a_trip=True)
        facts = build_certificate(FLOWS, release, key, "us_flights", CHECKS, record=RECORD)
        with staged_bundle(release, facts, var / "releases" / key.folder):
            FLOWS.store(var / "release.duckdb", release, key, facts)
        made.append(release)
    return made
