{# The rows of the CSV file of a pair of levels, for all trips or by the categories of a breakdown. Values: pair. #}
{% from "rows/parts.sql" import at, columns %}
{% if pair.breakdown is none %}
SELECT {{ columns(pair.tables) }} FROM flows WHERE {{ at(pair) }}
{% else %}
{% if pair.tables.nouns.has_pairs %}
SELECT origin, destination, category AS {{ pair.breakdown.name | quoted }}, trips
{% else %}
SELECT origin AS area, category AS {{ pair.breakdown.name | quoted }}, trips AS count
{% endif %}
{% if pair.tables.interval %}, lower, upper{% endif %} FROM segments WHERE breakdown = {{ pair.breakdown.name }} AND {{ at(pair) }}
{% endif %}
