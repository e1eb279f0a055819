"""Plan, measure, estimate and publish flows: numbers of trips between areas, at every level of the flow tree."""
