"""The data pipeline on Spark: a source and a sink for DataFrames, and the tables made from the change log."""
