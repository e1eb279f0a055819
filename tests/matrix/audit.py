"""Compare what neighbouring inputs change, at every step of the rows of the matrix, with the declared sensitivities:

    python -m tests.matrix.audit                        # what make audit runs
    python -m tests.matrix.audit --tries 100 --only boxes

All noise is 0, so a step measures true counts, on the whole path from the records. Two inputs differ in one random
unit. Its records are alike as often as not, so that some pairs differ much. For each kind of step, the largest ratio of
a change to the sensitivity is printed: in L2 where noise is Gaussian, in L1 where it is Laplace. A ratio above 1 is a
broken promise, and makes the audit fail. The inputs are the same at every call.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from math import sqrt
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd

from od_core import Ledger
from od_core.flows import measuring
from od_core.flows.step import AreaTotalStep
from od_core.group_sizes.plan import NumberStep
from od_core.ledger.measurements import DurableMeasurements, NoisyVector
from od_core.noise.table_sampler import TableNoise
from od_core.privacy.plan import Step, UncountedStep
from tests.matrix.declared import Records, domain_of, draw, keys_of, with_possible_pairs
from tests.matrix.made import fixed_noise
from tests.matrix.options import OPTIONS, Row, stored_rows

TRIES = 10
MOST_RECORDS, OTHERS = 12, 100
"""Largest number of records of the unit that differs, if it may have several, and number of the other records."""

Seen = dict[Step, tuple[pd.Series, Any]]
"""For each step, what it measured, by node or position, and the boxes that it measured, if there are any."""

Ratios = dict[tuple[str, str], dict[str, dict[str, float]]]
"""The largest ratios, by kind of release and of step, then by unit, then by relation."""


@contextmanager
def without_noise() -> Iterator[None]:
    """Let all noise be 0, and keys be the same at every call."""
    with fixed_noise(), ExitStack() as stack:
        for name in ("draw", "draw_laplace"):
            zeros = lambda _source, *arguments: np.zeros(arguments[-1], dtype=np.int64)  # noqa: E731
            stack.enter_context(patch.object(TableNoise, name, zeros))
        yield


def measured(row: Row, records: Any, of_other: Seen | None = None) -> Seen:
    """Return what each step of the release of some records measures without noise.

    Steps of group sizes depend on the numbers that were published before. The promise of a step holds given these, so
    the second of two inputs goes on with the numbers of the first one, ``of_other``.
    """
    seen: Seen = {}
    sound = DurableMeasurements.draw_once

    def look(store: DurableMeasurements, step: Step, draw_noisy: Any) -> Any:
        noisy = sound(store, step, draw_noisy)
        values, boxes = noisy.read_values(), None
        nodes = np.arange(len(values))
        if draw_noisy.func is measuring.measure and draw_noisy.args[2] is not None:
            plan, _, parents = draw_noisy.args[:3]  # a mechanism may leave out nodes without trips
            ranks = [plan.tree.compute_first_ranks(one.children) for one in plan.tree.expand(parents)]
            numbers = np.concatenate([np.zeros(0, dtype=np.int64), *ranks])
            each = len(values) // max(1, len(numbers))
            nodes = (numbers[:, np.newaxis] * each + np.arange(each)).ravel()
        elif row["kind"] == "boxes":
            flat = values.reshape(-1, draw_noisy.args[0].grid.values_per_box)
            values, nodes, boxes = flat[:, -1], np.arange(len(flat)), flat[:, :-1].tolist()
        seen[step] = pd.Series(values, nodes), boxes
        if of_other is not None and isinstance(step, NumberStep):
            return NoisyVector.from_arrays([of_other[step][0].to_numpy()])
        return noisy

    [*_, key] = keys_of(row)
    given = {"fault_threshold": 1} if row["total"] == "records may be left out" else {}
    with TemporaryDirectory() as folder, without_noise(), patch.object(DurableMeasurements, "draw_once", look):
        ledger = Ledger(Path(folder) / "ledger.sqlite")
        ledger.declare(domain_of(row))
        with patch.object(Records, "of", lambda *_: records):
            draw(row, key, ledger, Records(), **given)
    return seen


def neighbouring(row: Row, chance: np.random.Generator) -> tuple[Any, Any]:
    """Return two random neighbouring inputs."""
    table = Records().of(row)
    is_bounded = row["neighbours"] == "bounded"
    if row["kind"] == "group sizes":
        loses, gains = chance.permutation(len(table))[:2]
        if chance.random() < 0.5:
            loses = table["size"].argmax()
        before, after = table.copy(), table.copy()
        before.loc[loses, "size"] += 1
        after.loc[gains, "size"] += is_bounded
        return before, after
    if row["kind"] == "boxes":
        others, (one, another) = table[:OTHERS], chance.integers(0, 8, (2, 1, table.shape[1]))
        return np.vstack([others, one]), np.vstack([others, another]) if is_bounded else others
    others = table.head(OTHERS)
    one, another = (_records_of_unit(row, table, user, chance) for user in ("u998", "u999"))
    inputs = [pd.concat([others, own]) if len(own) else others for own in (one, another)]
    return inputs[0], inputs[1] if is_bounded else others


def _records_of_unit(row: Row, table: pd.DataFrame, user: str, chance: np.random.Generator) -> pd.DataFrame:
    """Return random records of one unit, of zones and categories that are next to each other in order.

    A user may have none. Each column has one value alone as often as not.
    """
    number = chance.integers(MOST_RECORDS + 1) if "user" in table else 1
    leaves = row["total"] == "records may be left out"
    are_alike, columns = chance.random() < 0.5, dict[str, Any]()
    for name in map(str, table):
        pool = [*(["nowhere"] if leaves and name in ("origin", "area") else []), *sorted(table[name].unique())]
        first, is_one = chance.integers(len(pool)), are_alike or chance.random() < 0.5
        columns[name] = chance.choice(pool[first:][: 1 if is_one else None], number)
    given = {"user": user, "weight": 4} if are_alike else {"user": user}  # one more than the largest weight
    records = pd.DataFrame(columns | {name: value for name, value in given.items() if name in table})
    return with_possible_pairs(row, records)


def _name(row: Row, step: Step) -> str:
    """Return the kind of a step."""
    if row["kind"] == "boxes":
        return "boxes"
    if isinstance(step, UncountedStep):
        return "uncounted"
    if isinstance(step, AreaTotalStep):
        return "area totals"
    if isinstance(step, NumberStep):
        return "numbers of groups"
    if step.by_segment:
        return "segments"
    is_top = step.level == 0
    return ("largest size" if is_top else "levels") if row["kind"] == "group sizes" else ("root" if is_top else "below")


def ratio_of(step: Step, change: pd.Series) -> float:
    """Return the ratio of a change to the sensitivity of the noise of a step."""
    facts = step.noise_facts
    if "sensitivity" in facts:
        return float(change.abs().sum() / facts["sensitivity"])
    return sqrt((change**2).sum() / facts["sensitivity_squared"])


def audit(rows: Mapping[str, Row], tries: int, say: Callable[[str], object] = lambda _: None) -> tuple[Ratios, int]:
    """Return the largest ratios of some rows, and the number of comparisons.

    Boxes that an input alone has cut differently are not compared: what they cost is proven of the noise of the cuts.
    """
    found: Ratios = {}
    compared = 0
    for number, (name, row) in enumerate(rows.items()):
        chance = np.random.default_rng([5, number])
        for _ in range(tries):
            first, second = neighbouring(row, chance)
            one = measured(row, first)
            other = measured(row, second, one)
            assert one.keys() == other.keys(), name
            for step, (before, boxes) in one.items():
                after, other_boxes = other[step]
                if boxes != other_boxes:
                    continue
                compared += 1
                ratio = ratio_of(step, before.sub(after, fill_value=0))
                units = found.setdefault((row["kind"], _name(row, step)), {}).setdefault(row["unit"], {})
                units[row["neighbours"]] = max(ratio, units.get(row["neighbours"], 0.0))
                if ratio > 1 + 1e-9:
                    say(f"{name}: step {step.number} changes by {ratio:.3f} times its sensitivity")
    return found, compared


def table_of(found: Ratios) -> str:
    """Return a table of the largest ratios, bounded and unbounded, by kind of step and by unit."""
    lines = [["kind", "step", *OPTIONS["unit"]], ["---"] * (2 + len(OPTIONS["unit"]))]
    for kind, step in sorted(found, key=lambda one: (list(OPTIONS["kind"]).index(one[0]), one[1])):
        cells = [found[kind, step].get(unit, {}) for unit in OPTIONS["unit"]]
        both = (", ".join(f"{each[name]:.2f}" for name in OPTIONS["neighbours"] if name in each) for each in cells)
        lines.append([kind, step, *both])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> int:
    """Print the table, and return 1 if a ratio is above 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.matrix.audit", description=__doc__)
    parser.add_argument("--tries", type=int, default=TRIES, help="pairs of inputs for each row")
    parser.add_argument("--only", default="", metavar="TEXT", help="rows whose name has this text")
    given = parser.parse_args()
    rows = {name: row for name, row in stored_rows(refused=False).items() if given.only in name}
    faults = list[str]()
    found, compared = audit(rows, given.tries, faults.append)
    sys.stdout.write(f"{table_of(found)}\n\n{compared:,} changes of {len(rows)} rows compared\n")
    sys.stdout.writelines(f"{fault}\n" for fault in dict.fromkeys(faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
