"""Whether a warehouse in S3 can be used, found out without Spark."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from lakeward.lake.iceberg.catalog import CatalogKind, catalog_kind, hadoop_location, is_on_s3
from lakeward.storage.s3 import S3Location, s3_client, s3_errors

if TYPE_CHECKING:
    from lakeward.config import Config


def s3_warehouse(config: Config) -> str | None:
    """Give the place in S3 that the lake's files go to; None where a catalog decides that, or it is elsewhere."""
    kind = catalog_kind(config)
    if kind is CatalogKind.REST or not is_on_s3(config):
        return None
    return (hadoop_location(config) if kind is CatalogKind.HADOOP else None) or config.lake.warehouse


def probe_s3_warehouse(config: Config, warehouse: str) -> None:
    """Put, read, list and delete one small object in the warehouse.

    Raises:
        ConfigurationError: something of it is refused; names the address and the remedy.
        RetriableError: S3 does not answer.
    """
    place = S3Location.parse(warehouse, "lake.warehouse")
    key = "/".join(part for part in (place.prefix, f"lakeward-doctor-{uuid.uuid4().hex}") if part)
    client = s3_client(config.s3, config.s3.keys())
    try:
        with s3_errors(f"s3://{place.bucket}/{key}"):
            client.put_object(Bucket=place.bucket, Key=key, Body=b"lakeward doctor")
            try:
                client.head_object(Bucket=place.bucket, Key=key)
                client.list_objects_v2(Bucket=place.bucket, Prefix=key, MaxKeys=1)
            finally:
                client.delete_object(Bucket=place.bucket, Key=key)
    finally:
        client.close()
