{# Replaces the stored areas of a geography by those of the table new_rows. If it lacks names, aliases or coordinates,
   the stored ones stay. Values: geography (digest), lacking (columns). #}
CREATE OR REPLACE TEMP TABLE kept AS SELECT * FROM areas WHERE geography = {{ geography }};
DELETE FROM areas WHERE geography = {{ geography }};
INSERT INTO areas BY NAME
SELECT new_rows.*{% for column in lacking %}, kept.{{ column | quoted }}{% endfor %}

FROM new_rows LEFT JOIN kept ON kept.level = new_rows.level AND kept.area = new_rows.area
ORDER BY new_rows.level, new_rows.position;
DROP TABLE kept;
