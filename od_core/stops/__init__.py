"""Release trips with stops: divide a public grid into boxes, and publish a noisy count of the trips in each box.

Range queries are answered from these counts.
"""

from od_core.stops.geometry import Grid, MapGrid
from od_core.stops.metrics import evaluate_stops
from od_core.stops.plan import plan_stops
from od_core.stops.release import StopsRelease, release_stops
from od_core.stops.trajectories import Trajectories

__all__ = ["Grid", "MapGrid", "StopsRelease", "Trajectories", "evaluate_stops", "plan_stops", "release_stops"]
