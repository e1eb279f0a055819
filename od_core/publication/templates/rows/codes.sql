{# The identifiers of the SDMX structure. Values: sides (geography of each code list of areas, by the identifier of the
   list), categories (categories of each code list of a breakdown, by the identifier of the list). #}
{% from "rows/parts.sql" import identifier %}
SELECT '' AS list, '' AS code WHERE false
{% for name, geography in sides.items() %}
UNION ALL SELECT {{ name }}, {{ identifier("'L' || level || '_'" | safe, "area" | safe) }} FROM areas
WHERE geography = {{ geography.digest }}
{% endfor %}
{% for name, listed in categories.items() %}
UNION ALL SELECT {{ name }}, '_T'
{% for category in listed %}
UNION ALL SELECT {{ name }}, {{ identifier("C_", category) }}
{% endfor %}
{% endfor %}
