"""Exports of a keyspace's tables to a folder of the test's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakeward.cassandra.cql import TableName
from lakeward.cassandra.export import ExportReport, ExportRequest, export_table
from lakeward.config import Config
from lakeward.diffing.stored.open import open_side
from lakeward.session.sessions import table_session

if TYPE_CHECKING:
    from pathlib import Path

    from cassandra.cluster import Session
    from pyspark.sql import SparkSession

    from lakeward.diffing.stored.addresses import Side
    from tests.servers.cassandra import CassandraServer


class Exports:
    """Exports of one keyspace's tables to one folder."""

    def __init__(self, spark: SparkSession, server: CassandraServer, keyspace: str, folder: Path) -> None:
        self.spark, self.server, self.keyspace = table_session(spark), server, keyspace
        self.folder, self.config = folder, Config(base=folder)

    @property
    def session(self) -> Session:
        return self.server.session()

    def run(self, *statements: str) -> None:
        self.session.execute(f"USE {self.keyspace}")
        for statement in statements:
            self.session.execute(statement, timeout=60)

    def export(self, table: str, *, to: str = "out", **choices: Any) -> ExportReport:
        target = to if "://" in to else str(self.folder / to)
        request = ExportRequest(TableName(self.keyspace, table), target, **choices)
        return export_table(self.spark, self.config, self.server.address, request)

    def side(self, path: str) -> Side:
        return open_side(self.spark, self.config, path)
