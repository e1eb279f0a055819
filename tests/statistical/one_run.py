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

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special, stats

from od_core import Release, open_release
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
    """Trips that are on one pair of zones if their bit is set, and on another one if it is not.

    Attributes:
        bits: shape (canaries,).
        ends: pairs of zones with a set bit and without: origin_in, destination_in, origin_out, destination_out.
    """

    bits: NDArray[np.bool_]
    ends: pd.DataFrame

    def records(self) -> pd.DataFrame:
        """One row a trip: origin, destination."""
        ends = self.ends
        return pd.DataFrame({side: np.where(self.bits, ends[f"{side}_in"], ends[f"{side}_out"]) for side in SIDES})


def fair_bits(number: int) -> NDArray[np.bool_]:
    """Coins of an audit: never the same ones twice, for the bound is over coins and noise together."""
    return np.random.default_rng().integers(0, 2, number).astype(bool)


@dataclass(frozen=True)
class Auditor:
    """What an attacker knows beside what is published: all records but the coins, the areas, and the noise.

    Attributes:
        canaries: of which he knows all but the bits.
        base: the other records, one row a trip: origin, destination.
        areas: area of each zone at each level, a column a level; the index is the zone.
    """

    canaries: Canaries
    base: pd.DataFrame
    areas: pd.DataFrame

    def guesses(self, bundle: Path, share: float) -> dict[str, Guesses]:
        """Of each attacker on the tables, each on this share of the canaries.

        They look at the measurements of all levels, each weighed by its spread, and at those of each level; at the
        released flows between zones; and at the order in which these are listed.
        """
        release = open_release(bundle)
        levels = {f"level {step.level}": self._level_scores(release, step.level) for step in release.plan.steps}
        origin, destination = names = release.levels[-1]
        flows = pd.read_csv(bundle / f"flows_{origin}_{destination}.csv", dtype=str, keep_default_na=False)
        scores = {
            "all levels": np.sum([each / max(1.0, each.var()) for each in levels.values()], axis=0),
            **levels,
            "flows": self._scores(names, flows, flows["trips"].to_numpy(float)),
            "order of flows": -self._scores(names, flows, np.arange(len(flows)), less_expected=False),
        }
        return {name: boldest(each, share) for name, each in scores.items()}

    def _level_scores(self, release: Release, level: int) -> NDArray[np.float64]:
        table = release.measurements_at(level)
        return self._scores(release.levels[level], table, table["noisy"].to_numpy(float))

    def _scores(
        self, names: tuple[str, str], table: pd.DataFrame, values: NDArray[Any], *, less_expected: bool = True
    ) -> NDArray[np.float64]:
        """The value of the cell where a canary is if its bit is set, less that of the other; 0 where one is not listed.

        Each less what is expected of it: other records, and half of the canaries that may be there.
        """
        inside, outside = (self._cells(names, self.canaries.ends, side) for side in ("_in", "_out"))
        found = np.full(self.areas[names[0]].nunique() * self.areas[names[1]].nunique(), np.nan)
        listed = (pd.Index(self.areas[name].unique()) for name in names)
        rows, columns = (index.get_indexer(table[side]) for index, side in zip(listed, SIDES, strict=True))
        found[rows * self.areas[names[1]].nunique() + columns] = values
        if less_expected:
            found -= np.bincount(self._cells(names, self.base), minlength=len(found))
            found -= np.bincount(np.concatenate([inside, outside]), minlength=len(found)) / 2
        return np.nan_to_num(found[inside] - found[outside])

    def _cells(self, names: tuple[str, str], trips: pd.DataFrame, suffix: str = "") -> NDArray[np.int64]:
        """Numbers of the cells of some trips at a pair of levels."""
        numbers = [pd.factorize(self.areas[name])[0] for name in names]
        rows, columns = (
            number[self.areas.index.get_indexer(trips[f"{side}{suffix}"])]
            for number, side in zip(numbers, SIDES, strict=True)
        )
        return rows * self.areas[names[1]].nunique() + columns


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
