"""Checks of the team, of which each gets the table that will be published and that of the month before."""

from collections.abc import Mapping

import pandas as pd


def count_districts_without_trips(tables: Mapping[str, pd.DataFrame]) -> int:
    """Return the number of districts in which no trip begins; a zone's code begins with that of its district."""
    flows, districts = tables["flows"], {"N", "S"}
    return len(districts - {*flows.loc[flows["trips"] > 0, "origin"].str[0]})
