"""A DMS walkthrough deployment: the DynamoDB table of its controller."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.servers.moto import moto_client

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

TABLE = "DMSCDC_Controller"


def item(
    path: str = "raw/dms/sales/product/",
    *,
    key: str | None = "null",
    partition: str | None = "null",
    flag: str | None = "false",
    bucket: str | None = "raw",
    **other: Any,
) -> dict[str, Any]:
    """An item as the walkthrough's controller writes it."""
    texts = {
        "path": path, "bucket": bucket, "prefix": "dms/sales/", "folder": "product/", "PrimaryKey": key,
        "PartitionKey": partition, "LastFullLoadDate": "1900-01-01 00:00:00",
        "LastIncrementalFile": f"{path}0.parquet", "ActiveFlag": flag,
    }  # fmt: skip
    return {name: {"S": text} for name, text in texts.items() if text is not None} | other


@contextmanager
def deployed(endpoint: str, items: Iterable[dict[str, Any]]) -> Iterator[None]:
    """Keep the controller's table with these items for the time of a ``with`` block."""
    client = moto_client("dynamodb", endpoint)
    client.create_table(
        TableName=TABLE,
        KeySchema=[{"AttributeName": "path", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "path", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    try:
        for found in items:
            client.put_item(TableName=TABLE, Item=found)
        yield
    finally:
        client.delete_table(TableName=TABLE)
        client.close()
