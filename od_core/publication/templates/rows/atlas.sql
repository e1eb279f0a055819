{# The flows of the atlas: those between areas of its finest level that are not 0. Values: pair. #}
{% from "rows/parts.sql" import at %}
SELECT origin, destination, trips FROM flows WHERE {{ at(pair) }} AND trips <> 0
