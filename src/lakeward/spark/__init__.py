"""The lowest layer that knows Spark: its process, and what its errors mean."""
