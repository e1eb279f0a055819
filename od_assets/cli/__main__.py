"""Run the command line; say which extra is missing if only the library is installed."""

import sys

from od_assets.cli import ExitCode
from od_core.errors import OdError
from od_core.extras import require


def main() -> None:
    """Run a command of ``od-release``, and exit with its :class:`ExitCode`."""
    try:
        require("dagster")
    except OdError as error:
        print(error, file=sys.stderr)
        sys.exit(ExitCode.REFUSED)
    from od_assets.cli.app import main as run

    run()


if __name__ == "__main__":
    main()
