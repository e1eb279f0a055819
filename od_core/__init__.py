"""Origin-destination statistics with differential privacy: plain objects, arrays and tables in and out."""

from od_core.errors import OdError
from od_core.evaluation.metrics import evaluate
from od_core.flow_tree import FlowTree
from od_core.geography import Geography
from od_core.mechanisms.inftda import InfTDA
from od_core.plan import ReleasePlan, plan_release
from od_core.privacy.budget import Budget
from od_core.privacy.noise import NoiseSource
from od_core.privacy.unit import PrivacyUnit
from od_core.publication.opening import open_release
from od_core.release import Release, release_flows

__all__ = [
    "Budget",
    "FlowTree",
    "Geography",
    "InfTDA",
    "NoiseSource",
    "OdError",
    "PrivacyUnit",
    "Release",
    "ReleasePlan",
    "evaluate",
    "open_release",
    "plan_release",
    "release_flows",
]
