"""Withdraw public releases: their bundles and rows go, and the ledger keeps what they spent, and why they went."""

import shutil
from contextlib import suppress

from od_assets.resources.folders import Folders
from od_core.errors import STAYS_CHARGED, OdError
from od_core.files.durable import sync, write_if_changed
from od_core.ledger.ledger import Withdrawal
from od_core.ledger.release_key import ReleaseKey
from od_core.publication.bundle import encode_json, restore_folder
from od_core.publication.bundle_files import NOTICE, WITHDRAWN_COPIES, locate_zip
from od_core.publication.database import remove_release
from od_core.publication.read_back import make_absent_release_error, read_bundle_certificate, read_withdrawals
from od_core.published.opening import find_bundle_folders, list_derived_releases


def withdraw(folders: Folders, key: ReleaseKey, reason: str) -> dict[ReleaseKey, Withdrawal]:
    """Withdraw a public release and all flows that are derived from it, and return their withdrawals by key.

    Call this while no release runs. The ledger has the withdrawals first. Each later step can be repeated, so that a
    second call ends one that was killed.

    Raises:
        OdError: the reason is not one printable line; the release is not public; another one of its series is public,
            but not entered in the ledger; or the ledger, the database or a file cannot be written.
    """
    if not (reason.strip() and reason.isprintable()):
        message, step = "the reason is blank, or not one printable line", "say why, in words that everybody may read"
        raise OdError("OD-RELEASE-REASON", message, next_step=step)
    ledger = folders.open_existing_ledger()
    if ledger.find_withdrawal(key) is None:
        restore_folder(folders.locate_bundle(key), str(key))
        _refuse_unready(folders, key)
    data_set = ""
    with suppress(OdError):  # of a damaged bundle
        data_set = read_bundle_certificate(folders.locate_bundle(key))["data_set"]
    withdrawals = {key: ledger.withdraw(key, reason, data_set)}
    for derived in list_derived_releases(folders.releases):
        certificate = read_bundle_certificate(folders.locate_bundle(derived))
        if any(source["release"] == str(key) for source in certificate["sources"]):
            why = f"it is derived from {key}, which was withdrawn: {withdrawals[key].why}"
            withdrawals[derived] = ledger.withdraw(derived, why, certificate["data_set"])
    all_withdrawals = withdrawals | read_withdrawals(folders.releases)  # also those of calls that were killed
    for withdrawn, withdrawal in all_withdrawals.items():
        _replace_by_notice(folders, withdrawn, withdrawal)
    return withdrawals


def _refuse_unready(folders: Folders, key: ReleaseKey) -> None:
    """Raise OdError if a release is not public, or if another one of its series is public but not in the ledger yet."""
    ledger = folders.ledger
    public = find_bundle_folders(folders.releases).keys()
    if key not in public and not ledger.is_published(key):
        raise make_absent_release_error(f"{key} is not published here")
    for other in public - {key}:
        is_unfinished = ledger.list_charges(other) and not ledger.read_publication(other)
        if other.release == key.release and is_unfinished:
            message, step = f"{other} is public, but not in the ledger yet", f"run {other} again, then withdraw {key}"
            raise OdError("OD-RELEASE-UNFINISHED", message, next_step=step, spent=STAYS_CHARGED)


def _replace_by_notice(folders: Folders, key: ReleaseKey, withdrawal: Withdrawal) -> None:
    """Replace a bundle by a notice of its withdrawal, and remove the rows of its release.

    A copy that only the owner can read is kept, because the report of the next period is verified with it. Each step
    can be repeated after an interruption.
    """
    folder = folders.locate_bundle(key)
    kept = folders.var / WITHDRAWN_COPIES / key.folder
    notice = folders.releases / f"{key}{NOTICE}"
    if folder.is_dir() and not notice.exists() and not kept.exists():
        copy = folders.confidential.make_subfolder(kept.parent) / f".{kept.name}.staged"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder, copy)
        folders.confidential.restrict_to_owner(copy)
        copy.rename(kept)
        sync(kept.parent)
    write_if_changed(
        notice, encode_json({"release": str(key), "withdrawn_at": withdrawal.at, "reason": withdrawal.why})
    )
    remove_release(folders.database, key)
    locate_zip(folder).unlink(missing_ok=True)
    for public_folder in (folder, folders.var / "replicates" / key.folder):
        if public_folder.is_dir():
            shutil.rmtree(public_folder)
    sync(notice.parent)
