"""Find out whether the packages that only an extra installs are there."""

from __future__ import annotations

from importlib.util import find_spec

from od_core.errors import OdError

EXTRAS = {
    "boundaries": ("pyogrio", "shapely", "h3"),
    "bundle": ("openmatrix", "pysdmx", "matplotlib", "babel"),
    "checks": ("great_expectations",),
    "dagster": ("dagster", "typer"),
    "delta": ("deltalake",),
    "iceberg": ("pyiceberg",),
    "notices": ("apprise",),
    "openlineage": ("openlineage",),
    "postgres": ("psycopg",),
    "postgres-tables": ("adbc_driver_postgresql",),
    "spark": ("pyspark",),
}
"""The modules that must be there for an extra to be usable, by name of the extra."""


def require(extra: str) -> None:
    """Raise OdError if a module of the extra with this name is not installed. Nothing is imported."""
    for module in EXTRAS[extra]:
        if find_spec(module) is None:
            message = f"{module} is not installed, which the extra {extra!r} provides"
            step = f"install od-release with this extra, as od-release[{extra}]"
            raise OdError("OD-EXTRA-ABSENT", message, next_step=step)
