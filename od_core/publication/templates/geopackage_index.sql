{# The extension RTree Spatial Indexes of a GeoPackage [OGC 12-128r17, annex F.3]: the index of the layer, empty, and the
   triggers that keep it true where the layer is edited. SQLite alone has no functions such as ST_MinX, so the lines are
   inserted before the triggers are made. #}
{% set index = index | safe %}
{% set extent = "NEW.fid, ST_MinX(NEW.geom), ST_MaxX(NEW.geom), ST_MinY(NEW.geom), ST_MaxY(NEW.geom)" | safe %}
{% set has_geometry = "(NEW.geom NOTNULL AND NOT ST_IsEmpty(NEW.geom))" | safe %}
{% set has_none = "(NEW.geom ISNULL OR ST_IsEmpty(NEW.geom))" | safe %}
CREATE TABLE gpkg_extensions (table_name TEXT, column_name TEXT, extension_name TEXT NOT NULL, definition TEXT NOT NULL,
    scope TEXT NOT NULL, UNIQUE (table_name, column_name, extension_name));
INSERT INTO gpkg_extensions VALUES
    ('desire_lines', 'geom', 'gpkg_rtree_index', 'http://www.geopackage.org/spec120/#extension_rtree', 'write-only');
CREATE VIRTUAL TABLE {{ index }} USING rtree(id, minx, maxx, miny, maxy);
CREATE TRIGGER {{ index }}_insert AFTER INSERT ON desire_lines WHEN {{ has_geometry }}
    BEGIN INSERT OR REPLACE INTO {{ index }} VALUES ({{ extent }}); END;
CREATE TRIGGER {{ index }}_update1 AFTER UPDATE OF geom ON desire_lines WHEN OLD.fid = NEW.fid AND {{ has_geometry }}
    BEGIN INSERT OR REPLACE INTO {{ index }} VALUES ({{ extent }}); END;
CREATE TRIGGER {{ index }}_update2 AFTER UPDATE OF geom ON desire_lines WHEN OLD.fid = NEW.fid AND {{ has_none }}
    BEGIN DELETE FROM {{ index }} WHERE id = OLD.fid; END;
CREATE TRIGGER {{ index }}_update3 AFTER UPDATE ON desire_lines WHEN OLD.fid != NEW.fid AND {{ has_geometry }}
    BEGIN DELETE FROM {{ index }} WHERE id = OLD.fid; INSERT OR REPLACE INTO {{ index }} VALUES ({{ extent }}); END;
CREATE TRIGGER {{ index }}_update4 AFTER UPDATE ON desire_lines WHEN OLD.fid != NEW.fid AND {{ has_none }}
    BEGIN DELETE FROM {{ index }} WHERE id IN (OLD.fid, NEW.fid); END;
CREATE TRIGGER {{ index }}_delete AFTER DELETE ON desire_lines WHEN OLD.geom NOT NULL
    BEGIN DELETE FROM {{ index }} WHERE id = OLD.fid; END;
