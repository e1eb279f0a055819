"""The options of a release as data, and rows of them that hold every valid pair of values.

``rows.tsv`` has the rows, so that names of rows stay, and texts of two checkouts can be compared. After a change of
``OPTIONS``, make it again:

    python -m tests.matrix.options
"""

import random
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from itertools import combinations, product
from pathlib import Path

Row = Mapping[str, str]
Chosen = frozenset[tuple[str, str]]
"""A few options with their values, such as a pair."""

ROWS = Path(__file__).with_name("rows.tsv")

FLOW_MECHANISMS = (
    *("inftda_refined", "inftda_refined auto", "inftda_refined shrunk", "inftda_refined laplace"),
    *("inftda", "tda_l2", "tda_linf"),
    "inftda_refined auto laplace",
)
MECHANISMS = {
    "flows": FLOW_MECHANISMS,
    "counts": FLOW_MECHANISMS,
    "group sizes": ("by default", "cumulative_dp", "sizes estimated top code"),
    "boxes": ("privtree", "daf_entropy"),
}

UNPUBLISHED = ("vanilla_gauss", "stability_histogram")
"""Mechanisms of flows and counts that serve for comparison: no release with them is charged or published."""

OPTIONS: dict[str, tuple[str, ...]] = {
    "kind": tuple(MECHANISMS),
    "mechanism": tuple(dict.fromkeys(name for names in MECHANISMS.values() for name in names)),
    "unit": ("trip", "weights", "user", "user pair", "user_period", "user_year pair", "user_year uncounted"),
    "neighbours": ("bounded", "unbounded"),
    "total": ("no record left out", "records may be left out"),
    "segments": ("none", "one", "two, one with unknown"),
    "area_totals": ("no", "yes"),
    "destinations": ("same", "other"),
    "zones": ("few", "many"),
    "tree": ("destination", "origin", "both"),
    "geography": ("codes", "names", "coordinates", "boundaries"),
    "intervals": ("yes", "no"),
    "formats": ("usual", "all", "none", "omx sdmx"),
    "words": ("none", "journeys", "flights"),
    "period": ("month", "week", "day"),
    "series": ("one", "two", "and another series"),
    "pairs": ("all", "some"),
    "groups": ("public", "measured"),
}
"""The first value of each option is the usual one.

``words`` is the publisher's own word for what is counted. Of ``series``, ``two`` has an earlier period, too. Of
``pairs``, ``some`` are those that can have trips. ``groups`` are the numbers of groups.
"""

ONLY_OF: dict[tuple[str, str], tuple[str, ...]] = {
    **{("segments", value): ("flows", "counts") for value in OPTIONS["segments"][1:]},
    **{("geography", value): ("flows", "counts", "group sizes") for value in ("names", "boundaries")},
    ("area_totals", "yes"): ("flows",),
    ("pairs", "some"): ("flows",),
    ("groups", "measured"): ("group sizes",),
    ("series", "and another series"): ("flows", "counts"),
    ("destinations", "other"): ("flows",),
    **{("tree", value): ("flows",) for value in OPTIONS["tree"][1:]},
    ("total", "records may be left out"): ("flows", "counts"),
}
"""Values that only some kinds have: others take no such argument. Boxes with coordinates are boxes on a map."""


TOGETHER = (
    {"kind": "flows", "unit": "trip", "neighbours": "bounded", "series": "and another series"},
    {"kind": "flows", "zones": "many", "series": "two", "mechanism": "inftda_refined auto", "words": "journeys"},
    {"kind": "flows", "zones": "many", "series": "two", "unit": "weights", "geography": "coordinates"},
    {"kind": "flows", "mechanism": "inftda_refined laplace", "tree": "both", "segments": "one", "series": "two"},
    {
        **{"kind": "flows", "mechanism": "inftda_refined auto laplace", "tree": "both", "unit": "user"},
        **{"segments": "two, one with unknown", "area_totals": "yes", "formats": "all", "geography": "boundaries"},
    },
    {"kind": "counts", "mechanism": "inftda_refined laplace", "segments": "two, one with unknown"},
    {"kind": "flows", "pairs": "some", "unit": "user", "neighbours": "unbounded", "series": "two"},
    {
        **{"kind": "flows", "pairs": "some", "mechanism": "inftda_refined auto laplace", "tree": "both"},
        **{"segments": "one", "destinations": "other", "words": "journeys", "geography": "boundaries"},
    },
    {
        **{"kind": "flows", "pairs": "some", "mechanism": "inftda_refined auto", "tree": "both", "area_totals": "yes"},
        **{"segments": "one", "neighbours": "unbounded", "zones": "many", "series": "two", "words": "flights"},
    },
    {
        **{"kind": "group sizes", "groups": "measured", "mechanism": "cumulative_dp", "neighbours": "unbounded"},
        **{"intervals": "no", "series": "two", "words": "flights", "geography": "names"},
    },
    {
        **{"kind": "group sizes", "groups": "measured", "mechanism": "sizes estimated top code", "intervals": "no"},
        **{"formats": "none", "geography": "boundaries"},
    },
)
"""Values that a row has together although they are more than a pair. In the first, two series of a site count the same
records, and one of them publishes the total exactly; in the next two, assisted flows learn, which takes many zones. In
the next three, segments have Laplace noise, which flows have with one order of the tree alone. In the next three, some
pairs cannot have trips, and in the last two, the numbers of groups are measured."""

ONLY_TOGETHER = ("zones", "pairs", "groups")
"""Options whose other values only the rows of ``TOGETHER`` have: many zones take long."""


def is_expressible(row: Row) -> bool:
    """Return whether a release can be asked for, which is another question than whether it is refused."""
    kind = row.get("kind")
    if kind is None or row.get("mechanism", MECHANISMS[kind][0]) not in MECHANISMS[kind]:
        return kind is None
    return all(kind in kinds for (name, value), kinds in ONLY_OF.items() if row.get(name) == value)


def usual(chosen: Chosen) -> dict[str, str]:
    """Return a row with the given values, and otherwise the usual ones."""
    given = dict(chosen)
    if "mechanism" in given and "kind" not in given:
        given["kind"] = next(kind for kind, names in MECHANISMS.items() if given["mechanism"] in names)
    row = {name: values[0] for name, values in OPTIONS.items()} | given
    return row if "mechanism" in given else row | {"mechanism": MECHANISMS[row["kind"]][0]}


def all_combinations(strength: int) -> Iterator[Chosen]:
    """Yield every combination of values of some options that can be expressed."""
    for names in combinations([name for name in OPTIONS if name not in ONLY_TOGETHER], strength):
        for values in product(*(OPTIONS[name] for name in names)):
            chosen = frozenset(zip(names, values, strict=True))
            if is_expressible(usual(chosen)):
                yield chosen


def covering_rows(
    valid: Callable[[Row], bool], wanted: Iterable[Chosen], refused: Container[Chosen] = (), seed: int = 1
) -> tuple[list[dict[str, str]], list[Chosen]]:
    """Return valid rows that hold every wanted combination of values, and the combinations for which none is found.

    Each row begins with a combination that is missing, and takes option after option, in random order, the value that
    adds most of the missing ones; of some rows of this kind, the one that holds most is taken. ``refused`` are pairs
    that no valid row has.
    """
    chance = random.Random(seed)  # noqa: S311  # no secret
    missing, rows, without = dict.fromkeys(wanted), list[dict[str, str]](), list[Chosen]()
    while missing:
        start = next(iter(missing))
        tries = (_filled(dict(start), missing, refused, chance) for _ in range(12))
        found = [row for row in (*tries, usual(start)) if row and is_expressible(row) and valid(row)]
        if not found:
            without.append(start)
            del missing[start]
            continue
        rows.append(max(found, key=lambda row: len(held(row, missing))))
        for one in held(rows[-1], missing):
            del missing[one]
    return rows, without


def held(row: Row, wanted: Iterable[Chosen]) -> list[Chosen]:
    """Return which of some combinations a row has."""
    items = frozenset(row.items())
    return [one for one in wanted if one <= items]


def _filled(
    row: dict[str, str], missing: Iterable[Chosen], refused: Container[Chosen], chance: random.Random
) -> dict[str, str] | None:
    """Return a row that goes on from some values; None if one of its options has no value that fits the others."""
    row |= {name: OPTIONS[name][0] for name in ONLY_TOGETHER}
    names = [name for name in OPTIONS if name not in row]
    for name in sorted(names, key=lambda name: (name != "kind", chance.random())):
        gains = dict[str, float]()
        for value in OPTIONS[name]:
            extended = row | {name: value}
            pairs = [frozenset({(name, value), other}) for other in row.items()]
            if is_expressible(extended) and not any(pair in refused for pair in pairs):
                gains[value] = len(held(extended, missing)) + chance.random()
        if not gains:
            return None
        row[name] = max(gains, key=lambda value: gains[value])
    return row


def valid_rows(valid: Callable[[Row], bool]) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Return rows that hold every valid pair, and a row for each pair that is refused with whatever else.

    A few rows follow that no pair asks for: those of ``TOGETHER`` and of ``UNPUBLISHED``.
    """
    pairs = [*all_combinations(2)]
    doubtful = [pair for pair in pairs if not valid(usual(pair))]
    refused = covering_rows(valid, doubtful)[1]
    wanted = sorted({*pairs}.difference(refused), key=lambda pair: (*sorted(pair),))
    rows, others = covering_rows(valid, wanted, {*refused})
    rows += [usual(frozenset(chosen.items())) for chosen in TOGETHER]
    unpublished = [
        frozenset({("kind", kind), ("mechanism", name), ("intervals", "no")})
        for kind in ("flows", "counts")
        for name in UNPUBLISHED
    ]
    return rows, [*map(usual, [*refused, *others, *unpublished])]


def stored_rows(refused: bool) -> dict[str, dict[str, str]]:
    """Return the rows of ``rows.tsv`` by their names, the refused ones or the valid ones."""
    header, *lines = (line.split("\t") for line in ROWS.read_text(encoding="utf-8").splitlines())
    rows = {name: dict(zip(header[1:], values, strict=True)) for name, *values in lines}
    return {name: row for name, row in rows.items() if name.startswith("refused") == refused}


def name_of(number: int, row: Row) -> str:
    """Return the name of a row, which begins with its number."""
    return f"{number:02}-{'-'.join(row[name].replace(' ', '_') for name in ('kind', 'unit', 'mechanism'))}"


def main() -> None:
    """Make ``rows.tsv`` again."""
    from tests.matrix.declared import refusal

    rows, refused = valid_rows(lambda row: refusal(row) is None)
    lines = [("row", *OPTIONS)]
    lines += [(name_of(k, row), *(row[name] for name in OPTIONS)) for k, row in enumerate(rows, start=1)]
    distinct = {tuple(row[name] for name in OPTIONS): None for row in refused}
    lines += [(f"refused-{k:02}", *values) for k, values in enumerate(distinct, start=1)]
    ROWS.write_text("".join("\t".join(line) + "\n" for line in lines), encoding="utf-8")
    sys.stdout.write(f"{len(rows)} rows, {len(distinct)} refused rows\n")


if __name__ == "__main__":
    main()
