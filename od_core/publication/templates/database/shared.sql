{# Tables that all kinds of releases share, which are created if they are missing, and the format. Values: format. #}
CREATE TABLE IF NOT EXISTS areas (
    geography VARCHAR, level BIGINT, level_name VARCHAR, area VARCHAR, parent VARCHAR, position BIGINT,
    name VARCHAR, aliases VARCHAR, latitude DOUBLE, longitude DOUBLE);
ALTER TABLE areas ADD COLUMN IF NOT EXISTS name VARCHAR;
ALTER TABLE areas ADD COLUMN IF NOT EXISTS aliases VARCHAR;
ALTER TABLE areas ADD COLUMN IF NOT EXISTS latitude DOUBLE;
ALTER TABLE areas ADD COLUMN IF NOT EXISTS longitude DOUBLE;
CREATE TABLE IF NOT EXISTS checks (release VARCHAR, subject VARCHAR, "check" VARCHAR, passed BOOLEAN);
CREATE TABLE IF NOT EXISTS format (version BIGINT);
INSERT INTO format SELECT {{ format }} WHERE NOT EXISTS (FROM format);
