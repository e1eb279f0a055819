{# Queries over files of counters of users. `files` are those of each elementary period, and `unit` has the bounds m
   (contribution_bound) and M (max_trips_year). #}

{# The number of trips that each user has used in some periods. In a period, it is the largest number that any of its
   files has. #}
{% macro used(files) -%}
SELECT user_high, user_low, sum(counted) AS used FROM (
    SELECT 0::BIGINT AS user_high, 0::BIGINT AS user_low, 0 AS counted WHERE false
    {% for paths in files.values() %}
    UNION ALL SELECT user_high, user_low, max(counted) AS counted FROM (
        {% for path in paths %}
        SELECT user_high, user_low, counted FROM {{ parquet_rows(path) }} {{ "UNION ALL" if not loop.last }}
        {% endfor %}
    ) GROUP BY user_high, user_low
    {% endfor %}
) GROUP BY user_high, user_low
{%- endmacro %}

{# The number of trips that is allowed of each user of whom less than m is left. #}
{% macro allowances(files, unit) -%}
SELECT user_high, user_low, CAST(greatest({{ unit.max_trips_year }} - used, 0) AS INTEGER) AS allowed
FROM ({{ used(files) }}) WHERE {{ unit.max_trips_year }} - used < {{ unit.contribution_bound }}
{%- endmacro %}

{# Whether no user exceeds a bound, and the counters of the release in the file `own` sum to the number of its trips. #}
{% macro are_within(files, unit, own, trips) -%}
SELECT coalesce((SELECT max(used) FROM ({{ used(files) }})), 0) <= {{ unit.max_trips_year }}
    AND coalesce((SELECT max(counted) FROM {{ parquet_rows(own) }}), 0) <= {{ unit.contribution_bound }}
    AND coalesce((SELECT sum(counted) FROM {{ parquet_rows(own) }}), 0) = {{ trips }}
{%- endmacro %}

{# The number of trips that are not counted, where at most `most` of a user are considered. #}
{% macro uncounted(own, most) -%}
SELECT coalesce(sum(least(trips, {{ most }}) - counted), 0) FROM {{ parquet_rows(own) }}
{%- endmacro %}
