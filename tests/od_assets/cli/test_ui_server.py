"""What keeps the Dagster UI from starting."""

from __future__ import annotations

import socket

import pytest

from od_assets.cli.ui_server import serve
from od_core.errors import OdError


def test_a_port_that_is_taken_is_refused_before_anything_starts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OdError, match=f"OD-UI-PORT: cannot listen on port {port}:"):
            serve(port, [])


@pytest.mark.parametrize("token", ["", "t" * 31, "t" * 31 + " ", "t" * 31 + ";", "t" * 31 + "\xe9"])
def test_a_token_that_is_short_or_fits_no_header_is_refused(monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    monkeypatch.setenv("OD_UI_TOKEN", token)
    with pytest.raises(OdError, match="OD-UI-TOKEN") as refusal:
        serve(0, [])
    assert "ttt" not in str(refusal.value)


@pytest.mark.parametrize("host", ["*", "*.example.org", "https://od.example.org", "od.example.org:443", ""])
def test_a_name_that_is_none_is_refused(host: str) -> None:
    """A wildcard would let any name through, and with it every page whose name comes to point here."""
    with pytest.raises(OdError, match="OD-UI-HOST"):
        serve(0, [host])
