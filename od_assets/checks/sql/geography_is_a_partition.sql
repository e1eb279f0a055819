-- Count the areas that are listed twice in a level, have no parent in the level above, or (except zones) no children;
-- and missing or additional roots.
SELECT
    (SELECT count(*) FROM areas) - (SELECT count(*) FROM (SELECT DISTINCT level, area FROM areas))
    + (SELECT count(*) FROM areas a ANTI JOIN areas b ON b.level = a.level - 1 AND b.area = a.parent WHERE a.level > 0)
    + (SELECT count(*) FROM areas a ANTI JOIN areas b ON b.level = a.level + 1 AND b.parent = a.area
       WHERE a.level < (SELECT max(level) FROM areas))
    + (SELECT abs(count(*) - 1) FROM areas WHERE level = 0)
