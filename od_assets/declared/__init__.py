"""Read what projects declare, and check it, without Dagster. Components build Dagster definitions from it."""
