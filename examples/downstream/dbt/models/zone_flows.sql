WITH flows AS (
    SELECT
        *,
        parse_path(filename)[-4] AS period,
        CAST(substr(parse_path(filename)[-3], 2) AS INTEGER) AS revision
    FROM {{ source('my_city', 'flows') }}
    WHERE origin_level = 'zone' AND destination_level = 'zone'
)

SELECT period, revision, origin, destination, trips, lower, upper
FROM flows
QUALIFY revision = max(revision) OVER (PARTITION BY period)
