"""Release trips with stops as disjoint boxes of a public grid, whose noisy counts answer range queries."""

from od_core.stops.geometry.grid import Grid
from od_core.stops.geometry.map_grid import MapGrid
from od_core.stops.metrics import evaluate_stops
from od_core.stops.plan import plan_stops
from od_core.stops.release import StopsRelease, release_stops
from od_core.stops.trajectories import Trajectories

__all__ = ["Grid", "MapGrid", "StopsRelease", "Trajectories", "evaluate_stops", "plan_stops", "release_stops"]
