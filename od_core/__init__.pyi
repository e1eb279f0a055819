from .errors import (
    BudgetError,
    BudgetExceeded,
    DeclarationError,
    ExecutionError,
    GeographyError,
    InputError,
    LedgerError,
    NoiseError,
    OdError,
    ReleaseError,
    StorageError,
)
from .evaluation.metrics import evaluate, evaluate_area_totals
from .flows.bands import Bands
from .flows.derived_flows import AssistedFlows, FlowSum, assist_release, sum_releases
from .flows.known_totals import KnownTotals
from .flows.mechanisms import (
    TDAL2,
    InfTDA,
    InfTDARefined,
    InfTDAStability,
    Mechanism,
    StabilityHistogram,
    TDALinf,
    VanillaGauss,
)
from .flows.plan import ReleasePlan, plan_release
from .flows.projection.onto_parents import intopt
from .flows.release import Release, release_counts, release_flows
from .flows.step import Segments
from .geography.flow_tree import FlowTree
from .geography.geography import Geography
from .geography.possible_pairs import PossiblePairs
from .group_sizes.mechanisms import MixedQueries
from .group_sizes.plan import GroupSizePlan, TopCodeEstimate, plan_group_sizes
from .group_sizes.release import GroupSizeRelease, evaluate_group_sizes, release_group_sizes
from .ledger.balance import Balance
from .ledger.ledger import Ledger
from .ledger.release_key import ReleaseKey
from .noise.backends import LaplaceSource, NoiseSource
from .privacy.budget import Budget, Cap, Charge, Spent
from .privacy.domain import PrivacyDomain
from .privacy.neighbours import Acceptance, Neighbours
from .privacy.plan import Plan, PlannedRelease, Step, Uncounted
from .privacy.unit import PrivacyUnit
from .published.documents import data_contract, disclosure_documents
from .published.explanation import Explanation, explain_release
from .published.opening import open_release
from .published.publishing import Published
from .published.verification import Finding, verify_release
from .records.segments import Breakdown
from .stops.geometry import Grid, MapGrid
from .stops.plan import StopsPlan, plan_stops
from .stops.release import StopsRelease, evaluate_stops, evaluate_stops_entropy, release_stops
from .stops.trajectories import Trajectories

__all__ = [
    "TDAL2",
    "Acceptance",
    "AssistedFlows",
    "Balance",
    "Bands",
    "Breakdown",
    "Budget",
    "BudgetError",
    "BudgetExceeded",
    "Cap",
    "Charge",
    "DeclarationError",
    "ExecutionError",
    "Explanation",
    "Finding",
    "FlowSum",
    "FlowTree",
    "Geography",
    "GeographyError",
    "Grid",
    "GroupSizePlan",
    "GroupSizeRelease",
    "InfTDA",
    "InfTDARefined",
    "InfTDAStability",
    "InputError",
    "KnownTotals",
    "LaplaceSource",
    "Ledger",
    "LedgerError",
    "MapGrid",
    "Mechanism",
    "MixedQueries",
    "Neighbours",
    "NoiseError",
    "NoiseSource",
    "OdError",
    "Plan",
    "PlannedRelease",
    "PossiblePairs",
    "PrivacyDomain",
    "PrivacyUnit",
    "Published",
    "Release",
    "ReleaseError",
    "ReleaseKey",
    "ReleasePlan",
    "Segments",
    "Spent",
    "StabilityHistogram",
    "Step",
    "StopsPlan",
    "StopsRelease",
    "StorageError",
    "TDALinf",
    "TopCodeEstimate",
    "Trajectories",
    "Uncounted",
    "VanillaGauss",
    "assist_release",
    "data_contract",
    "disclosure_documents",
    "evaluate",
    "evaluate_area_totals",
    "evaluate_group_sizes",
    "evaluate_stops",
    "evaluate_stops_entropy",
    "explain_release",
    "intopt",
    "open_release",
    "plan_group_sizes",
    "plan_release",
    "plan_stops",
    "release_counts",
    "release_flows",
    "release_group_sizes",
    "release_stops",
    "sum_releases",
    "verify_release",
]
