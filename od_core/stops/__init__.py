"""Trips with stops, as points of a public grid: disjoint boxes with noisy counts that answer range queries (spec 5)."""

from od_core.stops.geometry.grid import Grid
from od_core.stops.geometry.map_grid import MapGrid
from od_core.stops.metrics import evaluate_stops
from od_core.stops.plan import plan_stops
from od_core.stops.release import StopsRelease, release_stops
from od_core.stops.trajectories import Trajectories

__all__ = ["Grid", "MapGrid", "StopsRelease", "Trajectories", "evaluate_stops", "plan_stops", "release_stops"]
