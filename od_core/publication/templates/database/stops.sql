{# Tables of releases of this kind, which are created if they are missing. #}
CREATE TABLE IF NOT EXISTS stops_releases (
    release VARCHAR PRIMARY KEY, series VARCHAR, period VARCHAR, revision BIGINT, mechanism VARCHAR, unit VARCHAR,
    neighbours VARCHAR, epsilon DOUBLE, trips BIGINT, grid BIGINT[], measured_at VARCHAR, certificate VARCHAR);
CREATE TABLE IF NOT EXISTS stops_boxes (
    release VARCHAR, lower INTEGER[], upper INTEGER[], "count" BIGINT, noisy BIGINT);
ALTER TABLE stops_boxes ADD COLUMN IF NOT EXISTS count_lower BIGINT;
ALTER TABLE stops_boxes ADD COLUMN IF NOT EXISTS count_upper BIGINT;
