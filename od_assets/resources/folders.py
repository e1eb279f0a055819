"""Define where the releases of a project are written: its folders, ledger and database. Imports no Dagster."""

from __future__ import annotations

import datetime
import re
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from od_assets.project import ENVIRONMENT, find_current_project, read_variable
from od_core import Ledger, OdError, PrivacyDomain, ReleaseKey
from od_core.errors import STAYS_CHARGED
from od_core.files.durable import sync
from od_core.ledger.chain import Chain
from od_core.ledger.confidential import ConfidentialFolder
from od_core.ledger.ledger import make_chain
from od_core.ledger.staged_files import Counted, StagedFiles, compute_input_identity, read_stored_identity
from od_core.periods import Period

if TYPE_CHECKING:
    from od_assets.series.series import G, P, Series


class Folders:
    """The folders, the ledger and the database of a project, which commands read without a lock."""

    @property
    def var(self) -> Path:
        """Folder of everything that releases write: ``var`` of the current project."""
        return find_current_project().var

    @property
    def project_folder(self) -> Path:
        """Folder of the project, whose ``.env`` may name the ledger."""
        return find_current_project().folder

    @property
    def ledger_place(self) -> tuple[Path, str | None]:
        """Arguments of :class:`Ledger`: the path of its SQLite file, and the address of a PostgreSQL database or None.

        With an address, the ledger is in that database.

        The address is not a setting of the warehouse, because Dagster's UI shows settings, and it may have a password.
        """
        return self.var / "ledger.sqlite", read_variable("OD_LEDGER", self.project_folder) or None

    @property
    def environment(self) -> str | None:
        """Name of this environment, such as ``staging``; None if ``OD_ENVIRONMENT`` does not state it."""
        return read_variable(ENVIRONMENT, self.project_folder) or None

    @property
    def ledger_chain(self) -> Chain:
        """The entries of the ledger, which are neither created nor verified yet."""
        return make_chain(*self.ledger_place)

    @cached_property
    def ledger(self) -> Ledger:
        """Budget ledger, created if there is none. It is verified whole before this process first adds an entry."""
        return Ledger(*self.ledger_place, whole=False)

    @property
    def is_new(self) -> bool:
        """Whether nothing was released here yet: there is neither a ledger nor the head of one that was lost."""
        return not self.ledger_chain.exists() and not (self.var / "confidential" / "ledger.head").exists()

    @contextmanager
    def open_ledger_or_empty(self) -> Iterator[Ledger]:
        """Give the ledger or, if nothing was released yet, an empty one in a temporary folder."""
        if not self.is_new:
            yield self.ledger
            return
        with TemporaryDirectory(prefix="od-release-ledger-") as name:
            yield Ledger(Path(name) / "ledger.sqlite")

    def open_existing_ledger(self) -> Ledger:
        """Return the ledger without creating one. Raises OdError if nothing was released yet."""
        if self.is_new:
            message = "there is no ledger yet, because nothing was released here"
            raise OdError("OD-LEDGER-ABSENT", message, next_step="run a release")
        return self.ledger

    def find_usable_ledger(self) -> Ledger | None:
        """Return the ledger; None if there is none, or if this process has no access to it."""
        try:
            return self.ledger if self.ledger_chain.exists() else None
        except OdError as error:
            if error.code != "OD-LEDGER-UNAVAILABLE":
                raise
            return None

    def hold_to_declared(self, domain: PrivacyDomain) -> None:
        """Raise OdError if the ledger is of another environment, or would refuse the present declaration of a data set.

        No entry is added, and no ledger is created.
        """
        self.hold_to_environment()
        if self.ledger_chain.exists():
            with self.ledger.trial():
                self.ledger.declare(domain)

    def hold_to_environment(self) -> None:
        """Raise OdError if the ledger is that of another environment. No ledger is created."""
        if self.ledger_chain.exists():
            self.ledger.hold_to_environment(self.environment)

    def find_published_periods(self, series: Series[P, G]) -> dict[str, ReleaseKey]:
        """Return the newest published revision of each period of a series, by period; also if it was withdrawn since.

        Periods that were never published have none. No ledger is created. Raises OdError if the ledger has releases of
        another project's series of this name.
        """
        if not self.ledger_chain.exists():
            return {}
        with self.ledger.one_look():
            self.ledger.hold_to_domain(series.name, series.domain.name)
            self.refuse_drawn_elsewhere(series)
            published = self.ledger.list_published_releases(series=series.name, withdrawn_until=0)
        return {key.period: key for key in sorted(published)}  # the newest revision of a period replaces the others

    def explain_wait_for_first_run(self, series: Series[P, G], period: Period) -> str | None:
        """Return why a schedule or sensor may not release a series yet; None if it may.

        It may not while the ledger has no draw for its data set, so the first release of a data set is run by hand.
        Otherwise, a second environment with a new ledger could spend the caps of a data set again unnoticed.
        """
        if self.ledger_chain.exists() and self.ledger.list_drawn_periods(series.domain.name):
            return None
        by_hand = f"od-release run {series.stated_name} --period {period}"
        return f"this ledger has no release of data set {series.domain.name!r} yet, so run the first by hand: {by_hand}"

    def refuse_drawn_elsewhere(self, series: Series[P, G], key: ReleaseKey | None = None) -> None:
        """Raise OdError if the ledger has draws of a series that another project, or another key prefix, made.

        Another project drew them if none of them is in the confidential folder or published here. If ``key`` is given,
        its period must not have been drawn under another prefix of this project, since it would be charged again.
        """
        drawn = self.ledger.list_drawn_periods(series.domain.name)
        own_draws = [other for other in drawn if other.release == series.name]
        if own_draws and not any(map(self._has_traces, own_draws)):
            raise OdError(
                "OD-IDENTITY-MISSING",
                f"the ledger has {own_draws[-1]}, but the confidential folder has no release of {series.name}",
                next_step="restore the confidential folder; if another project with this ledger has a series of this"
                " name, rename it, or give one of them a key_prefix",
                spent=STAYS_CHARGED,
            )
        if key is not None and key not in drawn:
            self._refuse_drawn_with_other_prefix(series, key, drawn)

    def _refuse_drawn_with_other_prefix(
        self, series: Series[P, G], key: ReleaseKey, drawn: Iterable[ReleaseKey]
    ) -> None:
        """Raise OdError if the series and period of a key were drawn under another ``key_prefix`` of the warehouse.

        The prefix is a part of the names of releases. So after a change, a period would be drawn and charged again.
        """
        # With pandas, which most commands do not need.
        from od_assets.series.reading import list_series_names

        names_of_others = {*list_series_names(series.project)} - {series.stated_name}
        names_of_others.add(series.name)  # a revision under the same name is meant to be charged
        with_any_prefix = re.compile(rf"([a-z][a-z0-9]*_)?{series.stated_name}")
        for other in drawn:
            may_be_same = with_any_prefix.fullmatch(other.release) and other.release not in names_of_others
            is_same_period = other.period == key.period and may_be_same
            if is_same_period and read_stored_identity(self.confidential, other):
                message = f"{key.period} of {series.stated_name} was drawn as {other}, and {key} would be charged again"
                step = "restore the key_prefix of the warehouse, or release only periods that were not drawn"
                raise OdError("OD-PREFIX-CHANGED", message, next_step=step)

    def refuse_renamed(self, series: Series[P, G], key: ReleaseKey, counted: Counted) -> None:
        """Raise OdError if a series that the project no longer declares has drawn the period from the same input.

        A renamed series would be charged for the same records again. A higher revision states that this is meant. Draws
        of other projects do not count, unless they share ``var`` and the key prefix with this one.

        Args:
            counted: the counted input of the release ``key``.
        """
        prefix = "".join(f"{part}_" for part in series.prefix)
        drawn = self.ledger.list_drawn_periods(series.domain.name)
        same_period = [other for other in drawn if other.period == key.period and other.release.startswith(prefix)]
        others = [other for other in same_period if read_stored_identity(self.confidential, other)]
        if key in drawn or all(other.release == key.release for other in others):
            return
        # With pandas, which most commands do not need.
        from od_assets.series.reading import list_series_names

        declared = {prefix + name for name in list_series_names(series.project)}
        identity = compute_input_identity(self.confidential, counted, None)
        for other in sorted(others, reverse=True):  # the newest revision first
            has_same_input = identity.items() <= read_stored_identity(self.confidential, other).items()
            if has_same_input and other.release not in declared and other.revision >= key.revision:
                message = f"{key}: {other} was drawn from the same input, and its series is not declared any more"
                step = f"give the series the name {other.release} again, and release only other periods under a new one"
                step += f"; revision {other.revision + 1} of {key.release} is charged again"
                raise OdError("OD-SERIES-RENAMED", message, next_step=step)

    def verify_ledger(self) -> int:
        """Verify the ledger, and return the number of its entries.

        Raises OdError if it is edited, damaged or missing, lacks an entry that its head file or a public certificate
        names, or a charge is not the cost of its noise.
        """
        from od_core.publication.read_back import read_certified_entries  # it imports every format of a bundle

        ledger = self.open_existing_ledger()
        ledger.hold_to(read_certified_entries(self.releases))
        return ledger.verify()

    @property
    def confidential(self) -> ConfidentialFolder:
        """The confidential folder."""
        return ConfidentialFolder(self.var / "confidential", self.has_drawn)

    def has_drawn(self) -> bool:
        """Return whether there is a ledger of this project alone, with a draw; see :meth:`Ledger.has_drawn`."""
        return self.ledger_chain.exists() and self.ledger.has_drawn()

    def find_kept_records(self, days: int = 0) -> dict[ReleaseKey, Path]:
        """Return the paths of the kept copies of records of releases that were published at least ``days`` ago."""
        files = {
            key: StagedFiles(self.locate_confidential_folder(key)).records
            for key in self.list_releases_older_than(days)
        }
        return {key: file for key, file in files.items() if file.exists()}

    def list_releases_older_than(self, days: int) -> list[ReleaseKey]:
        """Return the releases that were published at least ``days`` ago; those that were withdrawn since, too."""
        if not self.ledger_chain.exists():
            return []
        latest = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=days)
        return [key for key, at in self.ledger.list_published_releases(withdrawn_until=0).items() if at <= latest]

    def locate_confidential_folder(self, key: ReleaseKey) -> Path:
        """Return the folder in ``confidential`` with the staged files and measurements of a release. It is not made."""
        return self.var / "confidential" / key.folder

    def purge(self, days: int = 0, in_use: Container[ReleaseKey] = ()) -> None:
        """Remove the files of :meth:`find_kept_records` durably, except those of the releases ``in_use``.

        No other release may run meanwhile.
        """
        for key, file in self.find_kept_records(days).items():
            if key not in in_use:
                file.unlink()
                sync(file.parent)

    @property
    def database(self) -> Path:
        """Path of the public release database."""
        return self.var / "release.duckdb"

    @property
    def releases(self) -> Path:
        """Folder of all public bundles."""
        return self.var / "releases"

    def _has_traces(self, key: ReleaseKey) -> bool:
        """Return whether the folders of this project have a bundle of a release, or the identity of its input."""
        return self.locate_bundle(key).is_dir() or bool(read_stored_identity(self.confidential, key))

    def locate_bundle(self, key: ReleaseKey) -> Path:
        """Return the folder of the public bundle of a release."""
        return self.releases / key.folder

    def locate_data_docs(self, key: ReleaseKey) -> Path:
        """Return the public folder of the page that states which expectations a release's flows meet."""
        return self.var / "data_docs" / key.folder

    def find_bundle(self, name: str) -> Path:
        """Return the path of a bundle, given that path or the key of a release.

        Raises OdError if ``name`` is neither an existing path nor the key of a release that is published here.
        """
        from od_core.published.opening import find_bundle_folders

        if Path(name).exists():
            return Path(name)
        key = ReleaseKey.parse(name)
        self.refuse_lost_or_withdrawn(key)
        if not self.locate_bundle(key).is_dir():
            published = ", ".join(map(str, find_bundle_folders(self.releases))) or "none"
            message = f"{key} is not published here; published releases: {published}"
            raise OdError("OD-RELEASE-ABSENT", message, next_step="name a published release, or the folder of a bundle")
        return self.locate_bundle(key)

    def refuse_lost_or_withdrawn(self, *keys: ReleaseKey) -> None:
        """Raise OdError if a release was withdrawn, or was published but its bundle is lost.

        The zip file or the database shows that it was published. The database is read only if there is no bundle,
        because another program may be writing to it.
        """
        from od_core.publication.read_back import make_missing_bundles_error, refuse_withdrawn
        from od_core.published.opening import find_missing_bundles

        refuse_withdrawn(self.releases, *keys)
        for key in keys:
            if not self.locate_bundle(key).is_dir() and key in find_missing_bundles(self.releases, self.database):
                raise make_missing_bundles_error([key])

    @property
    def geographies(self) -> Path:
        """Folder in which the geography assets store the public lists."""
        return self.var / "geographies"
