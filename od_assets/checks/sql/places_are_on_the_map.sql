-- Count the places that are listed twice, have no code, or have no coordinates on the map.
SELECT
    (SELECT count(*) - count(DISTINCT code) FROM places)
    + (SELECT count(*) FROM places, map
       WHERE (longitude BETWEEN west AND east AND latitude BETWEEN south AND north) IS NOT TRUE)
