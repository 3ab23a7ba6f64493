"""CQL types and values: as Cassandra has them, as a snapshot holds them, and the exact way there and back."""

from lakeward.cassandra.types.arrow import arrow_type, spark_type
from lakeward.cassandra.types.binding import to_cql
from lakeward.cassandra.types.cql import CqlType, parse_cql_type
from lakeward.cassandra.types.literals import cql_literal
from lakeward.cassandra.types.reading import to_arrow
from lakeward.cassandra.types.widening import widens

__all__ = [
    "CqlType",
    "arrow_type",
    "cql_literal",
    "parse_cql_type",
    "spark_type",
    "to_arrow",
    "to_cql",
    "widens",
]
