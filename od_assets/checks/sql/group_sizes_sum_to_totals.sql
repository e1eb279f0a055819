-- Areas whose groups of all sizes are not as many as the area has.
WITH sums AS (SELECT level, area, sum(groups) AS groups FROM histograms GROUP BY ALL)
SELECT count(*) FROM areas LEFT JOIN sums USING (level, area) WHERE areas.groups <> coalesce(sums.groups, 0)
