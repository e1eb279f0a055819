"""Allow metadata, column schemas and code references of assets: a name that is not listed here is not shown.

See ``docs/reference/bundle.md``.
"""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import yaml

from od_assets.compatibility import suppress_beta_warnings
from od_core import Balance, ReleasePlan
from od_core.errors import remove_address_secrets
from od_core.privacy.accounting import format_rounded_down, format_rounded_up, round_up_to_float
from od_core.privacy.plan import GaussianStep
from od_core.publication.bundle_files import ATLAS, REPORT
from od_core.publication.certificate import Certificate
from od_core.publication.certify import describe_promise
from od_core.publication.columns import Column
from od_core.publication.kind import Kind, R
from od_core.publication.templates import escape_markdown, make_data_url
from od_core.records.formats import RecordColumns


def with_code_references(assets: Sequence[dg.AssetsDefinition]) -> Sequence[Any]:
    """Return the assets, each with the file and line of its function."""
    with suppress_beta_warnings():  # docs/decisions/0002-dagster.md
        return dg.with_source_code_references(assets)


def make_code_references(file: str) -> dict[str, dg.CodeReferencesMetadataValue]:
    """Return Dagster metadata that names the source file of a definition."""
    with suppress_beta_warnings():
        references = dg.CodeReferencesMetadataValue(code_references=[dg.LocalFileCodeReference(file_path=file)])
    return {"dagster/code_references": references}


_TYPES = {"string": "string", "integer": "int64", "number": "double"}

_COLUMNS: dict[str, Any] = yaml.load(  # the loader is safe
    Path(__file__).with_name("columns.yaml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader
)

TRIP_COUNTS = [Column(**column) for column in _COLUMNS["trip_counts"]]
GROUP_SIZE_COLUMNS = [Column(**column) for column in _COLUMNS["group_sizes"]]

Sources = Mapping[str, list[dg.TableColumnDep]]
"""Columns of upstream assets that the columns of a table are computed from, by name of the column."""


def make_column_dependencies(asset: dg.AssetKey | list[str], names: Iterable[str]) -> list[dg.TableColumnDep]:
    """Return the named columns of an upstream asset, as sources in the lineage of a column."""
    return [dg.TableColumnDep(asset, name) for name in names]


def map_to_same_columns(asset: dg.AssetKey | list[str], columns: Iterable[Column]) -> Sources:
    """Return the sources of columns that are copied from columns of the same names in an upstream asset."""
    return {column.name: make_column_dependencies(asset, [column.name]) for column in columns}


def make_table_metadata(*columns: Column, sources: Sources | None = None) -> dict[str, object]:
    """Return asset metadata with the schema of a table of these columns, and with its lineage if it has ``sources``.

    ``sources`` are the upstream columns by column; a column that it lacks has no lineage.
    """
    described = [dg.TableColumn(column.name, _TYPES[column.type], description=column.description) for column in columns]
    return make_schema_metadata(dg.TableSchema(described), sources)


def make_schema_metadata(schema: dg.TableSchema, sources: Sources | None) -> dict[str, object]:
    """Return asset metadata with a schema and, unless ``sources`` is None, the lineage of its columns."""
    if sources is None:
        return {"dagster/column_schema": schema}
    lineage = {column.name: sources.get(column.name, []) for column in schema.columns}
    return {"dagster/column_schema": schema, "dagster/column_lineage": dg.TableColumnLineage(lineage)}


def make_records_schema(columns: RecordColumns) -> dg.TableSchema:
    """Return the schema of the copied records, which are in the confidential folder."""
    name_in_yaml = dict.fromkeys(columns.codes, "cell" if columns.axes else "code")
    name_in_yaml |= {segment.loaded: "category" for segment in columns.segments}
    schema = []
    for name, source in map_record_sources(columns).items():
        column_type, text = _COLUMNS["raw_trips"][name_in_yaml.get(name, name)]
        schema.append(dg.TableColumn(name, column_type, description=text.format(source=source)))
    return dg.TableSchema(schema)


def map_record_sources(columns: RecordColumns) -> dict[str, object]:
    """Return the declared source of each column of the copied records, by its name and in the order of the columns.

    A source is the name of a column, a tuple of several published names, columns of coordinates, or None.
    """
    optional = {name: getattr(columns, name) for name in ("trips", "size", "weight", "user")}
    return {
        "date": columns.date,
        **columns.codes,
        "in_period": columns.date,
        **{name: source for name, source in optional.items() if source is not None},
        **{segment.loaded: segment.column for segment in columns.segments},
    }


ALLOWED = frozenset(
    {
        *("release", "releases", "series", "unit", "mechanism", "guarantee", "epsilon", "delta", "rho"),
        *("cap_rho", "spent_rho", "left_rho", "cap_epsilon", "spent_epsilon", "left_epsilon"),
        *("plan", "violations", "remaining", "areas", "public_cells"),
        *("dagster/row_count", "dagster/uri"),
        *("level", "levels", "origin_level", "destination_level", "measured_cells"),
        *("sensitivity_squared", "variance", "standard_deviation"),
        *("trips", "groups", "top_code", "largest_flows", "largest_changes"),
        *("address", "atlas", "bundle", "files_written", "first_page", "pictures", "report"),
    }
)
"""Allowed names of metadata: public data, noisy values and numbers of violations, but no counts of true records."""


CONFIDENTIAL_TAG = "od/confidential"
"""Tag of assets whose files are in the confidential folder."""

REPORTS = "/od/reports"
"""Path below which ``od-release ui`` serves the reports of published releases."""

_MAX_MARKDOWN_CHARACTERS = 1000
"""Number of characters from which Dagster's UI hides Markdown behind a link. Longer text is shown as it is."""

SOURCES = "od/sources"
"""Metadata of an asset's definition: the declared files or addresses that it reads, without passwords."""


def make_source_metadata(addresses: Iterable[str]) -> dict[str, object]:
    """Return metadata that names the files or addresses that an asset reads, without user, password and query."""
    return {SOURCES: [remove_address_secrets(address) for address in addresses]}


def make_metadata(**metadata: object) -> dict[str, Any]:
    """Return the metadata, with ``/`` in place of ``__`` in names. Raises KeyError for names that are not allowed."""
    names = {name.replace("__", "/"): value for name, value in metadata.items()}
    if not names.keys() <= ALLOWED:
        raise KeyError(f"not allowed as metadata: {sorted(names.keys() - ALLOWED)}")
    return names


def make_result(version: str, asset: list[str] | None = None, **metadata: object) -> dg.MaterializeResult:
    """Return the result of an asset: its data version, and metadata with names as in :func:`make_metadata`.

    A step that makes several assets names each of them.
    """
    return dg.MaterializeResult(
        asset_key=asset, data_version=dg.DataVersion(version), metadata=make_metadata(**metadata)
    )


def make_step_metadata(plan: ReleasePlan, steps: Sequence[GaussianStep]) -> Mapping[str, Any]:
    """Return metadata on the steps of a measured level, or of area totals: the areas, the noise and the charge.

    The noise is that of the first of its steps, and the charge is that of all of them together.
    """
    step, (origins, destinations) = steps[0], plan.level_pair(steps[0])
    origin_level, destination_level = plan.level_names(step)
    return make_metadata(
        level=step.level,
        origin_level=origin_level,
        destination_level=destination_level,
        public_cells=plan.tree.origin.size(origins) * plan.tree.destination.size(destinations),
        sensitivity_squared=step.sensitivity_squared,
        variance=round_up_to_float(step.variance),
        standard_deviation=round_up_to_float(step.variance) ** 0.5,
        rho=round_up_to_float(sum((each.rho for each in steps), start=Fraction(0))),
    )


def make_release_metadata(kind: Kind[R], release: R, balance: Balance) -> dict[str, Any]:
    """Return metadata on the guarantee, the spending, the levels and the content of a release of any kind."""
    spent, unit = release.spent, release.plan.unit
    return make_metadata(
        unit=f"{unit.kind}, {unit.neighbours}",
        epsilon=_round_up(spent.epsilon),
        delta=_round_up(spent.delta),
        rho=_round_up(spent.rho),
        levels=make_table_value(_narrow_summary(kind.make_summary(release))),
        **{
            f"cap_{balance.measure}": _round_up(balance.cap),
            f"spent_{balance.measure}": _round_up(balance.spent),
            f"left_{balance.measure}": float(format_rounded_down(balance.left)),
        },
        **make_content_metadata(kind.list_metadata(release)),
    )


def make_content_metadata(shown: Mapping[str, object]) -> Mapping[str, Any]:
    """Return metadata on what a release contains: the given numbers and texts, and tables as table metadata.

    Raises KeyError for names that are not allowed.
    """
    values = {
        name: make_table_value(content) if isinstance(content, pd.DataFrame) else content
        for name, content in shown.items()
    }
    return make_metadata(**values)


def make_report_metadata(kind: Kind[R], release: R, certificate: Certificate, folder: Path) -> dict[str, Any]:
    """Return metadata on a published release: its guarantee, its report, the pictures of the report, and its bundle."""
    drawn = kind.render_pictures(release, certificate)
    pictures = [f"![{escape_markdown(title)}]({make_data_url(picture)})" for title, picture in drawn.items()]
    metadata = make_metadata(pictures=dg.MetadataValue.md("\n\n".join(pictures))) if pictures else {}
    return make_bundle_metadata(certificate, folder) | metadata


def make_bundle_metadata(certificate: Certificate, folder: Path) -> dict[str, Any]:
    """Return metadata on a published bundle: its guarantee, its report, its release, and its folder."""
    guarantee = escape_markdown(describe_promise(certificate["guarantee"]))
    key = certificate["release"]
    atlas = f"[Choose areas in the atlas]({REPORTS}/{key}/{ATLAS}). It is `{ATLAS}` in the bundle."
    return make_metadata(
        guarantee=dg.MetadataValue.md(guarantee) if len(guarantee) < _MAX_MARKDOWN_CHARACTERS else guarantee,
        report=dg.MetadataValue.md(
            f"[Open the report]({REPORTS}/{key}/{REPORT}) in the UI of `od-release ui`. It is `{REPORT}` in the bundle."
        ),
        **({"atlas": dg.MetadataValue.md(atlas)} if (folder / ATLAS).exists() else {}),
        release=key,
        bundle=dg.MetadataValue.path(str(folder)),
    )


def make_table_value(frame: pd.DataFrame) -> dg.TableMetadataValue:
    """Return a data frame as table metadata with an explicit schema, so that the frame may be empty."""
    schema = dg.TableSchema(columns=[dg.TableColumn(str(name), str(kind)) for name, kind in frame.dtypes.items()])
    rows = frame.astype(object).to_dict("records")
    records = [dg.TableRecord({str(name): value for name, value in row.items()}) for row in rows]
    return dg.MetadataValue.table(records, schema=schema)


def _round_up(value: Fraction) -> float:
    """Return a number rounded up to a few digits, as it is printed; the certificate has exact values."""
    return float(format_rounded_up(value))


def _narrow_summary(summary: pd.DataFrame) -> pd.DataFrame:
    """Return a table of levels that fits into the UI: one column for the level, and rounded numbers."""
    if "origin_level" in summary:
        levels = summary["origin_level"] + " x " + summary["destination_level"]
        summary = summary.drop(columns=["origin_level", "destination_level"]).assign(level=levels)
    summary = summary.rename(columns={"public_pairs": "pairs", "noise_standard_deviation": "noise_sd"})
    return summary.round(1)
