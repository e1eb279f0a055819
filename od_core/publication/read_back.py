"""Read the certificate and the tables of a bundle of any kind, and check the plan and the spending that they state."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd

from od_core.errors import OdError
from od_core.ledger.release_key import ReleaseKey
from od_core.privacy.budget import Spent
from od_core.privacy.plan import Plan
from od_core.publication.bundle_integrity import CERTIFICATE


def certificate_and_tables(bundle: str | Path, names: Iterable[str]) -> tuple[dict[str, Any], list[pd.DataFrame]]:
    """Return the certificate and the named tables of a bundle. Raises OdError if a file is missing or unreadable."""
    folder = Path(bundle)
    try:
        stated: dict[str, Any] = json.loads((folder / CERTIFICATE).read_text(encoding="utf-8"))
        return stated, [pd.read_parquet(folder / f"{name}.parquet") for name in names]
    except (OSError, ValueError):
        raise absent(f"{folder.name} is not a complete bundle of this kind of release") from None


def certificate_of(bundle: Path) -> dict[str, Any]:
    """Return the certificate in a bundle's folder. Raises OdError if it is missing or cannot be read."""
    try:
        certificate: dict[str, Any] = json.loads((bundle / CERTIFICATE).read_text(encoding="utf-8"))
        ReleaseKey.parse(certificate["release"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise absent(f"{bundle.name} is not a complete bundle: it lacks a {CERTIFICATE} that can be read") from None
    return certificate


@contextmanager
def refuse_incomplete(name: str) -> Iterator[None]:
    """Raise OdError in place of the KeyError of a fact or a column that the bundle or database ``name`` lacks."""
    try:
        yield
    except KeyError as error:
        raise absent(
            f"{name} is not complete, or newer software wrote it: it has no {', '.join(map(str, error.args))}"
        ) from None


def refuse_other_plan(plan: Plan, facts: dict[str, Any]) -> None:
    """Raise OdError if a plan that was made from a certificate differs from the certificate's plan in ``facts``."""
    if json.loads(json.dumps(plan.facts())) != facts:
        raise changed("plan")


def stated_spent(plan: Plan, certificate: dict[str, Any]) -> Spent:
    """Return the budget that a release has spent according to its certificate. The ledger is not read."""
    charged = [Fraction(rho) for rho in certificate["spent"]["rho_by_level_exact"]]
    return plan.spent_on([rho / step.charge.as_rho for rho, step in zip(charged, plan.charged_steps, strict=True)])


def changed(what: str) -> OdError:
    """Return the OdError for published data that do not fit their certificate; ``what`` names them in the message."""
    return OdError(
        "OD-BUNDLE-CHANGED",
        f"the published {what} differ from those that the certificate and the noisy measurements give",
        next_step="restore the release, or read it with the software that the certificate names",
    )


def absent(message: str) -> OdError:
    """Return the OdError for a release that does not exist."""
    return OdError("OD-RELEASE-ABSENT", message, next_step="name a published release")
