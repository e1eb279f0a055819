"""Declare the web site of all published releases, and find the assets that publish them."""

from pathlib import Path

from pydantic import Field

from od_assets.series.section import Declaration
from od_core.published.site_releases import SiteDescription


class DeclaredSite(Declaration):
    """The declaration of a web site of all published releases."""

    owners: list[str] = Field(..., description="Owners: team:name or e-mail addresses.")
    title: str = Field("Published trip statistics", description="Title of the site.")
    url: str | None = Field(
        None, description="Address at which you will publish the site, for its feed and its site map."
    )
    publisher: str | None = Field(None, description="Organisation that publishes the releases; DCAT-AP requires it.")
    licence: str | None = Field(
        None,
        description="Address of the licence of all releases, such as https://creativecommons.org/licenses/by/4.0/.",
    )
    contact: str | None = Field(None, description="Address of mail or of the web where readers ask about the releases.")
    folder: str | None = Field(
        None, description="Folder to write; the folder site below that of the project's output if left out."
    )

    def described(self) -> SiteDescription:
        """Return what the site says of itself. Raises OdError if a text or an address cannot be written."""
        return SiteDescription(self.title, self.url, self.publisher, self.licence, self.contact)

    @property
    def place(self) -> Path:
        """Folder of the site."""
        return self.project.var / "site" if self.folder is None else self.project.root / self.folder
