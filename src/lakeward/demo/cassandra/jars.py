"""The jars of Apache Cassandra, pinned by size and checksum and fetched once, as those of Spark are."""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING

from lakeward.errors import ConfigurationError
from lakeward.lake.iceberg.jars import Jar, read_pins, resolve_program

if TYPE_CHECKING:
    from pathlib import Path

VERSION = "5.0.9"


@cache
def cassandra_jars() -> tuple[Jar, ...]:
    """List what a server needs."""
    return read_pins("lakeward.demo.cassandra", "cassandra-jars.txt")


def resolve_cassandra() -> list[Path]:
    """Give the paths of all jars of a server, fetching what the cache lacks.

    Raises:
        ConfigurationError: a jar is missing or damaged and cannot be fetched.
    """
    return resolve_program(cassandra_jars())


def main() -> None:
    """Fetch them: for the set-up, so that no test waits for the network."""
    try:
        for resolved in resolve_cassandra():
            print(resolved)
    except ConfigurationError as refused:
        sys.exit(str(refused))


if __name__ == "__main__":
    main()
