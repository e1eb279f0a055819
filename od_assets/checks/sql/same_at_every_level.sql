-- Count the nodes of a level whose trips are not the sum of the leaf flows below them.
WITH sums AS (
    SELECT o.area AS origin, d.area AS destination, sum(flows.trips) AS trips
    FROM flows
    LEFT JOIN origin_ancestors o ON o.zone = flows.origin
    LEFT JOIN destination_ancestors d ON d.zone = flows.destination
    GROUP BY ALL
)
SELECT count(*) FROM nodes FULL JOIN sums USING (origin, destination)
WHERE nodes.trips IS DISTINCT FROM sums.trips
