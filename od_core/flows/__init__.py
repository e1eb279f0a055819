"""Release flows: plan, measure, estimate and publish trips between areas at every level of the flow tree."""
