"""A lower bound of epsilon from one release with many canaries, and guesses from all that a release leaves behind.

Each of m canaries is in the input or not, by a fair coin of its own. An attacker who sees all that is published guesses
r of the coins, as many as he likes, and is silent on the others. If the release is (epsilon, delta)-private for one
canary, then he has v or more of r guesses right with a probability of at most

    f(v) + 2 m delta max over i = 1, ..., v of (f(v - i) - f(v)) / i,    f(v) = P(W >= v),

W binomial of r and e^epsilon / (1 + e^epsilon) (Steinke, Nasr & Jagielski 2023, "Privacy Auditing with One (1) Training
Run", Theorem 5.2 and Corollary 5.4). So an epsilon at which that is below alpha is too small, but for a probability of
alpha. Where several attackers look at one release, each has a part of alpha, fixed beforehand.

Canaries of several releases, of different periods, are canaries of all of them together: a release of one period is a
function of the records of that period alone, and the releases' noise is independent.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special, stats

from tests.statistical.laws import ALPHA

SIDES = ("origin", "destination")

Guesses = NDArray[np.int64]
"""1: the canary is in, -1: it is out, 0: no guess; shape (canaries,)."""


def p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Most likely that so many guesses are right, where the release is (epsilon, delta)-private."""
    if right == 0:
        return 1.0
    chance = special.expit(epsilon)
    just_below = np.cumsum(stats.binom.pmf(np.arange(right - 1, -1, -1), guesses, chance))
    slope = float((just_below / np.arange(1, right + 1)).max())
    return min(1.0, float(stats.binom.sf(right - 1, guesses, chance)) + 2 * canaries * delta * slope)


def least_epsilon(canaries: int, guesses: int, right: int, delta: float, alpha: float = ALPHA) -> float:
    """Lower bound of epsilon that fails with a probability of alpha at most; 0 where nothing is shown."""
    low, high = 0.0, 50.0
    if p_value(canaries, guesses, right, low, delta) > alpha:
        return 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if p_value(canaries, guesses, right, middle, delta) <= alpha else (low, middle)
    return low


def shown(bits: NDArray[np.bool_], guesses: Guesses, delta: float, alpha: float = ALPHA) -> float:
    """Lower bound of epsilon by the guesses of one attacker."""
    made = guesses != 0
    return least_epsilon(len(bits), int(made.sum()), int(((guesses > 0) == bits)[made].sum()), delta, alpha)


def boldest(scores: NDArray[np.float64], share: float) -> Guesses:
    """Guesses by the sign of the scores, of the share of canaries whose scores are furthest from zero."""
    guesses = np.zeros(len(scores), dtype=np.int64)
    order = np.argsort(-np.abs(scores), kind="stable")[: int(share * len(scores))]
    guesses[order] = np.sign(scores[order])
    return guesses


@dataclass(frozen=True)
class Canaries:
    """Trips that are on one pair of zones if the bit of their canary is set, and on another one if it is not.

    Attributes:
        bits: shape (canaries,).
        ends: pairs of zones with a set bit and without, one row a trip: origin_in, destination_in, origin_out,
            destination_out.
        owners: the canary of each row of ``ends``; by default, each canary has one row.
    """

    bits: NDArray[np.bool_]
    ends: pd.DataFrame
    owners: NDArray[np.int64] | None = None

    def records(self) -> pd.DataFrame:
        """One row a trip: origin, destination."""
        ends, bits = self.ends, self.bits if self.owners is None else self.bits[self.owners]
        return pd.DataFrame({side: np.where(bits, ends[f"{side}_in"], ends[f"{side}_out"]) for side in SIDES})


def fair_bits(number: int) -> NDArray[np.bool_]:
    """Coins of an audit: never the same ones twice, for the bound is over coins and noise together."""
    return np.random.default_rng().integers(0, 2, number).astype(bool)


Names = tuple[str, str]
"""Level of origins and level of destinations."""


def read_measurements(bundle: Path) -> Iterator[tuple[str, Names, pd.DataFrame]]:
    """Name, levels and table (origin, destination, value) of every noisy query, those by category summed up.

    Read from the files alone, by nothing of the library.
    """
    levels = json.loads((bundle / "certificate.json").read_text(encoding="utf-8"))["levels"]
    names = {row["level"]: (row["origin_level"], row["destination_level"]) for row in levels}
    for level, table in pd.read_parquet(bundle / "tables/noisy_measurements.parquet").groupby("level"):
        yield f"level {level}", names[level], table.rename(columns={"noisy": "value"})
    by_category = bundle / "tables/segment_measurements.parquet"
    for (level, breakdown), table in _grouped(by_category, ["level", "breakdown"]):
        yield f"level {level} by {breakdown}", names[level], _summed(table, "noisy")


def read_flows(bundle: Path) -> Iterator[tuple[str, Names, pd.DataFrame]]:
    """As :func:`read_measurements`, of all released flows, those by category summed up."""
    flows = pd.read_parquet(bundle / "tables/flows.parquet")
    for (origin, destination), table in flows.groupby([f"{side}_level" for side in SIDES]):
        yield f"flows {origin} {destination}", (origin, destination), table.rename(columns={"trips": "value"})
    by = ["breakdown", *(f"{side}_level" for side in SIDES)]
    for (breakdown, origin, destination), table in _grouped(bundle / "tables/segments.parquet", by):
        yield f"flows {origin} {destination} by {breakdown}", (origin, destination), _summed(table, "trips")


def _grouped(path: Path, columns: list[str]) -> Iterable[tuple[Any, pd.DataFrame]]:
    return pd.read_parquet(path).groupby(columns) if path.exists() else []


def _summed(table: pd.DataFrame, column: str) -> pd.DataFrame:
    return table.groupby(list(SIDES), as_index=False)[column].sum().rename(columns={column: "value"})


@dataclass(frozen=True)
class Auditor:
    """What an attacker knows beside what is published: all records but the coins, the areas, and the noise.

    Attributes:
        canaries: of which he knows all but the bits.
        base: the other records, one row a trip: origin, destination.
        areas: area of each zone at each level, a column a level; the index is the zone.
        destination_areas: those of the destinations, if they have areas of their own.
    """

    canaries: Canaries
    base: pd.DataFrame
    areas: pd.DataFrame
    destination_areas: pd.DataFrame | None = None

    def guesses(self, bundle: Path, share: float, *, every_table: bool = False) -> dict[str, Guesses]:
        """Of each attacker on the tables, each on this share of the canaries.

        They look at the measurements of all levels, each weighed by its spread, and at those of each level; at the
        released flows between zones; and at the order in which these are listed. With ``every_table``, others look at
        the flows at each other pair of levels, and by category.
        """
        levels = {name: self._scores(names, table) for name, names, table in read_measurements(bundle)}
        origin, destination = names = self._finest
        flows = pd.read_csv(bundle / f"tables/flows_{origin}_{destination}.csv", dtype=str, keep_default_na=False)
        order = flows.assign(value=np.arange(len(flows)))
        scores = {
            "all levels": np.sum([each / max(1.0, each.var()) for each in levels.values()], axis=0),
            **levels,
            "flows": self._scores(names, flows.assign(value=flows["trips"].astype(float))),
            "order of flows": -self._scores(names, order, less_expected=False),
        }
        others = read_flows(bundle) if every_table else ()
        scores |= {name: self._scores(of_table, table) for name, of_table, table in others}
        return {name: boldest(each, share) for name, each in scores.items()}

    @property
    def _sides(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        return self.areas, self.areas if self.destination_areas is None else self.destination_areas

    @property
    def _finest(self) -> Names:
        """The levels of the zones."""
        origin, destination = (areas.index.name for areas in self._sides)
        return origin, destination

    def _scores(self, names: Names, table: pd.DataFrame, *, less_expected: bool = True) -> NDArray[np.float64]:
        """The values where a canary's trips are if its bit is set, less those of the others, in all; shape (canaries,).

        Each less what is expected of it: other records, and half of the canaries that may be there. A value that is not
        listed counts 0, and so does the one that it is compared with.
        """
        inside, outside = (self._cells(names, self.canaries.ends, side) for side in ("_in", "_out"))
        sizes = [areas[name].nunique() for areas, name in zip(self._sides, names, strict=True)]
        found = np.full(sizes[0] * sizes[1], np.nan)
        listed = (pd.Index(areas[name].unique()) for areas, name in zip(self._sides, names, strict=True))
        rows, columns = (index.get_indexer(table[side]) for index, side in zip(listed, SIDES, strict=True))
        found[rows * sizes[1] + columns] = table["value"]
        if less_expected:
            found -= np.bincount(self._cells(names, self.base), minlength=len(found))
            found -= np.bincount(np.concatenate([inside, outside]), minlength=len(found)) / 2
        differences = np.nan_to_num(found[inside] - found[outside])
        owners = self.canaries.owners
        return differences if owners is None else np.bincount(owners, differences, len(self.canaries.bits))

    def _cells(self, names: Names, trips: pd.DataFrame, suffix: str = "") -> NDArray[np.int64]:
        """Numbers of the cells of some trips at a pair of levels."""
        rows, columns = (
            pd.factorize(areas[name])[0][areas.index.get_indexer(trips[f"{side}{suffix}"])]
            for areas, name, side in zip(self._sides, names, SIDES, strict=True)
        )
        return rows * self._sides[1][names[1]].nunique() + columns


def tokens_in(texts: Sequence[str], tokens: Sequence[str]) -> Guesses:
    """In where the text that names most tokens names its own, else out; silent where none names any."""
    named = [np.array([token in text for token in tokens]) for text in texts]
    most = max(named, key=np.count_nonzero)
    return np.where(most, 1, -1) if most.any() else np.zeros(len(tokens), dtype=np.int64)


def bits_of_numbers(texts: Iterable[str], known: int, number: int) -> Guesses:
    """The last bits of a number whose first ones are known: of those that are said, the one that is said most often."""
    numbers = (
        int(said.replace(",", "")) for text in texts for said in re.findall(r"(?<![\w.-])\d[\d,]*(?![\w-])", text)
    )
    found = Counter(value for value in numbers if value >> number == known)
    if not found:
        return np.zeros(number, dtype=np.int64)
    ((value, _),) = found.most_common(1)
    return 2 * (value >> np.arange(number) & 1) - 1


def best(bits: NDArray[np.bool_], attackers: Mapping[str, Guesses], delta: float) -> tuple[str, float]:
    """The attacker who shows most, and what; the first one has half of alpha, and the others the other half."""
    first, *others = attackers
    parts = {first: ALPHA / 2} | dict.fromkeys(others, ALPHA / 2 / max(1, len(others)))
    bounds = {name: shown(bits, guesses, delta, parts[name]) for name, guesses in attackers.items()}
    return max(bounds.items(), key=lambda item: item[1])


def told(instance: Any) -> list[str]:
    """All that Dagster's event storage holds of all runs, as text."""
    return [str(entry.to_json()) for run in instance.get_runs() for entry in instance.all_logs(run.run_id)]


def messages(instance: Any) -> list[str]:
    """What a reader of the log of all runs sees."""
    return [entry.user_message for run in instance.get_runs() for entry in instance.all_logs(run.run_id)]


def public_paths(root: Path) -> list[Path]:
    """All files of a project outside the confidential folder, and outside its inputs."""
    hidden = root / "var" / "confidential"
    return [path for path in (root / "var").rglob("*") if path.is_file() and not path.is_relative_to(hidden)]
