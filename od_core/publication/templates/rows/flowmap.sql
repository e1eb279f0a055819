{# The rows of the flows for flowmap.gl, which lead to another zone or to the same. Values: tables, most. #}
{% from "rows/parts.sql" import located %}
SELECT origin, destination AS dest, trips AS "count" FROM ({{ located(tables, most) }})
