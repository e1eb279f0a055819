"""Say which options of a plan or a declaration can be combined, from the table ``support.yaml``.

Every option is a feature, which has a name. The table refuses what a kind of release cannot do, or has no effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

import yaml

from od_core.errors import OdError

ON_REQUEST_FORMAT = "sdmx"
"""Format that a bundle has only if it is asked for, because few readers need it."""


@dataclass(frozen=True)
class Refusal:
    """A combination of features that a kind of release refuses.

    Attributes:
        kind: name of the kind.
        features: names of the features that a refused release has together.
        needs: names of features with any of which the release is not refused; may be empty.
        code, reason, next_step: code, message and advice of the error.
    """

    kind: str
    features: frozenset[str]
    needs: frozenset[str]
    code: str
    reason: str
    next_step: str

    def applies_to(self, features: Set[str]) -> bool:
        """Return whether a release of this kind with the given features is refused."""
        return self.features <= features and self.needs.isdisjoint(features)


@dataclass(frozen=True)
class Support:
    """The table ``support.yaml``: the kinds of releases, their features, and the combinations that are refused.

    Attributes:
        kinds: words for each kind of release, by its name.
        groups: words for each feature, by the name of its group and its own name.
        refusals: the refused combinations, each for one kind, in the order in which they are checked.
    """

    kinds: Mapping[str, str]
    groups: Mapping[str, Mapping[str, str]]
    refusals: tuple[Refusal, ...]

    @cached_property
    def by_kind(self) -> dict[str, list[Refusal]]:
        """The refused combinations of each kind."""
        return {kind: [row for row in self.refusals if row.kind == kind] for kind in self.kinds}

    @property
    def features(self) -> dict[str, str]:
        """Words for each feature, by its name."""
        return {name: words for group in self.groups.values() for name, words in group.items()}


@cache
def read_support() -> Support:
    """Return the table ``support.yaml``, which is read at the first call."""
    text = files("od_core.meaning").joinpath("support.yaml").read_text(encoding="utf-8")
    data = yaml.load(text, Loader=yaml.CSafeLoader)  # the loader is safe
    without_refusals = Support(data["kinds"], data["features"], ())
    refusals: list[Refusal] = []
    for row in data["refused"]:
        refusals += _iterate_refusals(row, without_refusals)
    return replace(without_refusals, refusals=tuple(refusals))


def _iterate_refusals(row: Mapping[str, Any], words_of: Support) -> Iterator[Refusal]:
    """Yield the refusals of a row of ``support.yaml``: one for each of its kinds and of its alternative features.

    ``words_of`` has the words for kinds and features, which replace ``{kind}`` and ``{feature}`` in the row's texts.
    """
    for kind in row["kinds"]:
        for feature in row.get("one_of", ("",)):
            words = {"kind": words_of.kinds[kind], "feature": words_of.features.get(feature, "")}
            features = {*row.get("features", ())}
            if feature:
                features.add(feature)
            yield Refusal(
                kind,
                frozenset(features),
                frozenset(row.get("needs", ())),
                row["code"],
                row["reason"].format(**words),
                row["next"].format(**words),
            )


def list_given_options(**options: object) -> frozenset[str]:
    """Return the names of the options that are given: not None, False or empty.

    >>> sorted(list_given_options(bands=None, segments={"mode": ["car"]}, intervals=True))
    ['intervals', 'segments']
    """
    return frozenset(name for name, value in options.items() if value)


def refuse_unsupported(kind: str, features: Set[str], name: str = "") -> None:
    """Raise the OdError of the first row of the table that refuses a release of a kind with the given features.

    ``name`` is the name of the release, with which the message begins; "" if it need not be named.
    """
    for refusal in read_support().by_kind[kind]:
        if refusal.applies_to(features):
            message = ": ".join([name, refusal.reason] if name else [refusal.reason])
            raise OdError(refusal.code, message, next_step=refusal.next_step)


def list_possible_formats(kind: str, features: Set[str]) -> tuple[str, ...]:
    """Return the formats, beside Parquet, that the bundle of a release with the given features can have."""
    support = read_support()

    def is_possible(name: str) -> bool:
        """Return whether no refusal of this format applies."""
        with_format = {*features, name}
        return not any(name in row.features and row.applies_to(with_format) for row in support.by_kind[kind])

    return tuple(filter(is_possible, support.groups["formats"]))


def list_usual_formats(kind: str, features: Set[str]) -> tuple[str, ...]:
    """Return the default formats of a bundle: all that it can have except ``ON_REQUEST_FORMAT``."""
    return tuple(name for name in list_possible_formats(kind, features) if name != ON_REQUEST_FORMAT)
