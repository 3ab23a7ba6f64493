"""A table over all versions in Spark's embedded Hive metastore: python -m tests.services.hive_versions FOLDER.

Prints, as JSON, what a reader finds after each step, and the files of a version that was removed from the table.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pyspark.sql import SparkSession

from lakeward.columns import Column
from lakeward.config import parse_config
from lakeward.views.versions.all_versions import SessionVersions, VersionPart, put_version
from tests.unit.views.manifests import manifest_of

NAME, KEYS = "shop.versions", ("version", "sold")
PLAIN = (Column("id", "int"), Column("name", "string"), Column("sold", "date"))
ADDED = (*PLAIN, Column("More", "string"))
WIDENED = (Column("id", "bigint"), *ADDED[1:])


class Metastore:
    """A session with a metastore in a folder, and versions written there by date."""

    def __init__(self, root: Path) -> None:
        self.out = root / "out/sales.product"
        self.spark = (
            SparkSession.builder.master("local[1]")
            .config("spark.sql.catalogImplementation", "hive")
            .config("spark.sql.warehouse.dir", str(root / "warehouse"))
            .config("spark.ui.enabled", "false")
            .config("spark.hadoop.javax.jdo.option.ConnectionURL", f"jdbc:derby:;databaseName={root}/hive;create=true")
            .getOrCreate()
        )
        context: Any = SimpleNamespace(spark=self.spark, config=parse_config({}, base=root))
        self.catalog = SessionVersions(context)

    def part(self, value: str, rows: list[str], columns: tuple[Column, ...], folder: str = "") -> VersionPart:
        """Write a version by date; rows are lists of SQL literals."""
        place = self.out / f"version={folder or value}"
        names = ", ".join(f"`{column.name}`" for column in columns)
        types = ", ".join(f"CAST(`{column.name}` AS {column.type}) AS `{column.name}`" for column in columns)
        text = ", ".join(f"({row})" for row in rows)
        written = self.spark.sql(f"SELECT {types} FROM VALUES {text} AS t({names})")
        written.write.partitionBy("sold").parquet(str(place))
        files = {file.relative_to(place).as_posix(): file.stat().st_size for file in place.rglob("*.parquet")}
        made = manifest_of(value, files, folder or value)
        dated = {"layout": "dated", "date_column": "sold", "folder_column": "sold"}
        return VersionPart(value, str(place), replace(made, columns=columns, **dated))

    def put(self, part: VersionPart, *others: VersionPart) -> list[list[Any]]:
        """Add or renew a version, and return what a reader finds."""
        put_version(self.catalog, NAME, KEYS[0], part, lambda: others)
        return self.rows()

    def rows(self) -> list[list[Any]]:
        self.spark.sql(f"REFRESH TABLE {NAME}")
        found = self.spark.table(NAME).orderBy("version", "id").collect()
        return [[str(row[name]) for name in ("version", "id", "sold")] + [row.asDict().get("More")] for row in found]


def main(root: Path) -> None:
    """Go through the life of a table, and print what a reader finds."""
    store = Metastore(root)
    first = store.part("a", ["1, 'x', '2020-01-01'", "2, 'y', NULL"], PLAIN)
    second = store.part("b", ["1, 'x', '2020-01-01', 'm'"], ADDED)
    third = store.part("c", ["3, 'z', '2020-01-02', 'n'"], WIDENED)
    found = {"new": store.put(first), "added": store.put(second, first), "widened": store.put(third, first, second)}
    found["renewed"] = store.put(store.part("b", ["9, 'z', NULL, 'o'"], ADDED, folder="b.2"))
    store.catalog.remove(NAME, KEYS, store.catalog.partitions(NAME, KEYS, "a"))
    found["removed"] = store.rows()
    types = [[column.name, column.type] for column in store.catalog.find(NAME).columns]  # type: ignore[union-attr]
    left = len(list((store.out / "version=a").rglob("*.parquet")))
    print(json.dumps({**found, "types": types, "files": left}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
