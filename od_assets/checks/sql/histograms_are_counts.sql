-- Count the cells that are not integers of at least 0, occur twice, or have an unknown area or size.
SELECT
    (SELECT count(*) FROM histograms
     WHERE groups IS NULL OR groups < 0 OR groups <> floor(groups) OR typeof(groups) <> 'BIGINT')
    + (SELECT count(*) FROM histograms) - (SELECT count(*) FROM (SELECT DISTINCT level, area, size FROM histograms))
    + (SELECT count(*) FROM histograms ANTI JOIN areas USING (level, area))
    + (SELECT count(*) FROM histograms WHERE size IS NULL OR size < 0 OR size > (SELECT top_code FROM sizes))
