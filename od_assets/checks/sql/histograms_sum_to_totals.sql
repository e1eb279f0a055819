-- Count the areas whose groups of all sizes do not sum to the area's number of groups.
WITH sums AS (SELECT level, area, sum(groups) AS groups FROM histograms GROUP BY ALL)
SELECT count(*) FROM areas LEFT JOIN sums USING (level, area) WHERE areas.groups <> coalesce(sums.groups, 0)
