"""Releases in parts by a Spark Connect server of this machine: prints a digest of the leaves of each."""

import json
import sys
from pathlib import Path

from od_core.flows.bands import Bands
from od_core.flows.mechanisms import InfTDARefined
from od_core.geography.flow_tree import Nodes
from od_core.spark.session import SparkWorkers
from tests.od_core.flows.parts.passes import counted, digest_of, in_parts, plan_of, small_italy


def main() -> None:
    from pyspark.sql import SparkSession

    folder, asked = Path(sys.argv[1]), json.loads(sys.argv[2])
    session = SparkSession.builder.remote("local[2]").config("spark.task.maxFailures", "1").getOrCreate()
    workers, flows = SparkWorkers(session), small_italy()
    digests = []
    for number, (cuts, part_trips) in enumerate(asked):
        mechanism = InfTDARefined(keep_all_cap=0, leaves="empirical_bayes")
        plan = plan_of(flows, Bands(tuple(cuts), part_trips), mechanism=mechanism)
        parted = in_parts(folder / str(number), plan, counted(plan, flows), workers)
        digests.append(digest_of(Nodes.concatenate(plan.tree.depth, parted.pieces(plan.tree.depth))))
    print(json.dumps(digests))
    session.stop()


if __name__ == "__main__":
    main()
