{# Tables of releases of this kind, which are created if they are missing. #}
CREATE TABLE IF NOT EXISTS group_size_releases (
    release VARCHAR PRIMARY KEY, series VARCHAR, period VARCHAR, revision BIGINT, mechanism VARCHAR, unit VARCHAR,
    neighbours VARCHAR, epsilon DOUBLE, groups BIGINT, geography VARCHAR, measured_at VARCHAR, certificate VARCHAR);
CREATE TABLE IF NOT EXISTS group_sizes (release VARCHAR, level VARCHAR, area VARCHAR, size BIGINT, groups BIGINT);
CREATE TABLE IF NOT EXISTS group_size_measurements (
    release VARCHAR, level VARCHAR, area VARCHAR, position BIGINT, noisy BIGINT, scale DOUBLE);
CREATE TABLE IF NOT EXISTS group_numbers (
    release VARCHAR, level VARCHAR, area VARCHAR, groups BIGINT, lower BIGINT, upper BIGINT, noisy BIGINT, scale DOUBLE,
    slots BIGINT);
CREATE TABLE IF NOT EXISTS group_size_intervals (
    release VARCHAR, level VARCHAR, area VARCHAR, size BIGINT, groups BIGINT, lower BIGINT, upper BIGINT);
CREATE TABLE IF NOT EXISTS group_member_intervals (
    release VARCHAR, level VARCHAR, area VARCHAR, members BIGINT, lower BIGINT, upper BIGINT);
