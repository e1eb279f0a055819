"""Write the texts of a row, and the digests of its public files."""

import hashlib
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.matrix.findings import Signature
from tests.matrix.made import Made
from tests.matrix.options import stored_rows
from tests.matrix.pages import Page
from tests.matrix.run import run, signed


def write_row(name: str, target: Path | None) -> tuple[str, set[Signature]]:
    """Run a row, write its texts below a folder, and return its name and the signatures of its findings."""
    with TemporaryDirectory() as folder:
        made, pages, found = run(stored_rows(refused=False)[name], Path(folder))
        if target is not None:
            write_texts(made, pages, target / name)
            lines = [f"{check}: {each}" for check, some in found.items() for each in some]
            (target / name / "findings.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return name, {*signed(found)}


def write_texts(made: Made, pages: list[Page], folder: Path) -> None:
    """Write the text of each page of a row, and the digest of each public file."""
    folder.mkdir(parents=True, exist_ok=True)
    for page in pages:
        place = folder / f"{page.file.replace('/', '_').replace(' ', '_')}.txt"
        place.write_text(page.text + "\n", encoding="utf-8")
    files = [path for path in sorted((made.root / "releases").rglob("*")) if path.is_file()]
    files += [path for path in sorted(made.site.rglob("*")) if path.is_file()]
    digests = (
        f"{hashlib.sha256(path.read_bytes()).hexdigest()[:16]}  {path.relative_to(made.root)}\n" for path in files
    )
    (folder / "digests.txt").write_text("".join(digests), encoding="utf-8")
