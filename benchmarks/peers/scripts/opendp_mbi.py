"""Publish all levels from the synthetic records of OpenDP's marginal-based inference: ``Fixed``, ``MST`` or ``AIM``.

Given the zones, each measures the table of zones (``AIM`` and ``MST`` choose what to measure), and levels are counted
from the records, so that all tables agree. ``aim_levels`` is ``AIM`` with a column for each level of each end, whose
workload is the pairs of areas of each level, and with its default of half of rho for single columns, without which it
does not reach the zones. Intervals are of the tables that are measured; noise is discrete Gaussian.
"""

import opendp.prelude as dp
import polars as pl
from given import given, is_check


def main():
    """Publish the tables of all levels."""
    dp.enable_features("contrib")
    folder, output, settings = given()
    levels, rho = settings["levels"], settings["rho"]
    known = levels if settings["noise"] == "aim_levels" else levels[-1:]
    # user code begins
    pairs = {level: (f"origin_{level}", f"destination_{level}") for level in levels}
    queries = [dp.mbi.Count(pairs[level]) for level in known]
    algorithm = {
        "fixed": dp.mbi.Fixed(queries=queries),
        "mst": dp.mbi.MST(oneway="unkeyed"),
        "aim": dp.mbi.AIM(queries=queries, oneway="unkeyed"),
        "aim_levels": dp.mbi.AIM(queries=queries),
    }[settings["noise"]]
    keys = {
        column: pl.read_csv(folder / f"areas_{level}.csv", schema_overrides={"area": pl.String})["area"]
        for level in known
        for column in pairs[level]
    }
    context = dp.Context.compositor(
        data=pl.scan_parquet(folder / "trips.parquet"),
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(rho=rho),
    )
    table = context.query(rho=rho).select(*keys).contingency_table(keys=keys, algorithm=algorithm).release()
    records = table.synthesize().drop_nulls()
    zones = pl.read_csv(folder / "zones.csv", infer_schema=False)
    for side in ("origin", "destination"):
        records = records.join(zones.rename(lambda name, side=side: f"{side}_{name}"), on=f"{side}_{levels[-1]}")
    for level, pair in pairs.items():
        published = records.group_by(pair).len("trips").with_columns(pl.col("trips").cast(pl.Int64))
        if any(set(pair) <= set(clique) for clique in table.marginals.cliques()):
            accuracy = dp.gaussian_scale_to_accuracy(table.std(pair), alpha=0.1)
            estimated = table.project_melted(pair).drop_nulls()
            published = estimated.join(published, on=pair, how="left").with_columns(pl.col("trips").fill_null(0))
            published = published.with_columns(lower=pl.col("len") - accuracy, upper=pl.col("len") + accuracy)
        published = published.rename(dict(zip(pair, ("origin", "destination"), strict=True)))
        published.write_parquet(output / f"{level}.parquet")
    # user code ends


def check():
    """Run the examples of OpenDP's page on contingency tables, whose noise and threshold are published.

    These do not depend on the data of the page, which are not here. Some releases of the page have 321.99 and 1914, for
    a version that counted the total, too.
    """
    dp.enable_features("contrib")
    rows = {"SEX": [1, 2] * 50, "AGE": [30, 50] * 50, "HWUSUAL": [10.0, 30.0] * 50, "ILOSTAT": [1, 3] * 50}
    context = dp.Context.compositor(
        data=pl.LazyFrame(rows),
        privacy_unit=dp.unit_of(contributions=36),
        privacy_loss=dp.loss_of(rho=0.2, delta=1e-7),
    )
    queries = [dp.mbi.Count(("AGE", "HWUSUAL")), dp.mbi.Count(("HWUSUAL", "ILOSTAT"))]
    query = (
        context.query(rho=0.1, delta=1e-7)
        .select(*rows)
        .contingency_table(
            keys={"SEX": [1, 2]},
            cuts={"AGE": [20, 40, 60], "HWUSUAL": [1, 20, 40]},
            algorithm=dp.mbi.Fixed(queries=queries, oneway_split=1 / 8),
        )
    )
    sexes = context.query(rho=0.05, delta=0.0).select("SEX")
    algorithm = dp.mbi.Fixed(queries=[dp.mbi.Count(("SEX",))])
    table = sexes.contingency_table(keys={"SEX": [1, 2]}, algorithm=algorithm).release()
    found = query.oneway_scale, query.oneway_threshold, table.std(("SEX",))
    if [round(each, 6) for each in found] != [227.683992, 1364, 113.841996]:
        raise SystemExit(f"the published noise and threshold are not found: {found}")


if __name__ == "__main__":
    check() if is_check() else main()
