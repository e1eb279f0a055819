"""Run the command line as ``python -m od_assets.cli``."""

from od_assets.cli.app import main

main()
