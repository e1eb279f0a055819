"""Write the texts of every row of the matrix, so that a change of words is seen:

    python -m tests.matrix before       # in the checkout before a change
    python -m tests.matrix after        # in the checkout after it
    diff -r before after

For each row, a folder has the text of each page and the digests of all public files. ``--known`` writes the list of
known findings again instead: findings that are gone leave it; with ``--add``, new ones enter it.
"""

import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from tests.matrix.checks_sources import ROW
from tests.matrix.findings import known_findings, known_of, write_known
from tests.matrix.options import stored_rows
from tests.matrix.run import run_on_sources, signed
from tests.matrix.texts import write_row

WORKERS = 2


def main(arguments: list[str]) -> None:
    """Write the texts to a folder, or the list of known findings."""
    options = {one for one in arguments if one.startswith("--")}
    folders = [Path(one) for one in arguments if not one.startswith("--")]
    if options - {"--known", "--add"} or len(folders) > 1 or not (folders or "--known" in options):
        sys.exit(__doc__)
    target, rows = (folders[0] if folders else None), stored_rows(refused=False)
    with ProcessPoolExecutor(WORKERS, get_context("spawn")) as workers:
        found = dict(workers.map(write_row, rows, [target] * len(rows))) | {ROW: {*signed(run_on_sources())}}
    if "--known" in options:
        kept = found if "--add" in options else {name: some & known_of(name) for name, some in found.items()}
        write_known(kept, {one: why for one, (_, why) in known_findings().items()})
        sys.stdout.write(f"{sum(map(len, kept.values()))} known findings in {len(kept)} rows\n")


if __name__ == "__main__":
    main(sys.argv[1:])
