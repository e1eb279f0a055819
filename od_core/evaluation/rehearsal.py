"""A small release that runs every kernel once, so that they are compiled before the first real one."""

from __future__ import annotations


def rehearse() -> None:
    """Release a few made-up trips and throw the result away."""
