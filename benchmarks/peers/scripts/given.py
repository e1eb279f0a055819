"""Read what a contender is given, and write what it publishes; imports nothing that an environment may lack."""

import json
import sys
from pathlib import Path


def given():
    """Return the folders of the input and of the output, and the settings with the noise that is asked for."""
    folder, output = Path(sys.argv[1]), Path(sys.argv[2])
    settings = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
    return folder, output, settings | {"noise": sys.argv[3] if len(sys.argv) > 3 else ""}


def is_check():
    """Return whether the published example is wanted instead of a release."""
    return sys.argv[1:] == ["--check"]
