"""Run counting and parts on Spark: the only package that imports PySpark."""
