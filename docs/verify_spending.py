"""Recompute what every release has spent, from the ledger and the certificates alone.

Run ``python3 verify_spending.py var/ledger.sqlite var/releases``. This second verifier needs Python 3.11 alone and
shares no code with od-release. It computes in fractions, and in decimals rounded against the release. It exits with 1
if it finds a fault. ``od-release verify`` rebuilds the tables from the draws. Keys in brackets: see references.bib.
"""

from __future__ import annotations

import datetime
import decimal
import hashlib
import json
import math
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

Facts = dict[str, Any]
ZERO, LN_2, UNIT = Fraction(0), Fraction("0.6931471806"), 10**30
HAIR, EXACT, UP = Decimal(10) ** -50, decimal.Context(prec=60), decimal.Context(6, decimal.ROUND_CEILING).divide
LENGTHS = {"day": 10, "week": 8, "quarter": 7, "month": 7, "year": 4}


def ledger_entries(path: Path) -> list[Facts]:
    """Return all entries, oldest first, with their content as ``facts``. Nothing is written, not even by SQLite."""
    alone = "" if Path(f"{path}-wal").exists() else "&immutable=1"
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro{alone}", uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        rows = connection.execute("SELECT * FROM entries ORDER BY number")
        return [{**row, "row": {**row}, "facts": json.loads(row["content"])} for row in rows]


def chain_faults(entries: list[Facts]) -> Iterator[str]:
    """Check that hashes form a chain, draws are charged first and made once, and releases are measured first."""
    previous, states = "", dict[str, dict[int, tuple[str, int]]]()
    before = {"RESERVED": ("", "DRAWING"), "DRAWING": ("RESERVED",), "MEASURED": ("DRAWING",)}
    for number, entry in enumerate(entries, start=1):
        text = json.dumps({name: value for name, value in entry["row"].items() if name != "hash"}, sort_keys=True)
        own = hashlib.sha256(text.encode()).hexdigest()
        if (entry["number"], entry["previous"], entry["hash"]) != (number, previous, own):
            yield f"entry {entry['number']}: the chain of hashes is broken"
        previous, kind, levels = entry["hash"], entry["kind"], states.setdefault(entry["release"], {})
        onward = "store" in entry["facts"] and levels.get(entry["level"]) == (kind, entry["draw"])  # of parts
        if kind in before and not onward:
            last, draw = levels.get(entry["level"], ("", 0))
            if last not in before[kind] or entry["draw"] != draw + (kind == "RESERVED"):
                yield f"entry {entry['number']}: {kind} after {last or 'nothing'}, a draw that has no charge of its own"
            levels[entry["level"]] = kind, entry["draw"]
        elif kind == "PUBLISHED":
            if not levels or {last for last, _ in levels.values()} != {"MEASURED"}:
                yield f"entry {entry['number']}: {entry['release']} was published twice, or before it was measured"
            states[entry["release"]] = {0: ("PUBLISHED", 0)}


def cost(entry: Facts) -> tuple[Fraction, ...]:
    """Return rho, epsilon and delta of one draw, from unit and noise alone, and the rho as which it adds up."""
    law, plan, delta = entry["facts"], entry["facts"]["plan"], ZERO
    most, sides = plan.get("contribution_bound", 1), 2 if plan["neighbours"] == "bounded" else 1
    if "variance" in law:  # a replaced record leaves one cell and enters another; only the total root has one cell
        cells = sides if entry["level"] or "breakdown" in law or plan["unit"] == "user_year" else 1
        squares = most_squares(plan, law["node_sizes"], most) if "node_sizes" in law else most**2
        squares, cells = (law["max_uncounted"] ** 2, 1) if "max_uncounted" in law else (squares, cells)  # one number
        return (rho := squares * cells / (2 * Fraction(law["variance"]))), ZERO, ZERO, rho
    if "scale" in law:  # the root, and the largest size of all groups, is one number
        scale, sensitivity = Fraction(law["scale"]), sides * most * {"histogram": 2}.get(plan.get("query"), 1)
        epsilon = (sensitivity if entry["level"] else most) / scale
        with decimal.localcontext(EXACT):
            for trips in (1, most) if "threshold" in law else ():  # all on one pair, or one on each of ``most``
                reach, a = law["threshold"] - trips, (-1 / real(scale)).exp()
                below = 1 - a**reach / (1 + a) if reach >= 1 else a ** (1 - reach) / (1 + a)
                delta = max(delta, Fraction(entry["delta"]), Fraction(1 - below ** (most // trips) - HAIR))
    else:  # noise on every path of a tree of boxes (explanation/stops.md); a choice compares scores that change by 2
        scales = {name.removeprefix("scale_of_"): Fraction(text) for name, text in law.items() if "scale_of_" in name}
        epsilon = sum(({"splits": 0, "root_choice": 4}.get(name, 1) * sides / s for name, s in scales.items()), ZERO)
        if "splits" in scales:
            with decimal.localcontext(EXACT):
                a, decay = (-1 / real(scales["splits"])).exp(), math.ceil(scales["splits"] * LN_2)
                steps = sum(((1 + a - a ** (x + 1)) / (1 + a - a**x)).ln() for x in range(decay, 60 * decay, decay))
                epsilon += Fraction((sides + 1) / real(scales["splits"]) + steps - HAIR)
        epsilon = max(Fraction(plan["epsilon"]), epsilon)
    return ZERO, epsilon, delta, epsilon**2 / 2  # [bun2016concentrated, Proposition 1.4]


def most_squares(plan: Facts, node_sizes: list[list[int]], trips: int) -> int:
    """Return the largest sum of squares of a user's trips at a level: the nodes that can hold most are filled first."""
    squares, left = 0, trips
    for pairs, nodes in node_sizes:
        for _ in range(nodes):
            own = min(left, plan["max_trips_pair"] * pairs)
            squares, left = squares + own**2, left - own
    return squares


def charge_faults(entries: list[Facts]) -> Iterator[str]:
    """Check that every charge is the cost of its noise and was planned, and that every planned level is charged."""
    planned: dict[str, list[Facts]] = {}
    for entry in (entry for entry in entries if entry["kind"] == "RESERVED"):
        steps = planned.setdefault(entry["release"], [*entry["facts"]["plan"]["steps"]])
        own = {**entry, **entry["facts"]}  # numbers of levels by breakdowns follow on those of the levels of all trips
        depth = max(step["level"] for step in own["plan"]["steps"] if "area_totals" not in step)
        own["level"] = own["level"] % (1 + depth) + depth * ("area_totals" in own)  # so do those of area totals
        if entry["draw"] == 1 and (not steps or any(str(own[key]) != str(fact) for key, fact in steps.pop(0).items())):
            yield f"entry {entry['number']}: the plan of {entry['release']} has another level or noise here"
        stated = tuple(Fraction(entry[name]) for name in ("rho", "epsilon", "delta"))
        if cost(entry)[:3] != stated:
            amounts = "; it costs ".join(", ".join(map(str, each)) for each in (stated, cost(entry)[:3]))
            yield f"entry {entry['number']}: {entry['release']} was charged rho, epsilon and delta {amounts}"
    yield from (f"{release}: a planned level was never charged" for release, steps in planned.items() if steps)


def cap_faults(entries: list[Facts]) -> Iterator[str]:
    """Check that after every charge, each of its elementary periods, or its year, is within the cap of that moment."""
    domains, caps = dict[str, Facts](), dict[str, dict[str, Fraction]]()
    spent: dict[tuple[str, str], tuple[Facts, Fraction, Fraction]] = {}
    pure: dict[tuple[str, str], Fraction | float] = {}  # sums of epsilons; infinite where a charge is not pure
    by_trips: dict[tuple[str, str], dict[str, tuple[list[Fraction], list[Fraction]]]] = {}
    for entry in entries:
        domain, facts, name = entry["domain"], entry["facts"], f"entry {entry['number']}"
        if entry["kind"] == "DOMAIN" and domains.setdefault(domain, facts) != facts:
            yield f"{name}: the data set {domain} is declared again, as another"
        elif entry["kind"] == "CAP":
            caps[domain] = {key: Fraction(facts[key]) for key in ("rho", "epsilon", "delta") if key in facts}
        elif entry["kind"] == "RESERVED":
            unit, plan, (_, epsilon, own_delta, own_rho) = domains[domain], facts["plan"], cost(entry)
            stated = {**plan, "max_trips": plan.get("contribution_bound")}
            if any(fact != stated.get(key, fact) for key, fact in unit.items()):
                yield f"{name}: the release protects another unit than its data set"
            periods, period = facts["periods"], entry["release"].split("/")[1]
            if periods != ["all"] if unit["unit"] == "user" else not right_periods(periods, period, unit):
                yield f"{name}: {entry['release']} is charged to other periods than its own"
            for period in periods:
                each, _, delta = spent.get(year := (domain, year_of(period, unit)), (Counter(), ZERO, ZERO))
                each["uncounted" if "max_uncounted" in facts else period] += own_rho  # these add up in full
                costly = sorted((each[one] for one in each.keys() - {"uncounted"}), reverse=True)
                m = unit.get("max_trips", 1)
                whole, rest = divmod(unit.get("max_trips_year", m), m)  # without years, one period by itself
                rho = sum(costly[:whole], ZERO) + Fraction(rest, m) ** 2 * sum(costly[whole : whole + 1], ZERO)
                if "max_trips_pair" in unit:  # what a user's trips cost is then neither their square nor convex
                    own = by_trips.setdefault(year, {})
                    if "max_uncounted" not in facts:
                        squares = [most_squares(plan, facts["node_sizes"], trips) for trips in range(1, m + 1)]
                        added, (costs, _) = own_rho / squares[-1], own.get(period, ([ZERO] * m, []))
                        costs = [before + added * each for before, each in zip(costs, squares, strict=True)]
                        own[period] = costs, slopes_of(costs)
                    slopes = sorted((slope for _, each in own.values() for slope in each), reverse=True)
                    rho = sum(slopes[: unit["max_trips_year"]], ZERO)
                spent[year] = each, (rho := rho + each["uncounted"]), (delta := delta + own_delta)
                pure[year] = pure.get(year, ZERO) + (epsilon if epsilon and not own_delta else math.inf)
                cap, left = caps[domain], caps[domain].get("delta", ZERO) - delta
                fits = rho <= cap.get("rho", ZERO) and not delta
                if "epsilon" in cap:
                    fits = pure[year] <= cap["epsilon"] or (left > 0 and epsilons(rho, left)[0] <= cap["epsilon"])
                if not fits:
                    yield f"{name}: the cap of {domain} in {year[1]} is exceeded"
    for (name, part), (_, rho, delta) in spent.items():
        told = ", ".join(f"{kind} {float(value):.6g}" for kind, value in caps[name].items())
        if pure[name, part] < math.inf:
            told += f", of which epsilon {float(pure[name, part]):.6g} is spent"
        print(f"{name} {part}: spent rho {UP(*rho.as_integer_ratio()):g}, delta {float(delta):.3g}; the cap is {told}")


def slopes_of(costs: list[Fraction]) -> list[Fraction]:
    """Return what each further trip of a period adds at most: no number of trips costs more than the sum of its own."""
    slopes, at, points = list[Fraction](), 0, [ZERO, *costs]
    while at < len(costs):  # the steepest line from where the last one ends is above all costs
        steepest, end = max(((points[k] - points[at]) / (k - at), k) for k in range(at + 1, len(points)))
        slopes, at = slopes + [steepest] * (end - at), end
    return slopes


def year_of(period: str, domain: Facts) -> str:
    """Return the year that an elementary period belongs to, or the period itself if the domain has no years."""
    if domain.get("year", "calendar") == "calendar":
        return period[:4] if "year" in domain else period
    dates = *days(domain["year"]), days(period)[0]
    first, end, own = ((12 * day.year + day.month, day.toordinal())[len(period) > 7] for day in dates)
    return f"{domain['year']} {(own - first) // (end - first):+d}"


def right_periods(charged: list[str], period: str, domain: Facts) -> bool:
    """Return whether these are the elementary periods that make up a period."""
    ends, length = [end for text in charged for end in days(text)], domain["elementary_period"]
    form = all(len(text) == LENGTHS[length] and ("Q" in text) == (length == "quarter") for text in charged)
    return form and (ends[:1] + ends[-1:], ends[1:-1:2]) == ([*days(period)], ends[2::2])


def days(text: str) -> tuple[datetime.date, datetime.date]:
    """Return a period's first day and the day after it: 2001-06-30, 2001-W23, 2001-06, 2001-Q2, 2001, or a--b."""
    if "--" in text:
        return days(text.split("--")[0])[0], days(text.split("--")[1])[1]
    if len(text) in (8, 10):
        first = datetime.date.fromisoformat(text)
        return first, first + datetime.timedelta(1 if len(text) == 10 else 7)
    months = 12 if len(text) == 4 else 3 if "Q" in text else 1
    year, month = int(text[:4]), months * int(text[5:].strip("Q") or 1) - months
    return datetime.date(year, month + 1, 1), datetime.date(year + (month + months) // 12, (month + months) % 12 + 1, 1)


def certificate_faults(entries: list[Facts], certificates: dict[str, Facts]) -> Iterator[str]:
    """Check that every certificate is the published one, and claims no less than was spent. Sums cost nothing."""
    published = {entry["release"]: entry["facts"] for entry in entries if entry["kind"] == "PUBLISHED"}
    withdrawn = {entry["release"] for entry in entries if entry["kind"] == "WITHDRAWN"}
    published = {name: facts for name, facts in published.items() if name in certificates or name not in withdrawn}
    yield from (f"{name} was published, and has no certificate" for name in published if name not in certificates)
    for name, facts in (one for one in certificates.items() if one[0] in published or "sources" not in one[1]):
        told = json.dumps({key: fact for key, fact in facts.items() if key != "software"}, sort_keys=True)
        if (known := published.get(name, {})).get("certificate") != hashlib.sha256(told.encode()).hexdigest():
            yield f"{name}: the ledger has no such certificate as published"
        if known.get("exact", {}) != facts.get("exact", {}):
            yield f"{name}: the ledger has other numbers that are published exactly"
        mine = [entry for entry in entries if entry["release"] == name]
        yield from (f"{name}: {fault}" for fault in claim_faults(name, facts, mine))


def claim_faults(name: str, facts: Facts, entries: list[Facts]) -> Iterator[str]:
    """Compare the claims of a certificate with the entries of its release."""
    paid = [entry for entry in entries if entry["kind"] == "RESERVED"]
    *_, last = (entry for entry in entries if entry["kind"] == "MEASURED")
    plan, spent, m = facts["plan"], facts["spent"], facts["plan"].get("contribution_bound", 1)
    own = plan["unit"], plan["neighbours"], m, facts["data_set"], name
    stated = tuple(facts[key] for key in ("unit", "neighbours", "contribution_bound", "data_set", "release"))
    if own != stated or any((entry["facts"]["plan"], entry["domain"]) != (plan, own[3]) for entry in paid):
        yield "it was charged to another data set, or by another plan"
    if facts["ledger"] != {"entry": last["number"], "hash": last["hash"]}:
        yield "the ledger lacks the entry that the certificate names: it is older, or was written anew"
    moves_by_one = plan["unit"] == "trip" and "max_weight" not in plan
    rules, lists = plan.get("acceptance", {}), plan.get("segments", {}).get("breakdowns", [])
    unlisted = {plan.get("origin_unknown_zone"), plan.get("destination_unknown_zone"), *(a["unknown"] for a in lists)}
    may_leave = rules.get("has_categories") or (rules.get("fault_threshold") != "0" and None in unlisted)
    if facts.get("exact") and (may_leave or not moves_by_one or plan["neighbours"] != "bounded"):
        yield "a number is published exactly that a record may change"
    by_level = [sum(cost(e)[3] for e in paid if e["level"] == n) for n in dict.fromkeys(e["level"] for e in paid)]
    rho, epsilon = sum(by_level, ZERO), sum((cost(entry)[1] for entry in paid), ZERO)
    once = [cost(entry)[3] for entry in paid if entry["draw"] == 1]
    sums = {"rho_exact": str(rho), "rho_planned_exact": str(sum(once, ZERO)), "lost_draws": len(paid) - len(once)}
    sums["rho_by_level_exact"] = list(map(str, by_level))
    yield from (f"its {key} is {spent[key]}, and not {value}" for key, value in sums.items() if spent[key] != value)
    least = {"epsilon": epsilon, "delta": sum((cost(entry)[2] for entry in paid), ZERO), "rho": rho}
    if not epsilon:
        delta = Fraction(plan["delta"])
        tight, other = epsilons(rho, delta)
        least |= {"delta": delta, "epsilon": min(tight, other), "epsilon_tight": tight, "epsilon_bun_steinke": other}
        if spent["epsilon_exact"] is not None:
            claim = Fraction(spent["epsilon_exact"])
            cells = tuple(sorted((v := Fraction(e["facts"]["variance"]), int(2 * v * cost(e)[0] / m**2)) for e in paid))
            kept = plan["unit"] != "user_year" and "max_trips_pair" not in plan and keeps_delta(cells, m, claim, delta)
            least["epsilon"] = min(least["epsilon"], claim)
            if kept is None:
                print(f"{name}: the noise is too wide for its exact privacy loss to be recomputed here")
            elif not kept:
                yield f"its epsilon_exact {float(claim)} is too low"
    yield from (f"its {key} {spent[key]} is too low" for key, value in least.items() if Fraction(spent[key]) < value)


def real(value: Fraction) -> Decimal:
    """Return a fraction as a decimal of 60 digits."""
    return Decimal(value.numerator) / Decimal(value.denominator)


@cache
def epsilons(rho: Fraction, delta: Fraction) -> tuple[Fraction, Fraction]:
    """Bound epsilon from above, given rho: by [canonne2020discrete, Proposition 12], and by [bun2016concentrated]."""
    with decimal.localcontext(EXACT):
        r, target = real(rho), -real(delta).ln()
        low, high = Decimal(0), (target / r).sqrt()
        for _ in range(150):  # alpha = 1 + u is optimal if rho u^2 + ln(1 + u) = ln(1 / delta)
            u = (low + high) / 2
            low, high = (u, high) if r * u * u + (1 + u).ln() < target else (low, u)
        tight = r * (1 + u) + (target + u * u.ln() - (1 + u) * (1 + u).ln()) / u
        return max(ZERO, Fraction(tight + HAIR)), Fraction(r + 2 * (r * target).sqrt() + HAIR)


@cache
def keeps_delta(levels: tuple[tuple[Fraction, int], ...], m: int, epsilon: Fraction, delta: Fraction) -> bool | None:
    """Return whether the exact privacy loss keeps delta at an epsilon; None if the noise is too wide to sum over.

    A cell that changes by m adds m X / v to the loss. A grid that keeps the mean of exp(-loss) can only raise delta.
    """
    cells = Counter(v for v, number in levels for _ in range(number))
    mean_square, first, masses = m * m * sum(k / v for v, k in cells.items()) / sum(cells.values()), 0, [UNIT]
    step = Fraction(1, math.ceil(128 / math.sqrt(mean_square)))
    step = max(step, m / min(cells)) if len(cells) == 1 else step  # losses of equal variances lie on a grid
    with decimal.localcontext(EXACT):
        size = real(step)
        for v in cells:
            reach = math.isqrt(math.ceil(144 * v)) + 1  # the mass beyond 12 sigma is below 10^-30
            if reach > 1_000_000:  # too many values to sum over
                return None
            weights = [(-Decimal(x * x) / (2 * real(v))).exp() for x in range(reach + 1)]
            total, begin = 2 * sum(weights) - 1, math.floor(-reach * m / (v * step))
            law = [0] * (2 - 2 * begin)
            for x in range(-reach, reach + 1):
                dot, mass = math.floor(x * m / (v * step)), weights[abs(x)] / total * UNIT
                upper = mass * (1 - (dot * size - real(x * m / v)).exp()) / (1 - (-size).exp())
                law[dot - begin] += int(mass - upper) + 1
                law[dot - begin + 1] += int(upper) + 1
            for _ in range(cells[v]):
                first, masses = first + begin, convolved(masses, law)
        least = real(epsilon - m * m * sum(k / (2 * v) for v, k in cells.items()))
        losses = ((dot * size - least, mass) for dot, mass in enumerate(masses, start=first))
        above = sum((mass * (1 - (-excess).exp()) for excess, mass in losses if excess > 0), Decimal(0))
        return above / UNIT + Decimal(sum(cells.values())) / UNIT <= real(delta)


def convolved(one: list[int], other: list[int]) -> list[int]:
    """Return the coefficients of a product of polynomials, read from the digits of one long product; rounded up."""
    width, size = 75, len(one) + len(other) - 1
    context = decimal.Context(prec=width * (size + 1), Emax=decimal.MAX_EMAX)
    factors = (Decimal("".join(f"{mass:0{width}d}" for mass in masses)) for masses in (one, other))
    digits = f"{context.multiply(*factors):f}".zfill(width * size)
    return [int(digits[k : k + width]) // UNIT + 1 for k in range(0, len(digits), width)]


def main(ledger: Path, releases: Path) -> int | str:
    """Print the findings, and return 0 if there is no fault, else 1; or what is missing. Hidden folders are ignored."""
    if not ledger.is_file():
        return f"There is no ledger {ledger}. If it is in PostgreSQL, copy it first: od-release ledger copy FILE"
    entries, files, faults = ledger_entries(ledger), sorted(releases.rglob("[!.]*/certificate.json")), list[str]()
    certificates = {str(file.parent.relative_to(releases)): json.loads(file.read_text("utf-8")) for file in files}
    try:
        for look in (chain_faults, charge_faults, cap_faults, lambda rows: certificate_faults(rows, certificates)):
            faults.extend(look(entries))
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:  # forged entry or certificate
        faults.append(f"an entry or a certificate lacks something, or holds what cannot be: {error!r}")
    recomputed = f"{len(entries)} entries of the ledger and {len(certificates)} certificates were recomputed"
    print(recomputed, *(f"FAULT: {fault}" for fault in faults), f"{len(faults)} faults", sep="\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])) if len(sys.argv) == 3 else __doc__)
