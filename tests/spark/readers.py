"""The mirror as engines other than Spark read it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import duckdb
import duckdb_extension_avro
import duckdb_extension_iceberg
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from tests.spark.scene import TABLE, Scene


@contextmanager
def iceberg_table(scene: Scene, name: str) -> Iterator[Table]:
    """Open a table through pyiceberg's own SQLite catalog, which must bear the name that Spark's has."""
    catalog = SqlCatalog("lake", uri=f"sqlite:///{scene.folder}/lake/catalog.db")
    try:
        yield catalog.load_table(name)
    finally:
        catalog.engine.dispose()


def arrow_by_pyiceberg(scene: Scene, name: str = TABLE) -> pa.Table:
    with iceberg_table(scene, name) as table:
        return table.scan().to_arrow()


def rows_by_pyiceberg(scene: Scene, name: str = TABLE) -> list[tuple[Any, ...]]:
    """Rows in order of their text."""
    columns = [column.to_pylist() for column in arrow_by_pyiceberg(scene, name).columns]
    return sorted(zip(*columns, strict=True), key=repr)


def rows_by_duckdb(scene: Scene, name: str = TABLE) -> list[tuple[Any, ...]]:
    """Rows in order of their text."""
    with iceberg_table(scene, name) as table:
        location = table.metadata_location
    with _duckdb() as connection:
        return sorted(connection.execute("SELECT * FROM iceberg_scan(?)", [location]).fetchall(), key=repr)


def _duckdb() -> duckdb.DuckDBPyConnection:
    """DuckDB with the extensions that the development environment pins: nothing is downloaded."""
    connection = duckdb.connect()
    for package, extension in ((duckdb_extension_avro, "avro"), (duckdb_extension_iceberg, "iceberg")):
        [folder] = package.__path__
        connection.load_extension(f"{folder}/extensions/v{duckdb.__version__}/{extension}.duckdb_extension")
    return connection
