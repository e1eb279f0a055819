{# The trips that begin (`from`) and that end (`to`) in each area of the finest level of each side. Values as in
   `largest_flows.sql`. #}
{% for direction, side, other, digest in (("from", "origin", "destination", origin), ("to", "destination", "origin", destination)) %}
{{ "UNION ALL" | safe if not loop.first }}
(SELECT {{ direction }} AS direction, {{ side | safe }}_level AS level, {{ side | safe }} AS area, place.name
{% for column in columns %}, flow.{{ column | quoted }}{% endfor %}
FROM flows AS flow
LEFT JOIN areas AS place
ON place.geography = {{ digest }} AND place.level_name = flow.{{ side | safe }}_level AND place.area = flow.{{ side | safe }}
WHERE flow.{{ other | safe }}_level = 'all'
AND flow.{{ side | safe }}_level = (SELECT max_by(level_name, level) FROM areas WHERE geography = {{ digest }})
AND flow.{{ side | safe }}_level <> 'all'
ORDER BY trips DESC, area LIMIT {{ most }})
{% endfor %}
