"""Run counting and parts on Spark; this is the only package that imports PySpark."""
