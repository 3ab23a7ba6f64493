"""A scene whose landing and lake are in S3: the tests of the local disk run on it as they are."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.spark.scene import TABLE, Scene

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.s3.bucket import Bucket
    from tests.servers.s3 import S3Server

LANDING = "land ing/from dms+1"
# A server that was stopped does not return: tests need not wait as long as production does.
QUICK = {"s3.retry.num-retries": "2", "s3.retry.min-wait-ms": "50", "s3.retry.max-wait-ms": "100"}


def rest_lake(server: S3Server, table_bucket: str) -> dict[str, Any]:
    """Describe a lake in the Iceberg REST catalog of a server."""
    return {
        "catalog": f"rest+{server.catalog}",
        "warehouse": f"s3://{table_bucket}",
        "properties": {
            **QUICK,
            "credential": "env:TEST_CATALOG_CREDENTIAL",
            "oauth2-server-uri": f"{server.catalog}/v1/oauth/tokens",
        },
    }


@dataclass
class LandedObject:
    """An object in landing, with as much of a path's manners as tests need."""

    bucket: Bucket
    key: str

    def write_text(self, text: str, encoding: str = "utf-8") -> int:
        self.bucket.put(self.key, text.encode(encoding))
        return len(text)

    def unlink(self) -> None:
        self.bucket.remove(self.key)

    def exists(self) -> bool:
        return self.key in self.bucket.keys(self.key)

    def __str__(self) -> str:
        return f"s3://{self.bucket.name}/{self.key}"


class S3Scene(Scene):
    """Landing files are objects; only the state store, and a SQLite catalog, are in a folder."""

    def __init__(self, folder: Path, spark: SparkSession, bucket: Bucket, **lake: Any) -> None:
        super().__init__(folder, spark)
        self.bucket = bucket
        self.configure(
            landing=f"s3a://{bucket.name}/{LANDING}",
            lake={"warehouse": f"s3://{bucket.name}/lake", "properties": QUICK, **lake},
            s3=bucket.settings.model_dump(exclude_none=True),
        )

    def land_bytes(self, name: str, data: bytes, *, folder: str | None = None, mtime: float | None = None) -> Any:
        assert mtime is None, "an object's time is the server's"
        key = f"{LANDING}/{folder if folder is not None else TABLE.replace('.', '/')}/{name}"
        self.bucket.put(key, data)
        return LandedObject(self.bucket, key)

    def land_parquet(
        self,
        name: str,
        columns: dict[str, Sequence[Any] | pa.Array],
        *,
        folder: str | None = None,
        mtime: float | None = None,
    ) -> Any:
        content = io.BytesIO()
        pq.write_table(pa.table(columns), content)
        return self.land_bytes(name, content.getvalue(), folder=folder, mtime=mtime)

    def landed(self, folder: str) -> set[str]:
        paths = (key.removeprefix(f"{LANDING}/") for key in self.bucket.keys(f"{LANDING}/{folder}/"))
        return {path for path in paths if path.endswith(".csv")}

    def remove_folder(self, folder: str) -> None:
        self.bucket.remove(*self.bucket.keys(f"{LANDING}/{folder}/"))
