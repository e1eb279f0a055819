"""Pages of Great Expectations whose templates are compiled once a process: they were most of the time of a check."""

from __future__ import annotations

from typing import Any

from great_expectations.render.view.view import DefaultJinjaIndexPageView, DefaultJinjaPageView

_ENVIRONMENTS: dict[type, Any] = {}
"""Of Jinja, one for each kind of page: it keeps what it has compiled."""


class Page(DefaultJinjaPageView):
    """A page of a suite or of one validation."""

    def __init__(self, custom_styles_directory: str | None = None, custom_views_directory: str | None = None) -> None:
        super().__init__(custom_styles_directory, custom_views_directory)
        self.env = _ENVIRONMENTS.setdefault(type(self), self.env)


class IndexPage(Page, DefaultJinjaIndexPageView):
    """The page that lists the others."""


def site(folder: str) -> Any:
    """The declaration of a site of such pages in a folder; its own type knows no views."""
    view = {"module_name": __name__, "class_name": Page.__name__}
    index = {"module_name": __name__, "class_name": IndexPage.__name__}
    return {
        "class_name": "SiteBuilder",
        "site_index_builder": {"class_name": "DefaultSiteIndexBuilder", "view": index},
        "site_section_builders": {"expectations": {"view": view}, "validations": {"view": view}},
        "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": folder},
    }
