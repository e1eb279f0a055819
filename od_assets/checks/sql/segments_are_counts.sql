-- Count the rows of segments that are not a whole number of at least 0, or occur twice.
SELECT count(*) FROM (
    SELECT trips, count(*) OVER (PARTITION BY origin, destination, category) AS times FROM segments
)
WHERE trips IS NULL OR trips < 0 OR trips <> floor(trips) OR times > 1
