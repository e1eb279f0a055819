{# Queries for the rows of a text, in DuckDB. `file` is a RecordFile. Every option is stated, because DuckDB would guess
   others from a sample, so one record could change how others are read. With `hive_partitioning = false`, a folder named
   `origin=x` does not become a column. The option `parallel = false` is not set: with it, DuckDB accepts long files whose
   fields contain line breaks, but it also silently drops everything after a quote that is not closed. With several
   threads, DuckDB refuses both. #}
{% macro read_csv(file, columns, fields) -%}
SELECT * FROM read_csv({{ quote_literal(file_name(file.source)) }}, columns = {{ "{" ~ columns ~ "}" }}, {{ fields }},
    auto_detect = false, comment = '', nullstr = '', null_padding = false, ignore_errors = false, strict_mode = true,
    hive_partitioning = false, encoding = '{{ file.form.text_encoding }}',
    compression = '{{ "gzip" if is_compressed(file.source) else "none" }}')
{%- endmacro %}

{# The columns of a CSV file as text, with the given names. #}
{% macro csv(file, names) -%}
{% set columns %}{% for name in names %}{{ quote_literal(name) }}: 'VARCHAR'{{ ", " if not loop.last }}{% endfor %}{% endset -%}
{{ read_csv(file, columns, "header = true, delim = %s, quote = '\"', escape = '\"'" % quote_literal(file.form.delimiter or ",")) }}
{%- endmacro %}

{# The fields of every line, which are separated by blanks. A line with more or fewer makes the file unreadable, as in
   CSV. Each line is read as one field: no readable file has the character that delimits fields here. #}
{% macro lines(file) -%}
{% set names = file.form.fields -%}
SELECT
    {% for name in names %}fields[{{ loop.index }}] AS {{ quote_identifier(name) }}, {% endfor %}
FROM (
    SELECT CASE WHEN len(fields) = {{ names | length }} THEN fields ELSE error('a line with other fields: ' || line) END AS fields
    FROM (
        SELECT line, list_filter(string_split(line, ' '), lambda field: field <> '') AS fields
        FROM ({{ read_csv(file, "'line': 'VARCHAR'", "header = false, delim = '\u0001', quote = '', escape = ''") }})
    ) WHERE len(fields) > 0
)
{%- endmacro %}
