-- Absolute difference between the sum of the counts and the noisy total, or 0 if the noisy total is negative.
SELECT abs((SELECT coalesce(sum("count"), 0) FROM boxes) - (SELECT greatest(coalesce(sum(noisy), 0), 0) FROM boxes))
