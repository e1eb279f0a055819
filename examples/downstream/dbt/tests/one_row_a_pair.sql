-- A pair of zones has one row in each period: a second one would be of an older revision.
SELECT period, origin, destination
FROM {{ ref('zone_flows') }}
GROUP BY ALL
HAVING count(*) > 1
