"""A 90 % interval for every published cell, from the published measurements alone: it costs no privacy."""

from __future__ import annotations

from fractions import Fraction

CONFIDENCE = Fraction(9, 10)
"""Probability with which an interval holds the true number of counted trips."""

MOST_LISTED = 5_000_000
"""Public pairs of a pair of levels up to which every one is listed with its interval, those of 0 trips included."""
