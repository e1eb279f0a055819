"""Documents that disclose a published release, for a registry, an evaluator, people in the data and an organisation."""
