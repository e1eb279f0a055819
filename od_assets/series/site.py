"""Declare the web site of all published releases, and find the assets that publish them."""

from pathlib import Path

from pydantic import Field

from od_assets.project import Project
from od_assets.series.names import RELEASES, declarations_of
from od_assets.series.section import Declaration, yaml_documents
from od_core.errors import OdError
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


def publishing_assets(project: Project) -> list[list[str]]:
    """Return the keys of the assets that publish bundles, of all declared series of a project.

    Of a declaration that cannot be read, only the bundle is known. Another check reports its fault.
    """
    keys = []
    for path in declarations_of(*RELEASES, project=project):
        name = path.parent.name
        keys.append([name, "bundle"])
        if _is_assisted(path):
            keys.append([name, "assisted"])
    return keys


def _is_assisted(path: Path) -> bool:
    try:
        [document] = yaml_documents(path, path.name)
        return document["attributes"].get("assisted") is True
    except (OdError, AttributeError, KeyError, TypeError, ValueError):
        return False
