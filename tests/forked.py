"""Where tests start processes: forked from one that has imported what they need, and has done nothing else.

The import takes most of the time of such a process. The one that they are forked from has no thread, no file, no ledger
and no noise, so they share no more than processes that are started afresh.
"""

import multiprocessing

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(
    ["numba", "od_core.evaluation.comparison", "tests.faults.full_disk", "tests.faults.publisher"]
)
