"""What no public function of Dagster gives is the same in each version that ``make compatibility`` tries."""

import dagster as dg

from od_assets.compatibility import find_recorded_checks


def test_the_checks_with_records_are_those_of_the_asset_in_the_instance():
    asset, other = dg.AssetKey(["lake", "trips"]), dg.AssetKey(["lake", "trips", "old"])
    with dg.DagsterInstance.ephemeral() as instance:
        assert find_recorded_checks(instance, asset) == set()
        for key, name in ((asset, "complete"), (asset, "fresh"), (asset, "fresh"), (other, "another")):
            evaluation = dg.AssetCheckEvaluation(asset_key=key, check_name=name, passed=True)
            instance.report_runless_asset_event(evaluation)
        assert find_recorded_checks(instance, asset) == {
            dg.AssetCheckKey(asset, name) for name in ("complete", "fresh")
        }
