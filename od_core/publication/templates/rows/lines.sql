{# The rows of the files of lines: the largest flows between located zones that have a length. Values: tables, most. #}
{% from "rows/parts.sql" import areas, columns, located, names %}
SELECT {{ columns(tables) }}{{ names(tables, "_") }},
origin_area.longitude AS longitude_1, origin_area.latitude AS latitude_1,
destination_area.longitude AS longitude_2, destination_area.latitude AS latitude_2
FROM ({{ located(tables, most) }}) AS flow
{{ areas(tables) }}
WHERE (longitude_1, latitude_1) <> (longitude_2, latitude_2)
