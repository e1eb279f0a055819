{# The cells of the matrices of a pair of levels that are not 0, and the number of cells of each matrix.
   Values: pair, categories (name, breakdown and category of each further matrix). #}
{% from "rows/parts.sql" import at %}
{% set names = pair.tables.make_table_definition("pair_flows").columns[2:] | map(attribute="name") | list %}
{% filter string %}
SELECT matrix, origin, destination, value FROM (UNPIVOT (
    SELECT origin, destination
    {% for name in names %}
    , CASE WHEN {{ ("trips" if name == "distance_km" else name) | quoted }} <> 0 THEN {{ name | quoted }} END::DOUBLE
    AS {{ name | quoted }}
    {% endfor %}
    FROM flows WHERE {{ at(pair) }}
) ON {{ names | join(", ") | safe }} INTO NAME matrix VALUE value)
{% for name in names + (categories | map(attribute=0) | list) %}
UNION ALL SELECT {{ name }}, '', '', {{ pair.cells }}::DOUBLE
{% endfor %}
{% for name, breakdown, category in categories %}
UNION ALL SELECT {{ name }}, origin, destination, trips::DOUBLE FROM segments
WHERE breakdown = {{ breakdown }} AND category = {{ category }} AND {{ at(pair) }} AND trips <> 0
{% endfor %}
{% endfilter %}
