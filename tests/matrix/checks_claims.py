"""Claims: what a sentence says of numbers, files and options of its release, held against these."""

import math
import re
from collections.abc import Iterator, Mapping
from fractions import Fraction

from tests.matrix.checks_numbers import Ends, Place, flows_of
from tests.matrix.findings import Finding
from tests.matrix.made import Bundle, Made
from tests.matrix.pages import Page

_NUMBER = r"(\d[\d,]*)"
_LEAST_SQUARES = ("inftda_refined shrunk",)
"""Mechanisms of the rows whose estimate is never that of least squares."""

_FILES = {
    "CSV": r"(?<!SDMX-)\bCSV\b(?! file of SDMX)",
    "SDMX": r"\bSDMX\b",
    "OpenMatrix": r"\bOpenMatrix\b",
    "workbook": r"\b(?:workbook|Excel)\b",
}
_ENDINGS = {"CSV": ".csv", "SDMX": ".sdmx.json", "OpenMatrix": ".omx", "workbook": ".xlsx"}


_OF_ALL = r"^(?:compare|explain|atlas\.html|sdmx/.*)$"
"""Pages with words for releases with and without intervals: a program, a structure of messages, and commands."""

_DENIED = re.compile(r"\b(?:no|without|not have|whether|if)\b[^.]*\binterval|not counted", re.IGNORECASE)
"""A sentence that may name intervals where none is published; that of the number of uncounted records always is."""


def links(made: Made, _: list[Page]) -> Iterator[Finding]:
    """Yield each relative link of a page that leads to no file."""
    folders = [(name, bundle.folder) for name, bundle in made.bundles.items()]
    for name, folder in [*folders, ("site", made.site)]:
        for path in sorted(folder.rglob("*.html")):
            text = re.sub(r"<script.*?</script>", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
            for address in {*re.findall(r'(?:href|src)="([^"#?:]+)(?:[#?][^"]*)?"', text)}:
                if path.name != "404.html" and not path.parent.joinpath(address).exists():
                    yield Finding(f"{name}/{path.relative_to(folder)}", "a link leads to no file", address)


def intervals_that_are_published(made: Made, pages: list[Page]) -> Iterator[Finding]:
    """Yield each block that speaks of intervals as if they were there, where none is published."""
    if made.row["intervals"] == "yes":
        return
    for page in pages:
        if page.of != "plan" and not re.search(_OF_ALL, page.name):
            for block in page.blocks:
                for sentence in re.split(r"(?<=[.;])\s", block):
                    of_groups = made.row["groups"] == "measured" and re.search(r"interval of the number", sentence)
                    if re.search(r"\bintervals?\b", sentence) and not (_DENIED.search(sentence) or of_groups):
                        yield Finding(page.file, "an interval that is not published", sentence[:160])
        elif re.search(r"published with its interval", page.text):
            yield Finding(page.file, "an interval that is not published")


def words_of_files(made: Made, pages: list[Page]) -> Iterator[Finding]:
    """Yield each codebook that explains files of a format which its bundle has not."""
    for page in pages:
        if page.name in ("codebook.md", "README.txt"):
            files = " ".join(made.bundles[page.of].files())
            for name, pattern in _FILES.items():
                if _ENDINGS[name] not in files and (found := re.search(pattern, page.text)):
                    yield Finding(page.file, f"no file of this format: {name}", page.text[found.start() :][:80])


def figures_of_text(made: Made, pages: list[Page]) -> Iterator[Finding]:
    """Yield each sentence on the largest number, or on the reach of intervals, that its table contradicts."""
    for name, bundle in made.bundles.items():
        leaves, text = _leaves(bundle), " ".join(_text_of(pages, name, "report.html").split())
        if not leaves or not text:
            continue
        if said := re.search(rf"The largest [\w ]+ is that (?:from|of) [^:.]+: {_NUMBER}", text):
            own = "from one" not in text[said.start() : said.start() + 40]
            largest = max(
                ends[0] for (one, other, *areas), ends in leaves.items() if own or areas[0] != areas[1] or one != other
            )
            if _read(said[1]) != largest:
                yield Finding(f"{name}/report.html", "not the largest number", f"{said[0]}, {largest} in the table")
        if said := re.search(rf"at most {_NUMBER} down and {_NUMBER} up", text):
            above = [ends for ends in leaves.values() if ends[0] > 0]
            reach = max(one - low for one, low, _ in above), max(up - one for one, _, up in above)
            if (_read(said[1]), _read(said[2])) != reach:
                yield Finding(
                    f"{name}/report.html", "not the reach of the intervals", f"{said[0]}, {reach} in the table"
                )


def _leaves(bundle: Bundle) -> Mapping[Place, Ends]:
    """Return the numbers of the last pair of levels."""
    found = flows_of(bundle)
    last = [place[:2] for place in found][-1:]
    return {place: ends for place, ends in found.items() if [place[:2]] == last}


def _text_of(pages: list[Page], of: str, name: str) -> str:
    return next((page.text for page in pages if (page.of, page.name) == (of, name)), "")


def _read(text: str) -> int:
    return int(text.replace(",", ""))


def promises_of_estimates(made: Made, pages: list[Page]) -> Iterator[Finding]:
    """Yield each page that promises better numbers where the estimates are those of the release, or learnt nothing."""
    assisted = made.bundles.get("assisted")
    if assisted is None:
        return
    same = flows_of(assisted) == flows_of(made.main)
    for page in pages:
        if page.of == "site" and same and re.search(r"errors are\s+smaller|have less error", page.text):
            yield Finding(page.file, "estimates that equal the release are told to have smaller errors")
        if page.of == "site" and len(assisted.facts["sources"]) == 1 and "help of other periods" in page.text:
            yield Finding(page.file, "estimates from one release are told to use other periods")


def losses_of_derived(made: Made, _: list[Page]) -> Iterator[Finding]:
    """Yield each derived release of one source with another loss than that of its source."""
    for name, bundle in made.bundles.items():
        if len(bundle.facts.get("sources", ())) == 1:
            spent = bundle.facts["spent"]
            stated = {(one["epsilon"], one["delta"]) for one in (spent["one_period"], spent["all_periods"])}
            if len(stated) > 1:
                yield Finding(f"{name}/certificate.json", "one loss with two values", str(sorted(stated)))


def strength_in_words(made: Made, pages: list[Page]) -> Iterator[Finding]:
    """Yield each page that calls what can be learned almost nothing, where a guess is right more than 55 times."""
    for page in pages:
        guesses = [int(found) for found in re.findall(r"right at most (\d+)\s+times in 100", page.text)]
        if "almost nothing" in page.text and (not guesses or max(guesses) > 55):
            yield Finding(page.file, "almost nothing is said of a strong guess")


def top_codes(made: Made, pages: list[Page]) -> Iterator[Finding]:
    """Yield each report of group sizes whose total or last class hides the top code."""
    if made.row["kind"] != "group sizes":
        return
    top, text = made.main.facts["contents"]["top_code"], " ".join(_text_of(pages, "release", "report.html").split())
    if not re.search(rf"sizes above {top} counted as {top}, they have", text):
        yield Finding("release/report.html", "the total does not say that sizes have a top code")
    classes = re.findall(rf"\b\d+ to {top}\b(?! \d)", "\n".join(_blocks(pages, "release", "report.html")))
    if classes or not re.search(r"\b\d+ or more\b", text):
        yield Finding("release/report.html", "the last class does not say that it is open", str(classes))


def _blocks(pages: list[Page], of: str, name: str) -> list[str]:
    return [block for page in pages if (page.of, page.name) == (of, name) for block in page.blocks if len(block) < 20]


def faults_of_records(made: Made, pages: list[Page]) -> Iterator[Finding]:
    """Yield each block that says faulty records are left out, where an input with one is refused."""
    if Fraction(made.main.facts["fault_threshold"]):
        return
    for page in pages:
        for block in page.blocks:
            found = re.search(r"(?:faulty|user id|weight is missing)[^.;]*\b(?:is|are) not counted", block)
            if found and page.of == "release":
                yield Finding(page.file, "a record that has the input refused is told to be left out", found[0][:120])


def rules_of_estimates(made: Made, pages: list[Page]) -> Iterator[Finding]:
    """Yield each report that states the error of least squares for another rule, and does not say so."""
    if made.row["mechanism"] in _LEAST_SQUARES and "least squares" not in _text_of(pages, "release", "report.html"):
        yield Finding("release/report.html", "the expected error is that of another rule")


def measured_pairs(made: Made, pages: list[Page]) -> Iterator[Finding]:
    """Yield each codebook that says nothing is measured below a pair that is estimated as 0, where it is."""
    levels = made.main.facts.get("levels", [])
    all_measured = all(level.get("public_cells") == level["measured_cells"] for level in levels)
    if all_measured and "nothing below it is measured" in _text_of(pages, "release", "codebook.md"):
        yield Finding("release/codebook.md", "pairs below a 0 were measured")


def references(made: Made, pages: list[Page]) -> Iterator[Finding]:
    """Yield each page that points to a part below which it has not."""
    for page in pages:
        for number, block in enumerate(page.blocks):
            for what in re.findall(r"see the ([a-z ]+?) below", block):
                if not any(one.lower().startswith(what) for one in page.blocks[number + 1 :]):
                    yield Finding(page.file, "what is to be below is not there", what)


def deviations_of_laplace(made: Made, pages: list[Page]) -> Iterator[Finding]:
    """Yield the report of a release with Laplace noise whose standard deviation is not that of its scale."""
    if made.row["kind"] != "group sizes":
        return
    blocks = next((page.blocks for page in pages if page.file == "release/report.html"), ())
    for scale in {float(Fraction(level["scale_exact"])) for level in made.main.facts["levels"] if level["level"]}:
        decay = math.exp(-1 / scale)
        deviation = f"{math.sqrt(2 * decay) / (1 - decay):.3g}"
        if not any(block.startswith(deviation) for block in blocks):
            yield Finding("release/report.html", "not the standard deviation of the noise", deviation)


def exact_columns(made: Made, pages: list[Page]) -> Iterator[Finding]:
    """Yield each codebook that says a column with an exact number has noise throughout."""
    for page in pages:
        exact = page.of in made.bundles and "trips" in made.bundles[page.of].facts["exact"]
        if exact and page.name == "codebook.md" and flows_of(made.bundles[page.of]):
            for block in page.blocks:
                is_total = "of the category" not in block  # numbers by category have noise in every release
                if is_total and re.search(r"(?:destination|area), released with noise\.", block):
                    yield Finding(page.file, "an exact number is told to have noise", block[:120])
