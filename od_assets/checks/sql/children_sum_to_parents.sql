-- Count the parents whose children do not sum to them, also if the parent is unknown or absent from the upper level.
WITH placed AS (
    SELECT o.parent AS origin, d.parent AS destination, nodes.trips
    FROM nodes
    LEFT JOIN origin_parents o ON o.area = nodes.origin
    LEFT JOIN destination_parents d ON d.area = nodes.destination
),
sums AS (SELECT origin, destination, sum(trips) AS trips FROM placed GROUP BY ALL)
SELECT count(*) FROM parents FULL JOIN sums USING (origin, destination)
WHERE parents.trips IS DISTINCT FROM sums.trips
