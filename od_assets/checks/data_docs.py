"""Configure the Data Docs, the HTML pages of Great Expectations. Only the owner can read confidential pages."""

import os
from pathlib import Path
from typing import Any

from great_expectations.data_context.store.tuple_store_backend import TupleFilesystemStoreBackend
from great_expectations.render.view.view import DefaultJinjaIndexPageView, DefaultJinjaPageView

from od_core.files.durable import (
    CONFIDENTIAL_FILE_MODE,
    CONFIDENTIAL_FOLDER_MODE,
    PUBLIC_FILE_MODE,
    PUBLIC_FOLDER_MODE,
    make_folder,
)

_ENVIRONMENTS: dict[type, Any] = {}
"""Jinja environments by class of page. Each caches its compiled templates, which otherwise take most of a check."""


class Page(DefaultJinjaPageView):
    """A page of an expectation suite or a validation, with cached templates."""

    def __init__(self, custom_styles_directory: str | None = None, custom_views_directory: str | None = None) -> None:
        super().__init__(custom_styles_directory, custom_views_directory)
        self.env = _ENVIRONMENTS.setdefault(type(self), self.env)  # that of the first page of this class


class IndexPage(Page, DefaultJinjaIndexPageView):
    """A page that lists the other pages."""


class PublicFiles(TupleFilesystemStoreBackend):
    """A store of files that everybody can read and only their owner can write, from the moment of their creation.

    Great Expectations does not set file modes. The umask cannot be used instead, because all threads share it.
    """

    file_mode, folder_mode = PUBLIC_FILE_MODE, PUBLIC_FOLDER_MODE

    def _set(self, key: Any, value: Any, **_options: Any) -> Any:
        """Write a file, as Great Expectations asks for, with the modes of this store. Returns its path."""
        path = Path(self.full_base_directory, self._convert_key_to_filepath(key))  # type: ignore[no-untyped-call]
        make_folder(path.parent, self.folder_mode)
        with os.fdopen(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, self.file_mode), "wb") as file:
            os.fchmod(file.fileno(), self.file_mode)  # the umask may have reduced the mode
            file.write(value.encode() if isinstance(value, str) else value)
        return str(path)


class ConfidentialFiles(PublicFiles):
    """A store of files that only their owner can read and write."""

    file_mode, folder_mode = CONFIDENTIAL_FILE_MODE, CONFIDENTIAL_FOLDER_MODE


def site(folder: str, *, confidential: bool) -> Any:
    """Return the configuration of a Data Docs site in a folder, with the classes of this module.

    The result is untyped, because the type that Great Expectations defines has no views.
    """
    view = {"module_name": __name__, "class_name": Page.__name__}
    index = {"module_name": __name__, "class_name": IndexPage.__name__}
    files = ConfidentialFiles if confidential else PublicFiles
    return {
        "class_name": "SiteBuilder",
        "site_index_builder": {"class_name": "DefaultSiteIndexBuilder", "view": index},
        "site_section_builders": {"expectations": {"view": view}, "validations": {"view": view}},
        "store_backend": {"module_name": files.__module__, "class_name": files.__name__, "base_directory": folder},
    }
