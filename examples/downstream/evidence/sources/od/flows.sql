SELECT period, origin, destination, trips, lower, upper
FROM flows
WHERE origin_level = 'zone' AND destination_level = 'zone'
