"""Declare the web site of all published releases, and find the assets that publish them."""

from pathlib import Path
from typing import Self

from od_assets.series.section import Declaration
from od_core.published.site import SiteDescription


class DeclaredSite(Declaration):
    """The declaration of a web site of all published releases."""

    owners: list[str]
    title: str = "Published trip statistics"
    url: str | None = None
    publisher: str | None = None
    licence: str | None = None
    contact: str | None = None
    folder: str | None = None

    def checked(self) -> Self:
        """See :meth:`Declaration.checked`."""
        self.described()
        return self

    def described(self) -> SiteDescription:
        """Return what the site says of itself. Raises OdError if a text or an address cannot be written."""
        return SiteDescription(self.title, self.url, self.publisher, self.licence, self.contact)

    @property
    def place(self) -> Path:
        """Folder of the site."""
        return self.project.var / "site" if self.folder is None else self.project.root / self.folder
