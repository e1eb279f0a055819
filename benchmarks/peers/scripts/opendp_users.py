"""Publish the trips of users at each level with OpenDP, with its own caps and equal parts of the budget.

``truncate_per_group`` bounds the trips of a user in each table. With ``pairs``, a user also has at most one trip for
each pair of zones in the table of zones, which needs less Gaussian noise. With rho, which exact accounting of (epsilon,
delta) permits, the noise is discrete Gaussian; with epsilon alone, the stronger promise, it is discrete Laplace.

``truncate_num_groups``, which would cap the pairs of a user, samples by a column that OpenDP 0.16.0 names twice
("multiple fields with name"), so a sample of 10 trips is taken from the single ones instead, with the same noise.
"""

import opendp.prelude as dp
import polars as pl
from given import given, is_check


def main():
    """Publish the tables of all levels."""
    dp.enable_features("contrib")
    folder, output, settings = given()
    levels, most, pairs = settings["levels"], settings["max_trips"], settings["noise"] == "pairs"
    loss = {"epsilon": settings["epsilon"]} if settings["noise"] == "laplace" else {"rho": settings["rho"]}
    # user code begins
    context = dp.Context.compositor(
        data=pl.scan_parquet(folder / "trips.parquet"),
        privacy_unit=dp.unit_of(contributions=1, identifier="user"),
        privacy_loss=dp.loss_of(**loss),
        split_evenly_over=len(levels),
    )
    for level in levels:
        areas = pl.read_csv(folder / f"areas_{level}.csv", schema_overrides={"area": pl.String})["area"]
        keys = pl.DataFrame({f"origin_{level}": areas}).join(pl.DataFrame({f"destination_{level}": areas}), how="cross")
        query = context.query()
        if pairs and level == levels[-1]:
            query = query.truncate_per_group(1, by=keys.columns)
        query = query.truncate_per_group(most).group_by(keys.columns).agg(dp.len(signed=True)).with_keys(keys)
        accuracy = query.summarize(alpha=0.1)["accuracy"][0]
        table = query.release().collect().rename(dict(zip(keys.columns, ("origin", "destination"), strict=True)))
        table = table.rename({"len": "trips"}).with_columns(pl.col("trips").cast(pl.Int64))
        table = table.with_columns(lower=pl.col("trips") - accuracy, upper=pl.col("trips") + accuracy)
        table.write_parquet(output / f"{level}.parquet")
    # user code ends


def check():
    """Run the first example of "Identifier Truncation and Bounds" in OpenDP's user guide, whose noise is published.

    The noise does not depend on the data of the page, which are not here. With almost no noise, counts must be exact.
    """
    dp.enable_features("contrib")
    rows = {"PIDENT": [1, 2] * 50, "HWUSUAL": [10, 30] * 50, "ILOSTAT": [1, 3] * 50}
    unit = dp.unit_of(contributions=1, identifier=pl.col("PIDENT"))
    context = dp.Context.compositor(
        data=pl.LazyFrame(rows),
        privacy_unit=unit,
        privacy_loss=dp.loss_of(epsilon=1.0, delta=1e-8),
        split_evenly_over=4,
        margins=[dp.polars.Margin(max_length=150_000 * 36)],
    )
    query = context.query().filter(pl.col.HWUSUAL != 99)
    query = query.truncate_per_group(10, keep=dp.polars.SortBy(pl.col("ILOSTAT")))
    query = query.select(pl.col.HWUSUAL.cast(int).fill_null(0).dp.mean((0, 80)))
    if [round(scale, 6) for scale in query.summarize()["scale"]] != [6400, 80]:
        raise SystemExit("the published noise is not found")
    exact = dp.Context.compositor(
        data=pl.LazyFrame(rows), privacy_unit=unit, privacy_loss=dp.loss_of(rho=1e6), split_evenly_over=2
    )
    keys = pl.DataFrame({"ILOSTAT": [1, 3]})
    for capped, counted in ((exact.query(), 10), (exact.query().truncate_per_group(1, by=["ILOSTAT"]), 1)):
        query = capped.truncate_per_group(10).group_by("ILOSTAT").agg(dp.len(signed=True)).with_keys(keys)
        if query.release().collect()["len"].to_list() != [counted, counted]:
            raise SystemExit("the counts with almost no noise are wrong")


if __name__ == "__main__":
    check() if is_check() else main()
