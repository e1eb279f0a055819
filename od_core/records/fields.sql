{# The SQL of the fields of a record, which DuckDB and Spark run alike, but for counts and floats, which only DuckDB reads
   so. `column` is the SQL of a column, and `kind` its type. #}

{# A column as text. Whole numbers are stored as floats if some are missing: 7.0 is the text 7, and 7.5 stays 7.5. #}
{% macro as_text(column, kind) -%}
{% set text = "CAST(" ~ column ~ " AS STRING)" -%}
{% if kind not in ("FLOAT", "DOUBLE") -%}
{{ text }}
{%- else -%}
CASE WHEN NOT isnan({{ column }}) THEN CASE
    WHEN isfinite({{ column }}) AND {{ column }} = floor({{ column }}) AND abs({{ column }}) <= {{ MAX_COUNT }}
    THEN {{ column }}::BIGINT::VARCHAR ELSE {{ text }}
END END
{%- endif %}
{%- endmacro %}

{# A zone code, in place of which the zone `unknown` stands if it is one of the codes `nowhere` or, where `is_visible` is
   given, SQL for whether it has a visible character, if it has none. #}
{% macro placed(code, nowhere, is_visible, unknown) -%}
{% set conditions = ["%s IN (%s)" % (code, nowhere | join(", "))] if nowhere else [] -%}
{% set conditions = conditions + ([is_visible ~ " IS NOT TRUE"] if is_visible else []) -%}
{% if conditions %}CASE WHEN {{ conditions | join(" OR ") }} THEN {{ unknown }} ELSE {{ code }} END{% else %}{{ code }}{% endif %}
{%- endmacro %}

{# A count in a column of text or numbers as DOUBLE, NULL if it is not a number. A number above 2^53 becomes infinity, and
   a fraction never becomes a whole number: as DOUBLE, 2^53 + 1 would be 2^53, and the decimal 2.00000000000000000001
   would be 2. A text that ends with a point and three zeros is not a number: 12.000 may mean twelve thousand. A number
   with an exponent is a fraction if its digits, without zeros at their end, reach beyond the point that it moves. #}
{% macro as_count(column, kind="VARCHAR") -%}
CASE
    WHEN TRY_CAST({{ column }} AS HUGEINT) > {{ MAX_COUNT }} THEN 'inf'::DOUBLE
    {% if kind == "DECIMAL" -%}
    WHEN {{ column }} <> trunc({{ column }}) THEN 0.5::DOUBLE
    {%- elif kind == "VARCHAR" -%}
    WHEN contains({{ column }}, '.')
    AND regexp_full_match({{ column }}, '[\s\v]*[-+]?[0-9_]*\.(0_?0_?0|[0-9_]*[1-9][0-9_]*)[\s\v]*')
    THEN CASE WHEN regexp_matches({{ column }}, '\.[0_]*[1-9]') THEN 0.5::DOUBLE END
    WHEN (contains({{ column }}, 'e') OR contains({{ column }}, 'E')) AND list_transform(
        [regexp_extract(replace({{ column }}, '_', ''), '([0-9]*)\.?([0-9]*)[eE]([-+]?[0-9]+)', ['whole', 'part', 'power'])],
        lambda text: length(rtrim(text.whole || text.part, '0'))
            > greatest(length(text.whole) + TRY_CAST(text.power AS DOUBLE), 0)
    )[1] THEN 0.5::DOUBLE
    {%- endif %}
    ELSE TRY_CAST({{ column }} AS DOUBLE)
END
{%- endmacro %}

{# The number of a coordinate's cell along an axis, as text; NULL if it is not between the ends of the axis. The
   arithmetic is that of `compute_cells` in `od_core/stops/geometry.py`. #}
{% macro cell(column, least, most, cells) -%}
{% set number = "TRY_CAST(%s AS DOUBLE)" % column -%}
{% set least, most = "CAST('%r' AS DOUBLE)" % (least | float), "CAST('%r' AS DOUBLE)" % (most | float) -%}
CASE WHEN {{ number }} BETWEEN {{ least }} AND {{ most }} THEN CAST(CAST(
    least(floor(({{ number }} - {{ least }}) / ({{ most }} - {{ least }}) * {{ cells }}), {{ cells - 1 }})
AS BIGINT) AS STRING) END
{%- endmacro %}

{# The band of a number, NULL if it is not finite; NaN is greater than infinity. `below` has the end of each band but the
   last, and the band as SQL. #}
{% macro band(column, below, last) -%}
{% set number = "TRY_CAST(%s AS DOUBLE)" % column -%}
CASE WHEN abs({{ number }}) < CAST('Infinity' AS DOUBLE) THEN CASE
    {% for end, band in below %}WHEN {{ number }} < CAST('{{ "%r" % end }}' AS DOUBLE) THEN {{ band }} {% endfor -%}
    ELSE {{ last }}
END END
{%- endmacro %}
