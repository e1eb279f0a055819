"""The small project of the Dagster tests, for those that run whole jobs again and again."""

from tests.od_assets.conftest import make_project, project

__all__ = ["make_project", "project"]
