"""Reading a table by ranges of tokens, inside tasks or the driver process."""

from lakeward.cassandra.reading.plan import ReadPlan
from lakeward.cassandra.reading.ranges import read_range, read_ranges

__all__ = ["ReadPlan", "read_range", "read_ranges"]
