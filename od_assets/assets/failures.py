"""Turn errors of assets and checks into failures with one public line in Dagster's storage, and no retry."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from od_core.errors import OdError
from od_core.ledger.confidential import ConfidentialFolder


@contextmanager
def failures_without_values(confidential: ConfidentialFolder) -> Iterator[None]:
    """Raise a Failure with a public line in place of any error; the details stay in the confidential folder.

    Dagster stores the text of every exception and of its cause, so neither may quote a confidential value.
    """
    failed: OdError | None = None
    try:
        with confidential.errors_stay_inside(spent="what was set aside before stays charged"):
            yield
    except OdError as error:
        failed = error
    if failed is not None:
        raise dg.Failure(description=str(failed), allow_retries=False) from None


@contextmanager
def public_failures() -> Iterator[None]:
    """Raise a Failure with the line of an OdError, for steps without confidential data; pass on other errors."""
    failed: OdError | None = None
    try:
        yield
    except OdError as error:
        failed = error
    if failed is not None:
        raise dg.Failure(description=str(failed), allow_retries=False) from None
