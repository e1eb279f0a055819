{# The rows of the SDMX-CSV file: all pairs of levels, then those by each breakdown.
   Values: tables, dataflow (its identifier, with agency and version), period (SDMX time period), dimensions (identifier
   of the dimension of each breakdown, by its name). #}
{% from "rows/parts.sql" import identifier %}
{% for breakdown in [none] + (dimensions | list) %}
{% if not loop.first %}
UNION ALL
{% endif %}
SELECT 'dataflow' AS STRUCTURE, {{ dataflow }} AS STRUCTURE_ID, 'R' AS ACTION,
{% for side, geography in tables.sides.items() %}
{% set level %}
CASE flow.{{ side | safe }}_level
{% for name in geography.level_names %} WHEN {{ name }} THEN 'L{{ loop.index0 }}_'{% endfor %} END
{% endset %}
{{ identifier(level, ("flow." ~ side) | safe) }} AS {{ side | upper | safe }},
{% endfor %}
{% for name, dimension in dimensions.items() %}
{% if name == breakdown %}{{ identifier("C_", "category" | safe) }}{% else %}'_T'{% endif %} AS {{ dimension | quoted }},
{% endfor %}
{{ period }} AS TIME_PERIOD, trips AS OBS_VALUE
{%- if tables.interval %}, lower AS LOWER, upper AS UPPER{% endif %} FROM {{ ("flows" if breakdown is none else "segments") | safe }} AS flow
{% if breakdown is not none %}
WHERE breakdown = {{ breakdown }}
{% endif %}
{% endfor %}
