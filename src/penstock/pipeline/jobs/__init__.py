"""What `penstock pipeline` runs on Spark."""
