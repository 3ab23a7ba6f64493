"""Exports made without a cluster: rows, a schema and a time are enough."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lakeward.cassandra.cql import TableName, parse_cql_type
from lakeward.cassandra.schema import ColumnKind, CqlColumn, TableSchema
from lakeward.cassandra.snapshots import snapshot_struct
from lakeward.storage.filesystem import LocalFileSystem
from lakeward.storage.publish import publish_folder
from lakeward.storage.sets import write_set

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lakeward.storage.claims import Claim

ORDERS = TableName("shop", "orders")


def schema_of(columns: str, name: TableName = ORDERS) -> TableSchema:
    """Read columns such as ``customer text pk, day date ck, total decimal, note text static``."""
    kinds = {"pk": ColumnKind.PARTITION_KEY, "ck": ColumnKind.CLUSTERING, "static": ColumnKind.STATIC}
    found: list[CqlColumn] = []
    for part in columns.split(", "):
        column, cql, *rest = part.split(" ")
        kind = kinds[rest[0]] if rest else ColumnKind.REGULAR
        position = sum(column.kind is kind for column in found) if kind.is_key else -1
        found.append(CqlColumn(column, parse_cql_type(cql, {}), kind, position))
    return TableSchema(name, tuple(found), {})


def export(
    spark: Any, to: Path, schema: TableSchema, started: str, rows: Sequence[tuple[Any, ...]], **block: Any
) -> str:
    """Write an export as the command does; ``started`` is a minute, ``block`` replaces values in its manifest."""
    moment = datetime.fromisoformat(started).replace(tzinfo=UTC)
    folder = f"{to}/{schema.name.keyspace}/{schema.name.table}/snapshot/" + moment.strftime(
        "year=%Y/month=%m/day=%d/hour=%H/minute=%M"
    )
    times = {"writetime": block.get("writetime", False), "ttl": block.get("ttl", False)}
    struct = snapshot_struct(schema, block.get("columns") or None, **times)
    store = LocalFileSystem()

    def write(claim: Claim) -> str:
        layout = write_set(spark.createDataFrame(rows, struct), claim.store, claim.folder, schema.primary_key)
        document = {
            "kind": "export",
            "lakeward": "0",
            "id": uuid.uuid4().hex,
            "table": str(schema.name),
            "created": moment.isoformat(),
            "rows": layout.rows,
            "checksum": layout.checksum,
            "primary_key": list(schema.primary_key),
            "format": "parquet",
            "schema": [{"name": field.name, "type": field.dataType.jsonValue()} for field in struct.fields],
            "set": layout.to_dict(),
            "files": [{"path": bucket.path, "size": bucket.size} for bucket in layout.buckets],
            "cassandra": {
                "cluster": "prod",
                "keyspace": schema.name.keyspace,
                "table": schema.name.table,
                "schema": schema.to_dict(),
                "started": moment.isoformat(),
                "ended": moment.isoformat(),
                "consistency": "LOCAL_QUORUM",
                "partitioner": "Murmur3Partitioner",
                "where": None,
                "columns": [],
                "ranges": [],
                **times,
                **block,
            },
        }
        return folder, json.dumps(document)

    return publish_folder(store, folder, write)
