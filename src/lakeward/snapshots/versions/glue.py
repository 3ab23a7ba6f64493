"""External tables of AWS Glue that point to a version, for Athena and whoever reads by Glue's catalog."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import parse_qsl, unquote

from lakeward.errors import ConfigurationError
from lakeward.storage.s3 import s3_errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakeward.config import Config
    from lakeward.snapshots.versions.manifest import Manifest

Value = TypeVar("Value")

OWN_PARAMETER = "lakeward.table"
_CREATED_AT_ONCE, _DELETED_AT_ONCE = 100, 25
_HADOOP = "org.apache.hadoop"
_FORMATS = {
    "parquet": (
        f"{_HADOOP}.hive.ql.io.parquet.MapredParquetInputFormat",
        f"{_HADOOP}.hive.ql.io.parquet.MapredParquetOutputFormat",
        f"{_HADOOP}.hive.ql.io.parquet.serde.ParquetHiveSerDe",
    ),
    "orc": (
        f"{_HADOOP}.hive.ql.io.orc.OrcInputFormat",
        f"{_HADOOP}.hive.ql.io.orc.OrcOutputFormat",
        f"{_HADOOP}.hive.ql.io.orc.OrcSerde",
    ),
    "csv": (
        f"{_HADOOP}.mapred.TextInputFormat",
        f"{_HADOOP}.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
        f"{_HADOOP}.hive.serde2.OpenCSVSerde",
    ),
    "json": (
        f"{_HADOOP}.mapred.TextInputFormat",
        f"{_HADOOP}.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
        "org.openx.data.jsonserde.JsonSerDe",
    ),
}
# Hive knows one type of timestamp.
_TYPES = {"timestamp_ntz": "timestamp"}


class GlueTables:
    """Tables of one account's Glue catalog."""

    def __init__(self, client: Any, account: str | None = None) -> None:
        """Use a boto3 client; ``account`` names another account's catalog."""
        self._client = client
        self._catalog = {"CatalogId": account} if account else {}

    @classmethod
    @contextmanager
    def open(cls, config: Config) -> Iterator[Self]:
        """Open the catalog that ``lake.catalog: glue://`` names."""
        try:
            import boto3
        except ImportError as error:
            msg = f"Glue needs boto3, which is not installed ({error.name})"
            raise ConfigurationError(msg, hint="pip install 'lakeward[aws]'") from error
        account, _, query = config.lake.catalog.removeprefix("glue://").partition("?")
        region = dict(parse_qsl(query)).get("region") or config.s3.region
        with s3_errors("glue://"):
            client = boto3.client("glue", region_name=region)
        try:
            yield cls(client, account.strip("/") or None)
        finally:
            client.close()

    def point(self, name: str, location: str, manifest: Manifest) -> None:
        """Point a table to a version with its partitions.

        Raises:
            ConfigurationError: a table of the name is there that is not Lakeward's, or Glue refuses.
        """
        database, table = name.split(".")
        where = {**self._catalog, "DatabaseName": database}
        wanted = _table_input(table, location, manifest)
        with s3_errors(f"glue://{name}"):
            present = self._find(database, table)
            if present is None:
                self._create_database(database)
                self._client.create_table(**where, TableInput=wanted)
            elif OWN_PARAMETER not in present.get("Parameters", {}):
                msg = f"Glue's table {name} is there already and was not made by Lakeward"
                raise ConfigurationError(msg, hint="--register ANOTHER.NAME")
            else:
                self._drop_partitions(database, table)
                self._client.update_table(**where, TableInput=wanted)
            self._add_partitions(database, table, location, manifest)

    def points_to(self, name: str, location: str) -> bool:
        """Tell whether a table of Lakeward's points to a version."""
        with s3_errors(f"glue://{name}"):
            found = self._find(*name.split("."))
        if found is None or OWN_PARAMETER not in found.get("Parameters", {}):
            return False
        return bool(found["StorageDescriptor"]["Location"] == _for_glue(location))

    def _find(self, database: str, table: str) -> Mapping[str, Any] | None:
        try:
            found: Mapping[str, Any] = self._client.get_table(**self._catalog, DatabaseName=database, Name=table)
        except self._client.exceptions.EntityNotFoundException:
            return None
        inner: Mapping[str, Any] = found["Table"]
        return inner

    def _create_database(self, database: str) -> None:
        try:
            self._client.create_database(**self._catalog, DatabaseInput={"Name": database})
        except self._client.exceptions.AlreadyExistsException:
            return

    def _drop_partitions(self, database: str, table: str) -> None:
        where = {**self._catalog, "DatabaseName": database, "TableName": table}
        pages = self._client.get_paginator("get_partitions").paginate(**where)
        values = [one["Values"] for page in pages for one in page["Partitions"]]
        for some in _chunks(values, _DELETED_AT_ONCE):
            self._client.batch_delete_partition(**where, PartitionsToDelete=[{"Values": one} for one in some])

    def _add_partitions(self, database: str, table: str, location: str, manifest: Manifest) -> None:
        where = {**self._catalog, "DatabaseName": database, "TableName": table}
        folders = sorted({path.split("/")[0] for path in manifest.files}) if manifest.folder_column else []
        for some in _chunks(folders, _CREATED_AT_ONCE):
            wanted = [
                {
                    "Values": [unquote(folder.rpartition("=")[2])],
                    "StorageDescriptor": _storage(f"{location}/{folder}", manifest),
                }
                for folder in some
            ]
            answer = self._client.batch_create_partition(**where, PartitionInputList=wanted)
            if refused := answer.get("Errors"):
                told = refused[0].get("ErrorDetail", {}).get("ErrorMessage", "no reason given")
                msg = f"Glue refused {len(refused)} partitions of {database}.{table}: {told}"
                raise ConfigurationError(msg, hint="check the rights of the role, then register again with --replace")


def _chunks(values: Sequence[Value], size: int) -> Iterator[Sequence[Value]]:
    return (values[start : start + size] for start in range(0, len(values), size))


def _table_input(table: str, location: str, manifest: Manifest) -> dict[str, Any]:
    dated = [{"Name": manifest.folder_column, "Type": "date"}] if manifest.folder_column else []
    return {
        "Name": table,
        "TableType": "EXTERNAL_TABLE",
        "Parameters": {
            "EXTERNAL": "TRUE",
            "classification": manifest.format,
            OWN_PARAMETER: manifest.table,
            "lakeward.version": manifest.version,
            **({"skip.header.line.count": "1"} if manifest.format == "csv" else {}),
        },
        "PartitionKeys": dated,
        "StorageDescriptor": _storage(location, manifest),
    }


def _storage(location: str, manifest: Manifest) -> dict[str, Any]:
    reads, writes, serde = _FORMATS[manifest.format]
    held = [one for one in manifest.columns if one.name != manifest.folder_column]
    return {
        "Columns": [{"Name": one.name, "Type": _TYPES.get(one.lake_type, one.lake_type)} for one in held],
        "Location": _for_glue(location),
        "InputFormat": reads,
        "OutputFormat": writes,
        "SerdeInfo": {"SerializationLibrary": serde},
    }


def _for_glue(location: str) -> str:
    return location.replace("s3a://", "s3://", 1)
