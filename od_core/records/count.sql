{# The SQL of a CountQuery, which DuckDB and Spark run alike. Each macro is a query, and `query` is the CountQuery. It reads
   these relations:

   - `records`, with the columns origin and destination (text), in_period and, if the unit or the file needs them, trips,
     weight, person (the user id, NULL if it is not valid), and `segment_` and the name of a breakdown (text);
   - the public relations of `CountQuery.relations`;
   - under a user unit, the `secret` of `CountQuery.secret`.

   **Contribution bound.** All trips of a user above m are dropped before anything is counted. The trips of a user are
   sorted by an HMAC-SHA256, and the first m are counted. Under a unit of a year, fewer are counted if the year allows no
   more (`ledger/user_counters.py`). The HMAC covers the user id, the period, the counted fields, and a number that
   distinguishes trips of this user with equal fields. So the choice depends neither on the order of the records nor on
   the records of other users. The key is chosen without using the data. With the same key, the same trips are chosen when
   the release is run again. If trips are also counted by segment, trips with equal fields may differ in their segments. A
   keyed hash of the segment then decides which of them gets which number. So the bound keeps as many trips of each leaf
   pair as without segments.

   **Weights.** A weight is rounded to the nearest whole number (halves are rounded up) and limited to the declared bound.
   A weight that is missing, negative, infinite or not a number is a fault, and its record is not counted. Such a record
   cannot be assigned to an `unknown` zone either, because it states no number of trips. Dropping it changes the total n,
   but n is not published exactly if there are weights. The share of faults is a share of records, because a faulty record
   has no valid weight. #}

{# Statements for DuckDB alone: functions under their names in Spark, and the view `records` of the relation `loaded`, in
   which a weight is a number and, under a user unit, the user id of a valid one is in the column person. #}
{% macro in_duckdb(query, loaded) %}
CREATE TEMP MACRO sha2(value, bits) AS sha256(value);
CREATE TEMP MACRO conv(value, radix, wanted) AS CAST('0x' || value AS BIGINT);
CREATE TEMP VIEW records AS SELECT *
    {% if query.unit.max_weight is not none %} REPLACE (TRY_CAST(weight AS DOUBLE) AS weight)
    {% elif query.unit.kind != "trip" %}, CASE
        WHEN {% for pattern in id_patterns(query.unit) %}regexp_matches("user", {{ quote_literal(pattern) }}) AND {% endfor %} true
        THEN "user" END AS person
    {% endif %}
FROM {{ loaded }}
{% endmacro %}

{# The HMAC-SHA256 of a text (RFC 2104). `message` is SQL for the text. #}
{% macro hmac(message) -%}
    sha2(secret.outer_key || unhex(sha2(secret.inner_key || CAST({{ message }} AS BINARY), 256)), 256)
{%- endmacro %}

{# The HMAC of a record, which covers its fields and a further text. The message states the bytes of each field in
   hexadecimal, or `-` for a missing field, so it is unambiguous. #}
{% macro record_hmac(last) -%}
    {% set fields = ["person", "secret.period", "origin", "destination", last] | join("), '-') || ',' || coalesce(hex(") %}
    {{ hmac("coalesce(hex(" ~ fields ~ "), '-')") }}
{%- endmacro %}

{# The trips that a record with a weight counts, NULL if the weight, a DOUBLE, is not valid. #}
{% macro counted_trips(query) -%}
    CASE WHEN {{ IS_WEIGHT }} THEN CAST(least(round(weight), {{ query.unit.max_weight }}) AS BIGINT) END
{%- endmacro %}

{# One row per record, before the contribution bound of a user unit, with the columns of `ranked` and, for a user unit,
   person, origin and destination. The hint makes Spark send the zones and categories to all executors, so that it does
   not move the records. #}
{% macro placed(query) %}
{% set is_valid %}
    records.in_period
    {% if query.unit.max_weight is not none %} AND records.trips IS NOT NULL
    {% elif query.unit.kind != "trip" %} AND records.person IS NOT NULL{% endif %}
    {% for one in query.breakdowns if one.unknown is none %} AND segment_{{ one.name }}.category IS NOT NULL{% endfor %}
    {% if query.possible_sql is not none %} AND {{ query.possible_sql }}{% endif %}
{% endset %}
SELECT /*+ BROADCAST(origins, destinations{% for one in query.breakdowns %}, segment_{{ one.name }}{% endfor %}) */
    coalesce(CASE
        WHEN {{ is_valid }}
        {% for side, geography, _ in query.sides if geography.unknown is none %} AND {{ side }}s.code IS NOT NULL{% endfor %}
        THEN {{ query.rank_sql }}
    END, -1) AS rank,
    origins.code IS NULL OR destinations.code IS NULL OR ({{ is_valid }}) IS NOT TRUE AS faulty
    {% if query.unit.kind != "trip" %}, person, records.origin, records.destination
    {% elif query.is_flows or query.unit.max_weight is not none %}, trips{% endif %}
    {% for one, factor in query.segment_factors %}
    {{ ", CAST(" if loop.first else " + " }}
    coalesce(segment_{{ one.name }}.digit, {{ 0 if one.unknown is none else factor * one.categories.index(one.unknown) }})
    {{ " AS INTEGER) AS segment" if loop.last }}
    {% endfor %}
FROM {% if query.unit.max_weight is not none %}(SELECT *, {{ counted_trips(query) }} AS trips FROM records) AS {% endif %} records
{% if not query.is_located %}
LEFT JOIN origin_zones AS origins ON records.origin = origins.code
LEFT JOIN destination_zones AS destinations ON records.destination = destinations.code
{% endif %}
{% for one in query.breakdowns %}
LEFT JOIN segment_{{ one.name }}_list AS segment_{{ one.name }} ON records.segment_{{ one.name }} = segment_{{ one.name }}.category
{% endfor %}
{% endmacro %}

{# One row per record: its rank, whether it is faulty, and its trips. The rank is the position, in tree order, of the
   leaf pair to which the record counts, or -1 if the record is not counted; a record that was dropped earlier is not one
   of the m trips of its user. Unlisted zones and categories are treated as in `count_trips`. The column trips exists only
   for flows and for records with weights. With breakdowns, the column segment is the code of `segments.py`, and 0 for a
   record without one.

   Under a pair cap, the first c trips of each leaf pair are taken from a user's trips in the order of their HMAC, and the
   first m of these are counted, in the same order.

   A keyed hash of the segment orders equal trips. Its word keeps it independent of the other: with equal hashes of
   occurrence 1 and segment 1, of two trips the one in segment 1 would always be counted. #}
{% macro ranked(query) %}
{% set m, c = query.unit.contribution_bound, query.unit.max_trips_pair %}
{% set keyed = record_hmac("CAST(occurrence AS STRING)") %}
{% set of_user = "person, rank < 0" if c is none else "person, rank < 0 OR of_pair > %d" % c %}
{% if query.unit.kind == "trip" %}
{{ placed(query) }}
{% else %}
SELECT faulty{{ ", segment" if query.breakdowns }}, CASE
    WHEN row_number() OVER (PARTITION BY {{ of_user }} ORDER BY {{ "hash" if c is not none else keyed }})
        <= {{ "coalesce(allowed, %d)" % m if query.counters is not none else m }}
    {{ "AND of_pair <= %d" % c if c is not none }}
    THEN rank
    ELSE -1
END AS rank
FROM (
    {% if c is not none %}
    SELECT *, row_number() OVER (PARTITION BY person, rank ORDER BY hash) AS of_pair
    FROM (SELECT numbered.*, {{ keyed }} AS hash FROM (
    {% endif %}
    SELECT placed.*, row_number() OVER (
        PARTITION BY person, rank < 0, origin, destination
        ORDER BY rank{% if query.breakdowns %}, {{ record_hmac("'segment ' || CAST(segment AS STRING)") }}{% endif %}
    ) AS occurrence
    FROM ({{ placed(query) }}) AS placed {{ "CROSS JOIN secret" if query.breakdowns }}
    {{ ") AS numbered CROSS JOIN secret) AS keyed" if c is not none }}
) AS numbered {{ "CROSS JOIN secret" if c is none }}
{% if query.counters is not none %}
LEFT JOIN (SELECT person AS limited, allowed FROM users WHERE allowed < {{ m }}) AS limits ON person = limited
{% endif %}
{% endif %}
{% endmacro %}

{# One row per user of whom a record may be counted: person, the two columns of the hash of a user, allowed (the largest
   number of trips to count), counted (the number of trips to count) and trips (the number of valid trips). Reads the
   relation `allowances`, the table of the same name; any user who is not in it is allowed `others`. #}
{% macro users(query, others) %}
{% set c = query.unit.max_trips_pair %}
SELECT person, hashed.user_high, hashed.user_low, coalesce(allowances.allowed, {{ others }}) AS allowed,
    CAST(least({{ "trips" if c is none else "of_pairs" }}, coalesce(allowances.allowed, {{ others }})) AS INTEGER) AS counted, CAST(trips AS BIGINT) AS trips
FROM (
    SELECT person, trips, {{ "of_pairs," if c is not none }}
        CAST(conv(substr(hash, 1, 15), 16, 10) AS BIGINT) AS user_high,
        CAST(conv(substr(hash, 16, 15), 16, 10) AS BIGINT) AS user_low
    FROM (
        SELECT counts.*, {{ hmac("'user ' || hex(person)") }} AS hash
        FROM (
            {% if c is none %}
            SELECT person, count(*) AS trips FROM ({{ placed(query) }}) AS placed WHERE rank >= 0 GROUP BY person
            {% else %}
            SELECT person, sum(trips) AS trips, sum(least(trips, {{ c }})) AS of_pairs FROM (
                SELECT person, count(*) AS trips FROM ({{ placed(query) }}) AS placed WHERE rank >= 0 GROUP BY person, rank
            ) AS pairs GROUP BY person
            {% endif %}
        ) AS counts
        CROSS JOIN secret
    ) AS keyed
) AS hashed
LEFT JOIN allowances ON hashed.user_high = allowances.user_high AND hashed.user_low = allowances.user_low
{% endmacro %}

{# The rows of a file of counters (`SCHEMA` in `ledger/user_counters.py`), from the relation `users`. #}
{% macro counters(query) %}
SELECT user_high, user_low, counted, trips FROM users
{% endmacro %}

{# One row per record: its rank, its segment if there are breakdowns, its trips, and the number of faulty trips. If the
   unit bounds weights, `faulty` is the number of faulty records, and a further column `counted` is the number of all
   records. `ranked` is the SQL of that name in brackets, or the name of a relation with its result. #}
{% macro by_row(query, ranked) %}
{% set has_trips = query.is_flows or query.unit.max_weight is not none %}
SELECT {{ query.group_columns }},
    {{ "coalesce(CAST(trips AS BIGINT), 0)" if has_trips else "CAST(1 AS BIGINT)" }} AS trips,
    CASE WHEN faulty THEN {{ "coalesce(CAST(trips AS BIGINT), 0)" if query.is_flows else "CAST(1 AS BIGINT)" }} ELSE 0 END AS faulty
    {{ ", CAST(1 AS BIGINT) AS counted" if query.unit.max_weight is not none }}
FROM {{ ranked }}
{% endmacro %}

{# The sums of `by_row` for each rank, and segment if there are breakdowns, in any order. #}
{% macro by_rank(query, ranked) %}
SELECT {{ query.group_columns }}, CAST(sum(trips) AS BIGINT) AS trips, CAST(sum(faulty) AS BIGINT) AS faulty
    {{ ", CAST(sum(counted) AS BIGINT) AS counted" if query.unit.max_weight is not none }}
FROM ({{ by_row(query, ranked) }}) AS each_row
GROUP BY {{ query.group_columns }}
{% endmacro %}

{# What is probably wrong with most unlisted zone codes. One row, with the columns `lost`, whether they have lost their
   leading zeros: they are listed once they are padded with zeros to the usual length of the codes; and `encoded`, whether
   they are listed but for the encoding of their accents. #}
{% macro most_unlisted(query) %}
SELECT 2 * count(listed) > count(*) AS lost, 2 * count(CASE WHEN encoded THEN 1 END) > count(*) AS encoded FROM (
    {% for side, geography, _ in query.sides %}
    SELECT listed.code AS listed, encoded FROM (
        SELECT {{ make_zero_padding_sql("records." ~ side, geography.zones) }} AS filled,
            {{ make_other_encoding_sql("records." ~ side, geography.zones) }} AS encoded
        FROM records LEFT JOIN {{ side }}_zones AS zones ON records.{{ side }} = zones.code
        WHERE records.{{ side }} IS NOT NULL AND zones.code IS NULL
    ) AS unlisted LEFT JOIN {{ side }}_zones AS listed ON unlisted.filled = listed.code
    {{ "UNION ALL" if not loop.last }}
    {% endfor %}
) AS both_sides
{% endmacro %}

{# For each kind of invalid count, in the order in which they are reported, the least `row` of the flows that have it, and
   for a sum that is too large -1; NULL without one. One row, which begins with the number of flows. #}
{% macro bad_counts(query, flows, row) %}
{% set conditions = ["trips IS NULL OR isnan(CAST(trips AS DOUBLE))", "trips < 0", "trips > %d" % MAX_COUNT, "trips != floor(trips)"] %}
SELECT count(*)
    {% for one in conditions %}, min({{ row }}) FILTER (WHERE {{ one }}){% endfor %}
    , CASE WHEN sum(TRY_CAST(trips AS DECIMAL(38, 0))) > {{ MAX_COUNT }} THEN -1 END
FROM {{ flows }}
{% endmacro %}
