-- Count the boxes whose count is not an integer of at least 0.
SELECT count(*) FROM boxes WHERE "count" IS NULL OR "count" < 0 OR typeof("count") <> 'BIGINT'
