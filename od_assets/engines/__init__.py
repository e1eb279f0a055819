"""Run steps of a release with the engine that its declaration names: threads of this process, or Spark."""
