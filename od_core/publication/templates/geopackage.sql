{# Tables of a GeoPackage 1.3 [OGC 12-128r17, Tables 1, 3 and 6] with an empty layer of lines.
   Values: description (of the layer), measured (time of the last change), columns (type of each, by its name). The ends of
   the layer are parameters of a later statement, because SQLite does not read all digits of a number. #}
PRAGMA application_id = 0x47504B47;
PRAGMA user_version = 10300;
CREATE TABLE gpkg_spatial_ref_sys (srs_name TEXT NOT NULL, srs_id INTEGER PRIMARY KEY, organization TEXT NOT NULL,
    organization_coordsys_id INTEGER NOT NULL, definition TEXT NOT NULL, description TEXT);
CREATE TABLE gpkg_contents (table_name TEXT NOT NULL PRIMARY KEY, data_type TEXT NOT NULL, identifier TEXT UNIQUE,
    description TEXT DEFAULT '', last_change DATETIME NOT NULL, min_x DOUBLE, min_y DOUBLE, max_x DOUBLE,
    max_y DOUBLE, srs_id INTEGER REFERENCES gpkg_spatial_ref_sys (srs_id));
CREATE TABLE gpkg_geometry_columns (table_name TEXT NOT NULL UNIQUE REFERENCES gpkg_contents (table_name),
    column_name TEXT NOT NULL, geometry_type_name TEXT NOT NULL, srs_id INTEGER NOT NULL REFERENCES
    gpkg_spatial_ref_sys (srs_id), z TINYINT NOT NULL, m TINYINT NOT NULL, PRIMARY KEY (table_name, column_name));
INSERT INTO gpkg_spatial_ref_sys VALUES ('Undefined Cartesian', -1, 'NONE', -1, 'undefined', NULL),
    ('Undefined geographic', 0, 'NONE', 0, 'undefined', NULL),
    ('WGS 84', 4326, 'EPSG', 4326, 'GEOGCS["WGS 84",DATUM["WGS_1984",SPHEROID["WGS 84",6378137,298.257223563,AUTHORITY["EPSG","7030"]],'
    || 'AUTHORITY["EPSG","6326"]],PRIMEM["Greenwich",0,AUTHORITY["EPSG","8901"]],UNIT["degree",0.0174532925199433,'
    || 'AUTHORITY["EPSG","9122"]],AXIS["Latitude",NORTH],AXIS["Longitude",EAST],AUTHORITY["EPSG","4326"]]', 'longitude, latitude');
CREATE TABLE desire_lines (fid INTEGER PRIMARY KEY, geom LINESTRING
{%- for name, type in columns.items() %}, {{ name | safe }} {{ type | safe }} NOT NULL{% endfor %});
INSERT INTO gpkg_contents VALUES ('desire_lines', 'features', 'desire_lines', {{ description }}, {{ measured }},
    NULL, NULL, NULL, NULL, 4326);
INSERT INTO gpkg_geometry_columns VALUES ('desire_lines', 'geom', 'LINESTRING', 4326, 0, 0);
