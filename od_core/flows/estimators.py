"""List the estimators of flows that can be declared, and the options of a mechanism that declare each.

Nothing is estimated here: the modules of :mod:`od_core.flows.estimation` do that, and for the estimator ``auto``,
:mod:`od_core.flows.estimation.rule_choice` chooses the rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Estimator:
    """An estimator of flows.

    Attributes:
        key: Its name in certificates or, if held-out noise chooses the rule, in declarations.
        estimate, leaves: Options of the mechanism that declare it.
        leaf_bytes: Bytes of memory that it needs for each measured leaf, since it learns from whole levels; 0 if it
            reads levels piece by piece.
    """

    key: str
    estimate: str = "least_squares"
    leaves: str = "chebyshev"
    leaf_bytes: int = 0

    @property
    def texts(self) -> dict[str, str]:
        """Texts about the estimator for publications, as ``estimation.yaml`` defines them.

        They are its ``name``, a description (``words``) and, if held-out noise may choose it, a sentence (``chosen``).
        """
        from od_core.publication.templates import render_data  # most uses need no texts

        return dict(render_data("estimation.yaml")[self.key])


_EACH = (
    Estimator("least_squares"),
    Estimator("empirical_bayes", leaves="empirical_bayes"),
    Estimator("normal", "shrunk", leaf_bytes=150),  # measured: 143, for 65 million leaves
    Estimator("mixture", "shrunk", "empirical_bayes", leaf_bytes=150),
    # Measured: 197 for 1.4 million leaves, 176 for 3.7 million; with both sides refined at once, 230 for 2 million.
    Estimator("auto", "auto", leaf_bytes=230),
)

ESTIMATORS = {estimator.key: estimator for estimator in _EACH}
"""All estimators by key."""

ESTIMATES = tuple(dict.fromkeys(estimator.estimate for estimator in _EACH))
"""Values of the option ``estimate``."""

LEAVES = tuple(dict.fromkeys(estimator.leaves for estimator in _EACH))
"""Values of the option ``leaves``."""


def find_estimator(options: Mapping[str, str]) -> Estimator:
    """Return the estimator that the options of a mechanism declare, which must be a supported pair.

    >>> find_estimator({"estimate": "shrunk", "leaves": "empirical_bayes", "u": "3/2"}).key
    'mixture'
    """
    declared = options.get("estimate", "least_squares"), options.get("leaves", "chebyshev")
    return next(estimator for estimator in _EACH if (estimator.estimate, estimator.leaves) == declared)
