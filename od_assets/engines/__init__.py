"""Run steps of a release by the engine that its declaration names: this process, or Spark."""
