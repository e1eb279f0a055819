{# Parts of the queries for the rows that files of flows must have. They share no code with the writers of the files. #}

{# The condition of the rows of a pair of levels. #}
{% macro at(pair) %}origin_level = {{ pair.level_names[0] }} AND destination_level = {{ pair.level_names[1] }}{% endmacro %}

{# The columns of the flows of a pair of levels; those of counts by one hierarchy have other names. #}
{% macro columns(tables) %}
{% for column in tables.make_table_definition("pair_flows").columns %}{{ {"area": "origin", "count": "trips"}.get(column.name, column.name) | quoted }} AS {{ column.name | quoted }}{% if not loop.last %}, {% endif %}{% endfor %}
{% endmacro %}

{# The columns of the names of areas, for the sides whose areas have names. #}
{% macro names(tables, separator) %}
{% for side, geography in tables.sides.items() if geography.names is not none %}
, {{ side | safe }}_area.name AS {{ ((side if tables.nouns.has_pairs else "area") ~ separator ~ "name") | quoted }}
{% endfor %}
{% endmacro %}

{# The joins of flows, as `flow`, with the areas of both sides. #}
{% macro areas(tables) %}
{% for side, geography in tables.sides.items() %}
{% set area = (side ~ "_area") | safe %}
LEFT JOIN areas AS {{ area }} ON {{ area }}.geography = {{ geography.digest }}
AND {{ area }}.level_name = flow.{{ side | safe }}_level AND {{ area }}.area = flow.{{ side | safe }}
{% endfor %}
{% endmacro %}

{# The largest flows between zones with coordinates. #}
{% macro located(tables, most) %}
SELECT flow.* FROM flows AS flow {{ areas(tables) }}
WHERE {{ at(tables.pairs[-1]) }} AND trips > 0
AND origin_area.latitude + origin_area.longitude IS NOT NULL
AND destination_area.latitude + destination_area.longitude IS NOT NULL
ORDER BY trips DESC, flow.file_row_number LIMIT {{ most }}
{% endmacro %}

{# An SDMX identifier: percent encoding with another sign, which also encodes full stops and tildes. #}
{% macro identifier(first, text) %}
{{ first }} || replace(replace(replace(url_encode({{ text }}), '%', '$'), '.', '$2E'), '~', '$7E')
{%- endmacro %}
