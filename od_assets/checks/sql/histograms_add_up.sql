-- Count the sizes of areas whose number of groups is not the sum over the area's children.
WITH children AS (
    SELECT areas.level - 1 AS level, areas.parent AS area, histograms.size, sum(histograms.groups) AS groups
    FROM histograms JOIN areas USING (level, area)
    WHERE areas.parent IS NOT NULL
    GROUP BY ALL
),
parents AS (
    SELECT level, area, size, groups FROM histograms WHERE groups <> 0 AND level < (SELECT max(level) FROM areas)
)
SELECT count(*) FROM parents FULL JOIN (SELECT * FROM children WHERE groups <> 0) AS children USING (level, area, size)
WHERE parents.groups IS DISTINCT FROM children.groups
