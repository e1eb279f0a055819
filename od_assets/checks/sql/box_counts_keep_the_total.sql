-- By how much the counts miss the noisy total, or 0 where that is below it.
SELECT abs((SELECT coalesce(sum("count"), 0) FROM boxes) - (SELECT greatest(coalesce(sum(noisy), 0), 0) FROM boxes))
