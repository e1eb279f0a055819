"""Sentences that are true of some releases only: each with the condition under which a page may have it."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import shapely

from tests.matrix.checks_numbers import flows_of
from tests.matrix.findings import Finding
from tests.matrix.made import Made
from tests.matrix.pages import Page

Facts = Mapping[str, Any]
"""The certificate of the bundle that a page is about; that of the release for pages of the site and of the plan."""


class Sentence(NamedTuple):
    """A sentence, and when it is true.

    Attributes:
        pattern: pattern of the sentence.
        is_true: whether it is true of a certificate, and of what a row has published.
        pages: pattern of the names of the pages that are looked at.
    """

    pattern: str
    is_true: Callable[[Facts, Made], bool] = lambda facts, made: False
    pages: str = ""


def _has_faults(facts: Facts, made: Made) -> bool:
    return made.main.facts["fault_threshold"] != "0"


def _has_flows_with_intervals(facts: Facts, made: Made) -> bool:
    return any(bundle.facts.get("interval") and flows_of(bundle) for bundle in made.bundles.values())


def _has_looser_bounds(facts: Facts, made: Made) -> bool:
    spent = facts["spent"]
    epsilons = [one for name, one in spent.items() if name.startswith("epsilon") and isinstance(one, float)]
    return "epsilon" in spent and max(epsilons) > spent["epsilon"]


def _is_original(facts: Facts, made: Made) -> bool:
    """Whether every parameter is a pure epsilon: that of the release, and that of the cap."""
    is_gaussian = all("variance" in step for step in made.main.facts["plan"]["steps"])
    return not is_gaussian and "rho" not in facts.get("account", {}).get("cap", {})


def _is_sum(facts: Facts) -> bool:
    return "sources" in facts and "estimation" not in facts


SENTENCES = (
    Sentence("because they are faulty", _has_faults),
    Sentence("looser bounds|no tighter", _has_looser_bounds, "certificate.html"),
    Sentence("parameters are the original ones", _is_original),
    Sentence("with epsilon by each conversion", lambda facts, _: "epsilon_tight" in facts["spent"]),
    Sentence("the reports mark changes|A 0 has one", _has_flows_with_intervals, "index.html"),
    Sentence(
        r"their counts, and the keys|are never published\.|the true counts, and anything",
        lambda facts, made: not facts["exact"],
    ),
    Sentence("a person's own records change", lambda facts, made: facts["unit"].startswith("user")),
    Sentence(
        r"records are considered in it\.|one unit are considered\.", lambda facts, _: not _is_sum(facts), "notice|nist"
    ),
    Sentence(
        "considered in each release|noisy numbers of the releases|for each of the releases",
        lambda facts, _: _is_sum(facts),
        "^(?!.*index)",
    ),
    Sentence("is for all of them together", lambda facts, made: len(facts.get("sources", ())) < 2, "notice"),
    Sentence("boxes than there", lambda facts, made: made.row["kind"] == "boxes"),
    Sentence(
        r"several periods add up; the cap", lambda facts, made: facts["unit"] not in ("user", "user_year"), "impact"
    ),
    Sentence(r"Further \w+, if any", lambda facts, made: facts["unit"] != "trip" or made.row["unit"] == "weights"),
    Sentence(r"The same (?:table|information)|and in the database"),
    Sentence(r"at (?:every level of areas|the measured levels\.)|where this one repeats"),
    Sentence(r"\(where they are numbers of groups|adds up the periods that cost|takes the largest sum"),
    Sentence(r"has the least left|two releases\.|at most weight|\d/\d standard deviations"),
    Sentence("measured total", lambda facts, _: "total" in facts["levels"][0]["scales"], "report.html"),
    Sentence("[Tt]he noise of the total"),
    Sentence("again from the measurements", lambda facts, _: "sources" not in facts, "certificate.html"),
    Sentence(
        "cap (?:of [^.]*|that )?limits what all releases of the data set", lambda facts, _: facts["unit"] == "user"
    ),
    Sentence("between the same two (?:zones|areas)"),  # a pair cap is one of a direction
    Sentence("(?<!of a release at the last level) is a number of users"),  # a sum counts a user once a release
    Sentence("an interval here is narrower"),
    Sentence("vanilla_gauss|stability_histogram", pages="decide"),  # neither can be published
    Sentence("only flows can be compared"),
    Sentence("uncounted trips", lambda facts, made: made.row["words"] == "none" and made.row["kind"] == "flows"),
    Sentence("true (?:number|count) may be a (?:few|little)"),
    Sentence(r"all files, 0\.0 MB"),
    Sentence(
        r"(?m)^\d{4}\S* has [\d,]+ (?!days|groups|released)", pages="report.html"
    ),  # a noisy number is not what a period has
    Sentence(
        "added to every count",
        lambda facts, made: (
            (made.row["kind"] != "group sizes" or made.row["groups"] == "measured") and not facts["exact"]
        ),
    ),
    Sentence(r"epsilon [\d.e-]+, so a guess", lambda facts, made: not facts["spent"].get("delta")),
    Sentence("whether they changed", lambda facts, made: "earlier" in made.bundles, "index.html"),
    Sentence("Every number has a", lambda facts, made: made.row["kind"] in ("flows", "counts")),
    Sentence("so anyone can compute them again", lambda facts, made: made.row["kind"] != "boxes"),
    Sentence(
        r"Groups of each size, at every level\.|boundaries of the areas of every level,|most are lower|state theirs"
    ),
    Sentence(r"\bx all\b|\bpairs that", lambda facts, made: made.row["kind"] == "flows", "^(?:plan|decide)$"),
    Sentence(r"per day \(exact\)"),
    Sentence("states the guarantee, the plan", lambda facts, made: "plan" in facts),
    Sentence("with the same promise"),
    Sentence("(?:of|between) large areas(?! smaller)", lambda facts, made: made.row["zones"] == "many", "report.html"),
    Sentence("contains all facts|(?:every file and|explains every) column"),
    Sentence("release has no intervals(?! of )", lambda facts, made: "uncounted" not in facts),
    Sentence("have no intervals\\.", lambda facts, made: "uncounted" not in facts, "nist|registry"),
    Sentence("consistent over all levels", lambda facts, made: made.row["kind"] != "boxes"),
    Sentence("made consistent", lambda facts, made: made.row["kind"] != "boxes", "index.html"),
    Sentence(
        "(?:follows from|[Tt]he published|settings of|certificates of|bundles of) the releases|published releases,",
        lambda facts, made: len(facts.get("sources", ())) != 1,
    ),
    Sentence(
        "Counted categories",
        lambda facts, made: not ("sources" in facts and facts["release"].startswith("commuters_assisted")),
    ),
)


def sentences(made: Made, pages: list[Page]) -> Iterator[Finding]:
    """Yield each sentence that is not true of its release."""
    for page in pages:
        facts = made.bundles.get(page.of, made.main).facts
        for one in SENTENCES:
            found = re.search(one.pattern, page.text) if re.search(one.pages, page.name) else None
            if found and not one.is_true(facts, made):
                around = page.text[max(found.start() - 60, 0) : found.end() + 60]
                yield Finding(page.file, f"a sentence that is not true here: {one.pattern}", around)


def periods_of_derived(made: Made, pages: list[Page]) -> Iterator[Finding]:
    """Yield each notice on several periods that states a guess about one of them, and does not say so."""
    for page in pages:
        facts = made.bundles.get(page.of, made.main).facts
        is_of_several = len(facts.get("sources", ())) > 1 and facts["unit"] == "user_period"
        if page.name == "notice.html" and is_of_several and "of one of the periods" not in page.text:
            yield Finding(page.file, "a guess about one period is told of all")


def promises_of_certificates(made: Made, pages: list[Page]) -> Iterator[Finding]:
    """Yield each certificate that calls another epsilon the promise than its guarantee states, or has empty parts."""
    for page in pages:
        if page.name == "certificate.html":
            bundle = made.bundles[page.of]
            told = re.search(r"epsilon ([\d.e-]+) at delta [\d.e-]+\s*: this is the promise", page.text)
            stated = re.search(r"\(?([\d.e-]+)(?:, [\d.e-]+\))?-differentially", bundle.facts["guarantee"]["protected"])
            if told is None or stated is None or told[1] != stated[1]:
                yield Finding(page.file, "not the promise of the guarantee", told[0] if told else "")
            if re.search(r"<dl>\s*</dl>", bundle.file("certificate.html").read_text(encoding="utf-8")):
                yield Finding(page.file, "a part is empty")


def categories_of_notices(made: Made, pages: list[Page]) -> Iterator[Finding]:
    """Yield each document for people and officers that leaves out by which categories their records are counted."""
    for page in pages if made.row["segments"] != "none" else ():
        if page.of == "release" and page.name in ("notice.html", "impact-assessment.md") and "mode" not in page.text:
            yield Finding(page.file, "categories are not stated")


def what_is_decided(made: Made, pages: list[Page]) -> Iterator[Finding]:
    """Yield each decision page that leaves out categories, or the number of records that are not counted."""
    facts = made.main.facts
    stated = {"mode": made.row["segments"] != "none", "not counted": "uncounted" in facts}
    for page in pages:
        for words, is_published in stated.items():
            if page.name == "decide" and is_published and words not in page.text:
                yield Finding(page.file, f"what is published is not decided: {words}")


def digests_of_areas(made: Made, _: list[Page]) -> Iterator[Finding]:
    """Yield each codebook whose geography of the areas is another one, or that names none."""
    for name, bundle in made.bundles.items() if made.row["kind"] != "boxes" else ():
        areas = pq.read_table(bundle.file("tables/areas.parquet")).to_pylist()
        digests = {row["geography"] for row in areas if row["level"]}
        codebook = bundle.file("codebook.md").read_text(encoding="utf-8")
        found = {*re.findall(r"Geography of the \w+: SHA-256 `([0-9a-f]+)`", codebook)}
        if found != digests:
            yield Finding(f"{name}/codebook.md", "the geography is not that of the areas", ", ".join(found - digests))


def places_in_certificates(made: Made, pages: list[Page]) -> Iterator[Finding]:
    """Yield each place of a certificate that an evaluation names, and that is not there."""
    for page in pages:
        if page.name == "nist-sp-800-226.html":
            for place in re.findall(r"(?<![\w/.-])(/[a-z_]+(?:/[a-z_0-9]+)*)(?![\w/.-])", page.text):
                at: Any = made.bundles[page.of].facts
                for name in place[1:].split("/"):
                    at = at.get(name) if isinstance(at, dict) else None
                if at is None:
                    yield Finding(page.file, "a place that the certificate has not", place)


def boxes_of_catalogue(made: Made, _: list[Page]) -> Iterator[Finding]:
    """Yield the catalogue if the box of a data set does not hold the published boundaries."""
    path = made.main.file("tables/boundaries.parquet")
    if not path.is_file():
        return
    bounds = shapely.total_bounds(shapely.from_wkb(pq.read_table(path)["geometry"].to_pylist()))
    for text in re.findall(r"POLYGON\(\([^)]*\)\)", made.site.joinpath("catalog.jsonld").read_text(encoding="utf-8")):
        if not shapely.from_wkt(text).covers(shapely.box(*bounds)):
            yield Finding("site/catalog.jsonld", "the box leaves out boundaries", text)


def losses_that_are_told(made: Made, pages: list[Page]) -> Iterator[Finding]:
    """Yield each explanation in which the releases of a time spent another rho together than the ledger says."""
    for page in pages:
        told = re.search(r"which spent rho ([\d.]+) together", page.text)
        balance = re.search(r"(\d+) releases? spent ([\d.]+) of it", page.text)
        if page.name != "explain" or not told or not balance:
            continue
        if int(balance[1]) == len(made.bundles[page.of].facts["sources"]) and told[1] != balance[2]:
            yield Finding(page.file, "one loss with two values", f"{told[1]} and {balance[2]}")


def largest_groups(made: Made, pages: list[Page]) -> Iterator[Finding]:
    """Yield each codebook that does not explain the measurement of the largest group."""
    for page in pages if "top code" in made.row["mechanism"] else ():
        if page.name == "codebook.md" and "size of the largest group" not in page.text:
            yield Finding(page.file, "a measurement is not explained")
