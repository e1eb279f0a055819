{# Tables and views of releases of flows, which are created if they are missing. Values: release.
   A database has the tables of breakdowns, and that of known totals, once it has such a release. #}
CREATE TABLE IF NOT EXISTS releases (
    release VARCHAR PRIMARY KEY, series VARCHAR, period VARCHAR, revision BIGINT, mechanism VARCHAR, unit VARCHAR,
    neighbours VARCHAR, rho DOUBLE, epsilon DOUBLE, delta DOUBLE, trips BIGINT, origin_geography VARCHAR,
    destination_geography VARCHAR, measured_at VARCHAR, certificate VARCHAR);
CREATE TABLE IF NOT EXISTS flows (release VARCHAR, origin VARCHAR, destination VARCHAR, trips BIGINT);
CREATE TABLE IF NOT EXISTS measurements (
    release VARCHAR, level BIGINT, origin VARCHAR, destination VARCHAR, noisy BIGINT, variance DOUBLE);
CREATE TABLE IF NOT EXISTS expected_error (
    release VARCHAR, level BIGINT, origin_level VARCHAR, destination_level VARCHAR, root_mean_square_error DOUBLE);
CREATE TABLE IF NOT EXISTS flow_intervals (
    release VARCHAR, origin_level VARCHAR, destination_level VARCHAR, origin VARCHAR, destination VARCHAR,
    trips BIGINT, lower BIGINT, upper BIGINT);
CREATE TABLE IF NOT EXISTS indicators (
    release VARCHAR, level VARCHAR, area VARCHAR, outflow BIGINT, outflow_lower BIGINT, outflow_upper BIGINT,
    inflow BIGINT, inflow_lower BIGINT, inflow_upper BIGINT, within BIGINT, within_lower BIGINT, within_upper BIGINT,
    balance BIGINT, balance_lower BIGINT, balance_upper BIGINT, self_containment DOUBLE, self_containment_lower DOUBLE,
    self_containment_upper DOUBLE, mean_distance DOUBLE, mean_distance_lower DOUBLE, mean_distance_upper DOUBLE);
CREATE OR REPLACE VIEW zone_areas AS
WITH RECURSIVE climb AS (
    SELECT geography, area AS zone, level, level_name, area, parent FROM areas
    WHERE (geography, level) IN (SELECT (geography, max(level)) FROM areas GROUP BY geography)
    UNION ALL
    SELECT climb.geography, zone, areas.level, areas.level_name, areas.area, areas.parent
    FROM climb JOIN areas
    ON areas.geography = climb.geography AND areas.level = climb.level - 1 AND areas.area = climb.parent)
SELECT geography, zone, level, level_name, area FROM climb;
CREATE OR REPLACE VIEW flows_by_level AS
SELECT flows.release, o.level_name AS origin_level, d.level_name AS destination_level,
    o.area AS origin, d.area AS destination, CAST(sum(flows.trips) AS BIGINT) AS trips
FROM flows
JOIN releases ON releases.release = flows.release
JOIN zone_areas o ON o.geography = releases.origin_geography AND o.zone = flows.origin
JOIN zone_areas d ON d.geography = releases.destination_geography AND d.zone = flows.destination
GROUP BY ALL;
{% if release.breakdowns %}
CREATE TABLE IF NOT EXISTS segment_flows (
    release VARCHAR, breakdown VARCHAR, origin VARCHAR, destination VARCHAR, category VARCHAR, trips BIGINT);
CREATE TABLE IF NOT EXISTS segment_measurements (
    release VARCHAR, level BIGINT, breakdown VARCHAR, category VARCHAR, origin VARCHAR, destination VARCHAR,
    noisy BIGINT, variance DOUBLE);
CREATE TABLE IF NOT EXISTS segment_expected_error (
    release VARCHAR, breakdown VARCHAR, level BIGINT, origin_level VARCHAR, destination_level VARCHAR,
    root_mean_square_error DOUBLE);
CREATE TABLE IF NOT EXISTS segment_intervals (
    release VARCHAR, breakdown VARCHAR, origin_level VARCHAR, destination_level VARCHAR, origin VARCHAR,
    destination VARCHAR, category VARCHAR, trips BIGINT, lower BIGINT, upper BIGINT);
{% endif %}
{% if release.plan.known %}
CREATE TABLE IF NOT EXISTS known_totals (
    release VARCHAR, side VARCHAR, area VARCHAR, known DOUBLE, standard_deviation DOUBLE);
{% endif %}
