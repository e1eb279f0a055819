{# The largest flows between different areas of the finest levels. The database has the views `flows` and `areas`, whose
   column `name` is null for areas without a name. Values: origin and destination (digests of the geographies), columns
   (of numbers in `flows`), most (largest number of rows). #}
SELECT flow.origin_level, flow.origin, begin.name AS origin_name,
flow.destination_level, flow.destination, finish.name AS destination_name
{% for column in columns %}, flow.{{ column | quoted }}{% endfor %}
FROM flows AS flow
LEFT JOIN areas AS begin
ON begin.geography = {{ origin }} AND begin.level_name = flow.origin_level AND begin.area = flow.origin
LEFT JOIN areas AS finish
ON finish.geography = {{ destination }} AND finish.level_name = flow.destination_level AND finish.area = flow.destination
WHERE flow.origin_level = (SELECT max_by(level_name, level) FROM areas WHERE geography = {{ origin }})
AND flow.destination_level = (SELECT max_by(level_name, level) FROM areas WHERE geography = {{ destination }})
AND trips > 0 AND ({{ origin }} <> {{ destination }} OR flow.origin <> flow.destination)
ORDER BY trips DESC, flow.origin, flow.destination LIMIT {{ most }}
