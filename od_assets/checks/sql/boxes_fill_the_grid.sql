-- Return 0 if every cell of the grid is in exactly one box, else 1. Wrongly returns 0 with probability below 1e-17.
-- Every cell of a dimension has a random weight. The weight of a box is the product over the dimensions of the sums of
-- its cells' weights. Modulo 2^61 - 1, the weights of the boxes sum to that of the grid if they fill it without gap
-- or overlap; otherwise they do so only with that probability. `cuts` holds the sum of the weights of all cells before
-- each cut; cells that no box separates share one weight.
WITH sides AS (
    SELECT ends.box, ends.dimension, (after_it.below - before_it.below + 2305843009213693951::HUGEINT)
        % 2305843009213693951::HUGEINT AS weight
    FROM ends
    JOIN cuts AS before_it ON before_it.dimension = ends.dimension AND before_it.cut = ends.first_cell
    JOIN cuts AS after_it ON after_it.dimension = ends.dimension AND after_it.cut = ends.last_cell + 1
),
weights AS (
    SELECT box, list_reduce(list(weight), lambda a, b: (a * b) % 2305843009213693951::HUGEINT) AS weight
    FROM sides GROUP BY box HAVING count(*) = (SELECT count(*) FROM grid)
),
whole AS (
    SELECT list_reduce(list(cuts.below), lambda a, b: (a * b) % 2305843009213693951::HUGEINT) AS weight
    FROM cuts JOIN grid ON grid.dimension = cuts.dimension AND grid.size = cuts.cut
)
SELECT CASE WHEN (SELECT sum(weight) % 2305843009213693951::HUGEINT FROM weights) = (SELECT weight FROM whole)
    AND (SELECT count(*) FROM weights) = (SELECT count(DISTINCT box) FROM ends) THEN 0 ELSE 1 END
