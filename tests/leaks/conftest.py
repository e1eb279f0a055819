"""The small project of the Dagster tests, for the slow ones of what it leaves behind."""

from tests.od_assets.conftest import make_project, project

__all__ = ["make_project", "project"]
