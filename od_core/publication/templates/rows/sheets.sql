{# The rows of all sheets of the workbook: the largest flows of each. Values: tables, sheets (their names), most. #}
{% from "rows/parts.sql" import areas, at, columns, names %}
{% for pair in tables.pairs %}
{% if not loop.first %}
UNION ALL
{% endif %}
SELECT {{ sheets[loop.index0] }} AS sheet, {{ columns(tables) }}{{ names(tables, " ") }} FROM
(FROM flows WHERE {{ at(pair) }} ORDER BY trips DESC, file_row_number LIMIT {{ most }}) AS flow
{{ areas(tables) }}
{% endfor %}
