"""Count records, and run the parts of a release, on Spark. No other package of this project imports PySpark."""
