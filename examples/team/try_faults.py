"""Show a run that meets a lock and is tried again, and a notice of what it published. Run it after try.sh.

It holds the lock of releases for three seconds, as a long run by hand does, and takes notices as a web hook does.
"""

import os
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

taken: list[str] = []


class Hook(BaseHTTPRequestHandler):
    """A service that takes notices as JSON."""

    def do_POST(self) -> None:
        """Keep a notice."""
        taken.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


server = HTTPServer(("127.0.0.1", 0), Hook)
threading.Thread(target=server.serve_forever, daemon=True).start()
os.environ |= {
    "NOTICES": f"json://127.0.0.1:{server.server_port}",
    "LOCK_SECONDS": "0.1",
}  # before the project is loaded

import dagster as dg  # noqa: E402

from od_assets.code_location import load_definitions  # noqa: E402
from od_assets.resources.warehouse import Warehouse  # noqa: E402


def hold_lock() -> None:
    """Hold the lock of releases."""
    with Warehouse().ledger_chain.lock_for_release(0):
        held.set()
        time.sleep(3)


repository, held = load_definitions().get_repository_def(), threading.Event()
sensor, job = repository.get_sensor_def("release_published"), load_definitions().resolve_job_def("cities_release")
with dg.DagsterInstance.get() as instance:
    notices = load_definitions().resources["od_notices"]
    cursor = None
    for number in range(2):
        with dg.build_sensor_context(
            instance=instance, cursor=cursor, repository_def=repository, resources={"od_notices": notices}
        ) as context:
            sensor.evaluate_tick(context)
            cursor = context.cursor
        if number == 0:
            threading.Thread(target=hold_lock).start()
            held.wait()
            tags = {"dagster/backfill": "example"}
            done = job.execute_in_process(instance=instance, partition_key="2026-02|oslo", tags=tags)
            said = [
                entry.user_message for entry in instance.all_logs(done.run_id) if "tried again" in entry.user_message
            ]
            print(*said, sep="\n")
print(*taken, sep="\n")
