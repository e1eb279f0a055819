"""Write the certificate of derived flows: what they follow from, and what the releases together protect and spent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from od_core.flows.derived_flows import DerivedFlows
from od_core.flows.publishing.derived_kind import DerivedKind
from od_core.flows.publishing.derived_sources import Source
from od_core.flows.publishing.flow_files import BUNDLE_FORMAT
from od_core.flows.publishing.uncounted_facts import uncounted_facts
from od_core.flows.release import Release
from od_core.ledger.release_key import ReleaseKey
from od_core.privacy.accounting import float_above, text_above
from od_core.privacy.budget import Cap, SpentDirectly
from od_core.privacy.neighbours import change_of
from od_core.privacy.person_year import largest_rho
from od_core.privacy.posterior import Guarantee
from od_core.publication.certificate import KNOWN_LIMITATIONS, software_versions

_COPIED = (
    "data_set",
    "unit",
    "neighbours",
    "contribution_bound",
    "records",
    "geographies",
    "geography_versions",
    "repeated_levels",
)
"""Names of the fields that derived flows have from one of their releases."""


def derived_certificate(
    kind: DerivedKind[Any], key: ReleaseKey, flows: DerivedFlows, sources: Sequence[Source]
) -> dict[str, Any]:
    """Return the certificate of derived flows as a JSON-ready dictionary of public values.

    It states intervals if all releases state some. It follows from the bundles of the releases alone, so it is the same
    whenever it is made.
    """
    main, releases = sources[kind.main].certificate, [source.release for source in sources]
    exact, one, every = flows.exact_trips, _one_period(releases), _all_periods(sources)
    intervals = {source.certificate["interval"] for source in sources}
    trips = int(flows.leaves.trips.sum())
    uncounted = uncounted_facts(releases if kind.adds_up else [releases[kind.main]], trips)
    return {
        "format": kind.format,
        "bundle_format": BUNDLE_FORMAT,
        "release": str(key),
        "period": key.period,
        "revision": key.revision,
        "measured_at": max(source.certificate["measured_at"] for source in sources),
        **{name: main[name] for name in _COPIED},
        "sources": [source.facts() for source in sources],
        "guarantee": _guarantee(kind, sources, one, every) | _uncounted_sentence(uncounted),
        "spent": {
            "charged_rho_exact": "0",
            "rho_exact": str(sum((release.spent.rho for release in releases), start=Fraction(0))),
            "one_period": _facts(one),
            "all_periods": _facts(every),
        },
        **_loss_facts({"one_period": one, "all_periods": every}),
        **_account([source.certificate for source in sources]),
        "contents": {"flows": len(flows.leaves), "trips": trips},
        **kind.facts(flows),
        **uncounted,
        "interval": None if None in intervals else main["interval"],
        "exact": {} if exact is None else {"trips": exact},
        "invariants": [] if exact is None else [f"the total number of valid trips of {kind.total_of}"],
        "software": software_versions(),
        "known_limitations": list(KNOWN_LIMITATIONS),
    }


def _one_period(releases: Sequence[Release]) -> Guarantee:
    """Return a guarantee that holds for every change in the records of one of the periods."""
    every = [Guarantee.of(one.spent) for one in releases]
    rho, variances = [one.rho for one in every if one.rho is not None], {one.variances for one in every}
    return Guarantee(
        max(one.epsilon for one in every),
        max(one.delta for one in every),
        max(rho) if len(rho) == len(every) else None,
        variances.pop() if len(variances) == 1 else None,
    )


def _all_periods(sources: Sequence[Source]) -> Guarantee:
    """Return a guarantee that holds for changes in the records of all periods together.

    Rho adds up; under unit ``user_year``, as far as the trips of a user in a year allow. If the periods are of several
    years, a change concerns some of them only, so the same number is an upper bound. A mechanism that promises
    (epsilon, delta) directly has no rho; then epsilons and deltas add up.
    """
    unit, spent = sources[0].release.plan.unit, [source.release.spent for source in sources]
    if any(isinstance(one, SpentDirectly) for one in spent):
        epsilon, delta = (sum((getattr(one, name) for one in spent), Fraction(0)) for name in ("epsilon", "delta"))
        return Guarantee(epsilon, delta)
    delta = max(one.delta for one in spent)
    by_period: dict[str, Fraction] = {}
    for source, one in zip(sources, spent, strict=True):
        by_period[source.key.period] = by_period.get(source.key.period, Fraction(0)) + one.rho - one.every_period
    rho = sum(by_period.values(), Fraction(0))
    if unit.max_trips_year is not None:
        rho = largest_rho(by_period.values(), unit.contribution_bound, unit.max_trips_year)
    rho += sum((one.every_period for one in spent), Fraction(0))
    return Guarantee.of_rho(rho, delta)


def _facts(promise: Guarantee) -> dict[str, float]:
    return {"epsilon": float_above(promise.epsilon), "delta": float_above(promise.delta)}


def _loss_facts(promises: Mapping[str, Guarantee]) -> dict[str, Any]:
    """Return the field ``privacy_loss`` by its name; empty if no release has a rho."""
    found = {}
    for name, one in promises.items():
        if one.rho is not None:
            exact = {} if one.variances is None else {"variances": [str(each) for each in one.variances]}
            found[name] = {"rho_exact": str(one.rho), **exact}
    return {"privacy_loss": found} if found else {}


def _account(certificates: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the field ``account`` with the largest cap of the releases, by its name; empty if one states none."""
    stated = [one["account"] for one in certificates if "account" in one]
    if len(stated) < len(certificates):
        return {}
    return {"account": max(stated, key=lambda one: Cap.from_facts(one["cap"]).allowed_rho())}


def _in_words(promise: Guarantee) -> str:
    epsilon, delta = text_above(promise.epsilon), text_above(promise.delta)
    return f"({epsilon}, {delta})" if promise.delta else epsilon


def _guarantee(kind: DerivedKind[Any], sources: Sequence[Source], one: Guarantee, every: Guarantee) -> dict[str, str]:
    """Return sentences, by name, on what derived flows and their releases together protect. Numbers are rounded up."""
    unit, number = sources[0].release.plan.unit, len(sources)
    releases = f"{number} published release{'s' * (number > 1)}"
    change = change_of(unit)
    by_user = unit.spans_periods
    as_far = "" if unit.max_trips_year is None else ", as far as the trips of a user that a year counts allow"
    where = (
        f"The losses of all these releases add up{as_far}."
        if by_user
        else "The records of this change are of one of the periods, so the promise is that of the release of that"
        " period; the largest numbers of all releases are stated."
    )
    person = (
        "a person with several records as a whole (one with a single record in each of the periods:"
        f" {_in_words(every)}-differentially private)"
    )
    named = ["the periods themselves", *([] if by_user else [person]), "what the certificates of the releases name"]
    totals = _with_total(sources)
    stated: Mapping[str, str] = sources[kind.main].certificate["guarantee"]
    return {
        "protected": (
            f"These numbers are {kind.what} {releases} and follow from these alone: no record was read, no noise was"
            " drawn and no budget was spent for them, and they reveal nothing beyond those releases. Anyone who sees"
            " all of those releases and these numbers, even with knowledge of every other record, learns almost nothing"
            f" about whether {change}: together they are {_in_words(every if by_user else one)}-differentially"
            f" private for that change. {where}"
        ),
        "public": (
            "The following are public, without noise: the periods, the areas and all settings of the releases"
            f"{'; the total numbers of trips of ' if totals else ''}{', '.join(totals)}."
        ),
        "not_protected": (
            f"{'; '.join(named)}; what other releases from the same records reveal, beyond the cap of the privacy"
            " domain."
        ),
        "input": "The certificate of each release states which inputs it accepts.",
        **{name: stated[name] for name in ("contribution", "levels", "segments") if name in stated},
    }


def _uncounted_sentence(uncounted: Mapping[str, Any]) -> dict[str, str]:
    """Return the sentence of the guarantee on the number of uncounted trips, by its name; empty if it is not known."""
    if not uncounted:
        return {}
    sentence = (
        "The number of trips that are not counted because of the contribution bounds follows from the noisy numbers of"
        f" the releases. Of each user, at most {uncounted['uncounted']['max_trips']} trips of a release are considered."
    )
    return {"uncounted": sentence}


def _with_total(sources: Sequence[Source]) -> list[str]:
    """Return the keys of the releases whose total number of trips is published exactly, as text."""
    return [str(source.key) for source in sources if source.release.plan.publishes_total]
