"""Origin-destination statistics with differential privacy: plain objects, arrays and tables in and out."""

from od_core.errors import OdError
from od_core.evaluation.metrics import evaluate
from od_core.flows.mechanisms.inftda import InfTDA
from od_core.flows.plan import ReleasePlan, plan_release
from od_core.flows.release import Release, release_flows
from od_core.geography.flow_tree import FlowTree
from od_core.geography.geography import Geography
from od_core.noise.sources import NoiseSource
from od_core.privacy.budget import Budget
from od_core.privacy.unit import PrivacyUnit
from od_core.published.opening import open_release

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
