"""Define what the publisher of a site says of it: its title and address, its publisher and contact, and the licence."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from od_core.errors import OdError

_MAIL = re.compile(r"[^@\s:/<>\"]+@[^@\s:/<>\"]+")


@dataclass(frozen=True)
class SiteDescription:
    """What a site says of itself.

    Attributes:
        title: title of the site.
        url: address at which the site will be published, such as ``https://statistics.example/od``; None if unknown.
        publisher: name of the organisation that publishes the releases; None if not stated.
        licence: address of the licence of all releases, such as that of a Creative Commons licence; None if not stated.
        contact: address of electronic mail or of the web where readers ask about the releases; None if not stated.

    Raises:
        OdError: an address is not one of the web, nor, for the contact, one of mail; or the title or the publisher has
            characters that are not printable.
    """

    title: str
    url: str | None = None
    publisher: str | None = None
    licence: str | None = None
    contact: str | None = None

    def __post_init__(self) -> None:
        for name, text in (("title", self.title), ("publisher", self.publisher)):
            if text is not None:
                _refuse_unprintable(name, text)
        for address in (self.url, self.licence, None if self.is_mail else self.contact):
            if address is not None:
                _refuse_no_address(address)

    @property
    def is_mail(self) -> bool:
        """Whether the contact is an address of electronic mail."""
        return self.contact is not None and self.contact.isprintable() and _MAIL.fullmatch(self.contact) is not None

    @property
    def base(self) -> str | None:
        """The address of the site with a slash at its end; None if it is unknown."""
        return None if self.url is None else self.url.rstrip("/") + "/"

    def address(self, file: str, *, within: str = "") -> str:
        """Return the address of a file of the site: whole if that of the site is known, and otherwise relative.

        Args:
            file: path of the file in the site.
            within: folder of the file that states a relative address, with a slash at its end.
        """
        return file.removeprefix(within) if self.base is None else self.base + file


def _refuse_unprintable(name: str, text: str) -> None:
    if not text.strip() or not text.isprintable():
        raise OdError(
            "OD-SITE-TITLE",
            f"the {name} is blank or has characters that are not printable",
            next_step=f"give a {name} of one line",
        )


def _refuse_no_address(url: str) -> None:
    parts = urlsplit(url)
    unusual = not url.isprintable() or any(sign in url for sign in ' "<>?#')
    if parts.scheme not in ("https", "http") or not parts.netloc or unusual:
        raise OdError(
            "OD-SITE-ADDRESS",
            f"{url[:80]!r} is not an address of the web",
            next_step="give an address such as https://statistics.example/od, or od@statistics.example as the contact",
        )
