"""Confidential: what errors know beyond their public parts, where the command line meets them."""

from od_assets.project import var_folder
from od_core.errors import OdError


def keep_detail_of(error: OdError) -> None:
    """Write it into the confidential folder, and its place into the next step; without a detail nothing is made."""
    if error.confidential_detail is not None:
        from od_core.archive.confidential import ConfidentialFolder

        ConfidentialFolder(var_folder() / "confidential").keep_detail_of(error)
