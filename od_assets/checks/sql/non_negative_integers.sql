-- Count the nodes whose trips are not an integer of at least 0, and the nodes that occur twice.
SELECT
    (SELECT count(*) FROM nodes
     WHERE trips IS NULL OR trips < 0 OR trips <> floor(trips) OR typeof(trips) <> 'BIGINT')
    + (SELECT count(*) FROM nodes) - (SELECT count(*) FROM (SELECT DISTINCT origin, destination FROM nodes))
