"""Publish each level with PipelineDP: a count of each public pair of areas, with equal shares of the budget.

``NaiveBudgetAccountant`` is the only accountant that PipelineDP's engine accepts, so noise is from (epsilon, delta) of
each level: Laplace, PipelineDP's default, which is the less noise here.
"""

import itertools

import pandas as pd
import pipeline_dp
from given import given, is_check


def main():
    """Publish the tables of all levels."""
    folder, output, settings = given()
    levels = settings["levels"]
    # user code begins
    data = pd.read_parquet(folder / "trips.parquet")
    accountant = pipeline_dp.NaiveBudgetAccountant(settings["epsilon"], settings["delta"], num_aggregations=len(levels))
    engine = pipeline_dp.DPEngine(accountant, pipeline_dp.LocalBackend())
    results = {}
    for level in levels:
        areas = pd.read_csv(folder / f"areas_{level}.csv", dtype=str, keep_default_na=False)["area"]
        rows = list(zip(data.index, data[f"origin_{level}"], data[f"destination_{level}"], strict=True))
        params = pipeline_dp.AggregateParams(
            metrics=[pipeline_dp.Metrics.COUNT],
            noise_kind=pipeline_dp.NoiseKind.LAPLACE,
            max_partitions_contributed=1,
            max_contributions_per_partition=1,
        )
        extractors = pipeline_dp.DataExtractors(
            privacy_id_extractor=lambda row: row[0],
            partition_extractor=lambda row: row[1:],
            value_extractor=lambda row: 1,  # noqa: ARG005
        )
        pairs = list(itertools.product(areas, areas))
        results[level] = engine.aggregate(rows, params, extractors, public_partitions=pairs)
    accountant.compute_budgets()
    for level, result in results.items():
        listed = [(*pair, metrics.count) for pair, metrics in result]
        table = pd.DataFrame(listed, columns=["origin", "destination", "trips"])
        table.to_parquet(output / f"{level}.parquet")
    # user code ends


def check():
    """Count visits by day, as PipelineDP's example of restaurant visits does; at a large epsilon, counts are exact."""
    visits = [(visitor, day) for visitor in range(50) for day in (1, 2)]
    accountant = pipeline_dp.NaiveBudgetAccountant(total_epsilon=1e6, total_delta=1e-6)
    params = pipeline_dp.AggregateParams(
        metrics=[pipeline_dp.Metrics.COUNT], max_partitions_contributed=2, max_contributions_per_partition=1
    )
    extractors = pipeline_dp.DataExtractors(lambda row: row[0], lambda row: row[1], lambda row: 0)  # noqa: ARG005
    engine = pipeline_dp.DPEngine(accountant, pipeline_dp.LocalBackend())
    result = engine.aggregate(visits, params, extractors, public_partitions=[1, 2, 3])
    accountant.compute_budgets()
    if {day: round(metrics.count) for day, metrics in result} != {1: 50, 2: 50, 3: 0}:
        raise SystemExit("the counts with almost no noise are wrong")


if __name__ == "__main__":
    check() if is_check() else main()
