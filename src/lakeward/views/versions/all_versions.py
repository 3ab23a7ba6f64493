"""External tables over all scheduled versions of a table, partitioned by version; beside those that point to one.

Adding, moving or removing a version changes its own partitions alone. The table's columns are those of all versions:
a column that a version lacks is null in it, and a widened one has its widest type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote

from lakeward.columns import Column, can_widen, quote_name
from lakeward.errors import ConfigurationError
from lakeward.mirror.op.steps import Step
from lakeward.session.catalog import CatalogKind, catalog_kind
from lakeward.storage.filesystem import open_filesystem
from lakeward.storage.s3 import s3_errors
from lakeward.views.versions.folders import table_uuid
from lakeward.views.versions.layouts import NO_DATE, reader_options
from lakeward.views.versions.register import (
    ALL_VERSIONS,
    CREATED_AT_ONCE,
    DELETED_AT_ONCE,
    OWN_MIRROR,
    OWN_PROPERTY,
    SESSION_CATALOG,
    GlueTables,
    chunks,
    glue_type,
    session_name,
    sql_text,
    storage_descriptor,
    table_columns,
    why_not_own,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from typing import Any

    from pyspark.sql import SparkSession

    from lakeward.mirror.op.context import TableContext
    from lakeward.storage.filesystem import FileSystem
    from lakeward.views.versions.manifest import Manifest


@dataclass(frozen=True)
class VersionPart:
    """One version in a table over all versions: its value in the partition column, its folder and its manifest."""

    value: str
    location: str
    manifest: Manifest

    @property
    def folders(self) -> dict[tuple[str, ...], str]:
        """The folders of its partitions by their values: one, or one for each date."""
        if not self.manifest.folder_column:
            return {(self.value,): self.location}
        names = sorted({path.split("/")[0] for path in self.manifest.files})
        return {(self.value, unquote(name.rpartition("=")[2])): f"{self.location}/{name}" for name in names}


@dataclass(frozen=True)
class FoundTable:
    """A table of a catalog: its properties, the columns of its files, and those that it is partitioned by."""

    properties: Mapping[str, str]
    columns: tuple[Column, ...]
    partitioned_by: tuple[str, ...]


class Catalog(Protocol):
    """A catalog with external tables over all versions; ``name`` is ``database.table``, partitions are their values."""

    def find(self, name: str) -> FoundTable | None:
        """Return a table, None where there is none of that name."""
        ...

    def column_type(self, lake_type: str, manifest: Manifest) -> str:
        """Return the catalog's name of a type, for files like those of the manifest."""
        ...

    def create(self, name: str, root: str, column: str, columns: Sequence[Column], manifest: Manifest) -> None:
        """Create an empty table for versions like that of the manifest."""
        ...

    def widen(self, name: str, before: Sequence[Column], columns: Sequence[Column]) -> bool:
        """Change the columns of a table; return False where the table must be created again instead."""
        ...

    def drop(self, name: str) -> None:
        """Drop a table, and no file of it."""
        ...

    def partitions(self, name: str, keys: Sequence[str], value: str) -> set[tuple[str, ...]]:
        """Return the partitions of one version."""
        ...

    def add(self, name: str, keys: Sequence[str], part: VersionPart, folders: Mapping[tuple[str, ...], str]) -> None:
        """Add partitions of a version."""
        ...

    def move(self, name: str, keys: Sequence[str], part: VersionPart, folders: Mapping[tuple[str, ...], str]) -> None:
        """Point partitions of a version to these folders."""
        ...

    def remove(self, name: str, keys: Sequence[str], partitions: Collection[tuple[str, ...]]) -> None:
        """Remove partitions, and no file of them."""
        ...


def list_version(
    context: TableContext, name: str, column: str, part: VersionPart, others: Callable[[], Iterable[VersionPart]]
) -> None:
    """Add a version to the table over all versions, or renew it there; a new table gets the ``others``, too.

    Raises:
        ConfigurationError: the name is taken, or the version does not fit the table.
    """
    with _catalog(context) as catalog:
        put_version(catalog, name, column, part, others)
    context.reached(Step.PUBLISH_LISTED)


def unlist_version(
    context: TableContext, name: str, owner: str, value: str, instead: Sequence[VersionPart] = ()
) -> None:
    """Remove a version from a table over all versions, if that exists and was made for ``owner``.

    ``instead`` are other versions of the same value: the first one that fits the table takes its place.
    """
    with _catalog(context) as catalog:
        found = catalog.find(name)
        if found is None or not _is_own(found, owner, table_uuid(context)):
            return
        take_out(catalog, name, found, value, instead)
    context.reached(Step.PUBLISH_UNLISTED)


def take_out(catalog: Catalog, name: str, found: FoundTable, value: str, instead: Sequence[VersionPart] = ()) -> None:
    """Remove the partitions of a version, or make them those of another one with the same value."""
    keys = found.partitioned_by
    if not (partitions := catalog.partitions(name, keys, value)):
        return
    if (other := next((part for part in instead if _fits(catalog, name, found, part)), None)) is not None:
        _put_partitions(catalog, name, keys, other)
    else:
        catalog.remove(name, keys, partitions)


def _fits(catalog: Catalog, name: str, found: FoundTable, part: VersionPart) -> bool:
    """Whether a version can be in a table as that is."""
    try:
        _require_own(found, name, found.partitioned_by[0], part.manifest)
        is_csv = part.manifest.format == "csv"
        return merged_columns(name, found.columns, _columns(catalog, part), by_position=is_csv) == found.columns
    except ConfigurationError:
        return False


def is_listed(context: TableContext, name: str) -> bool:
    """Whether a table over all versions of this table exists."""
    with _catalog(context) as catalog:
        found = catalog.find(name)
        return found is not None and _is_own(found, str(context.table), table_uuid(context))


def is_of_other_shape(context: TableContext, name: str, column: str, manifest: Manifest) -> bool:
    """Whether a table over all versions of this table exists, and a version has another format or other folders."""
    with _catalog(context) as catalog:
        found = catalog.find(name)
    if found is None or not _is_own(found, manifest.table, manifest.lineage.mirror_uuid):
        return False
    return not _has_shape(found, column, manifest)


def put_version(
    catalog: Catalog, name: str, column: str, part: VersionPart, others: Callable[[], Iterable[VersionPart]]
) -> None:
    """Add or renew a version, and with it all ``others`` where the table must be created.

    Raises:
        ConfigurationError: the name is taken, or the version does not fit the table.
    """
    require_free_column(part.manifest, column)
    found = catalog.find(name)
    if found is not None:
        _require_own(found, name, column, part.manifest)
    before = found.columns if found is not None else ()
    is_csv = part.manifest.format == "csv"
    columns = merged_columns(name, before, _columns(catalog, part), by_position=is_csv)
    parts = [part]
    if found is None or (columns != before and not catalog.widen(name, before, columns)):
        parts = [part, *(other for other in others() if other.value != part.value)]
        for other in parts[1:]:
            columns = merged_columns(name, columns, _columns(catalog, other), by_position=is_csv)
        if found is not None:
            catalog.drop(name)
        catalog.create(name, part.location.rpartition("/")[0], column, columns, part.manifest)
    for each in parts:
        _put_partitions(catalog, name, _partitioned_by(column, each.manifest), each)


def require_free_column(manifest: Manifest, column: str) -> None:
    """Refuse a partition column that has the name of a column of the version.

    Raises:
        ConfigurationError: it has.
    """
    taken = next((name for name, _ in table_columns(manifest) if name.casefold() == column.casefold()), None)
    if taken is not None:
        msg = f"{manifest.table} has a column {taken!r}: a table over all versions cannot be partitioned by that name"
        raise ConfigurationError(msg, hint="snapshots: {version_column: snapshot_version}")


def merged_columns(
    name: str, present: Sequence[Column], added: Sequence[Column], *, by_position: bool = False
) -> tuple[Column, ...]:
    """Return the columns of a table after a version with the columns ``added``; without ``present`` it is the first.

    ``by_position``: values are found by their position, so that no version may have other columns.

    Raises:
        ConfigurationError: the version does not fit the table.
    """
    if by_position and present and _folded(added) != _folded(present):
        msg = (
            f"{name}: its versions are in CSV, which finds columns by position, and this one has other columns: "
            f"{_shown(added)}; those of the table: {_shown(present)}"
        )
        raise _unfitting(msg)
    columns = {column.name.casefold(): column for column in present}
    if len({column.name.casefold() for column in added}) != len(added):
        msg = f"{name}: columns that differ only in case cannot be told apart in such a table: {_shown(added)}"
        raise _unfitting(msg)
    for column in added:
        known = columns.setdefault(column.name.casefold(), column)
        if can_widen(column.type, known.type):
            continue
        if not can_widen(known.type, column.type):
            msg = f"{name}: column {column.name!r} is {column.type} in this version and {known.type} in others"
            raise _unfitting(msg)
        columns[column.name.casefold()] = Column(known.name, column.type)
    return tuple(columns.values())


def _folded(columns: Iterable[Column]) -> list[tuple[str, str]]:
    """Return columns as catalogs compare them, which keep no case."""
    return [(column.name.casefold(), column.type) for column in columns]


def _unfitting(msg: str) -> ConfigurationError:
    return ConfigurationError(msg, hint="snapshots: {register_all: ANOTHER.NAME}   (begins a new table)")


def _shown(columns: Iterable[Column]) -> str:
    return ", ".join(f"{column.name} {column.type}" for column in columns) or "none"


def _columns(catalog: Catalog, part: VersionPart) -> tuple[Column, ...]:
    """Return the columns that a version's files hold, in the catalog's types."""
    held = [column for column in part.manifest.columns if column.name != part.manifest.folder_column]
    return tuple(Column(column.name, catalog.column_type(column.lake_type, part.manifest)) for column in held)


def _partitioned_by(column: str, manifest: Manifest) -> tuple[str, ...]:
    return (column, manifest.folder_column) if manifest.folder_column else (column,)


def _is_own(found: FoundTable, table: str, mirror_uuid: str) -> bool:
    return why_not_own(found.properties, table, mirror_uuid) is None and ALL_VERSIONS in found.properties


def _require_own(found: FoundTable, name: str, column: str, manifest: Manifest) -> None:
    if not _is_own(found, manifest.table, manifest.lineage.mirror_uuid):
        why = why_not_own(found.properties, manifest.table, manifest.lineage.mirror_uuid)
        msg = f"the table {name} exists already and is not one that Lakeward made over all versions of {manifest.table}"
        msg += f": it {why}" if why is not None else ""
        raise ConfigurationError(msg, hint="snapshots: {register_all: ANOTHER.NAME}")
    if not _has_shape(found, column, manifest):
        present, wanted = (_folded_names(names) for names in (found.partitioned_by, _partitioned_by(column, manifest)))
        msg = (
            f"the table {name} holds versions in {found.properties[ALL_VERSIONS]} partitioned by {', '.join(present)}; "
            f"this one is in {manifest.format}, by {', '.join(wanted)}"
        )
        raise _unfitting(msg)


def _has_shape(found: FoundTable, column: str, manifest: Manifest) -> bool:
    wanted = (_folded_names(_partitioned_by(column, manifest)), manifest.format)
    return (_folded_names(found.partitioned_by), found.properties[ALL_VERSIONS]) == wanted


def _folded_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return names as catalogs compare them, which keep no case."""
    return tuple(name.casefold() for name in names)


def _put_partitions(catalog: Catalog, name: str, keys: Sequence[str], part: VersionPart) -> None:
    """Make the partitions of a version those of its folders; none is absent in between that stays."""
    wanted, present = part.folders, catalog.partitions(name, keys, part.value)
    if stay := {values: folder for values, folder in wanted.items() if values in present}:
        catalog.move(name, keys, part, stay)
    if new := {values: folder for values, folder in wanted.items() if values not in present}:
        catalog.add(name, keys, part, new)
    if gone := present - wanted.keys():
        catalog.remove(name, keys, gone)


def _catalog(context: TableContext) -> AbstractContextManager[Catalog]:
    if catalog_kind(context.config) is CatalogKind.GLUE:
        return GlueVersions.open(context.config)
    return SessionVersions(context)


class GlueVersions(GlueTables):
    """Tables over all versions in AWS Glue."""

    def find(self, name: str) -> FoundTable | None:
        """Return a table with its columns in Glue's types."""
        with s3_errors(f"glue://{name}"):
            found = self._find(*name.split("."))
        if found is None:
            return None
        listed = found.get("StorageDescriptor", {}).get("Columns", [])
        return FoundTable(
            found.get("Parameters", {}),
            tuple(Column(column["Name"], column["Type"]) for column in listed),
            tuple(key["Name"] for key in found.get("PartitionKeys", [])),
        )

    def column_type(self, lake_type: str, manifest: Manifest) -> str:
        """Return Glue's name of a type."""
        return glue_type(lake_type, manifest)

    def create(self, name: str, root: str, column: str, columns: Sequence[Column], manifest: Manifest) -> None:
        """Create an empty table."""
        database, table = name.split(".")
        with s3_errors(f"glue://{name}"):
            self._create_database(database)
            wanted = _glue_table(table, root, column, columns, manifest)
            self._client.create_table(**self._catalog, DatabaseName=database, TableInput=wanted)

    def widen(self, name: str, before: Sequence[Column], columns: Sequence[Column]) -> bool:
        """Change the columns in place; every partition keeps its own."""
        assert before is not None
        database, table = name.split(".")
        with s3_errors(f"glue://{name}"):
            found = self._find(database, table)
            assert found is not None  # it was found before
            kept = {key: found[key] for key in _GLUE_INPUT if key in found}
            kept["StorageDescriptor"] = {**found["StorageDescriptor"], "Columns": _glue_columns(columns)}
            self._client.update_table(**self._catalog, DatabaseName=database, TableInput=kept)
        return True

    def drop(self, name: str) -> None:
        """Drop a table."""
        database, table = name.split(".")
        with s3_errors(f"glue://{name}"):
            self._client.delete_table(**self._catalog, DatabaseName=database, Name=table)

    def partitions(self, name: str, keys: Sequence[str], value: str) -> set[tuple[str, ...]]:
        """Return the partitions of one version."""
        with s3_errors(f"glue://{name}"):
            pages = self._client.get_paginator("get_partitions").paginate(
                **self._place(name), Expression=f"{keys[0]} = {sql_text(value)}"
            )
            return {tuple(partition["Values"]) for page in pages for partition in page["Partitions"]}

    def add(self, name: str, keys: Sequence[str], part: VersionPart, folders: Mapping[tuple[str, ...], str]) -> None:
        """Add partitions, a hundred at a time."""
        for chunk in chunks(_glue_partitions(part, folders), CREATED_AT_ONCE):
            with s3_errors(f"glue://{name}"):
                answer = self._client.batch_create_partition(**self._place(name), PartitionInputList=list(chunk))
            _require_accepted(name, answer)

    def move(self, name: str, keys: Sequence[str], part: VersionPart, folders: Mapping[tuple[str, ...], str]) -> None:
        """Replace partitions, a hundred at a time."""
        entries = [
            {"PartitionValueList": wanted["Values"], "PartitionInput": wanted}
            for wanted in _glue_partitions(part, folders)
        ]
        for chunk in chunks(entries, CREATED_AT_ONCE):
            with s3_errors(f"glue://{name}"):
                answer = self._client.batch_update_partition(**self._place(name), Entries=list(chunk))
            _require_accepted(name, answer)

    def remove(self, name: str, keys: Sequence[str], partitions: Collection[tuple[str, ...]]) -> None:
        """Remove partitions, at most 25 at a time."""
        for chunk in chunks([{"Values": list(values)} for values in sorted(partitions)], DELETED_AT_ONCE):
            with s3_errors(f"glue://{name}"):
                answer = self._client.batch_delete_partition(**self._place(name), PartitionsToDelete=list(chunk))
            _require_accepted(name, answer)

    def _place(self, name: str) -> dict[str, str]:
        database, table = name.split(".")
        return {**self._catalog, "DatabaseName": database, "TableName": table}


_GLUE_INPUT = ("Name", "Description", "Owner", "TableType", "Parameters", "PartitionKeys", "StorageDescriptor")


def _glue_columns(columns: Iterable[Column]) -> list[dict[str, str]]:
    return [{"Name": column.name, "Type": column.type} for column in columns]


def _glue_table(table: str, root: str, column: str, columns: Sequence[Column], manifest: Manifest) -> dict[str, Any]:
    dated = [{"Name": manifest.folder_column, "Type": "date"}] if manifest.folder_column else []
    return {
        "Name": table,
        "TableType": "EXTERNAL_TABLE",
        "Parameters": {
            "EXTERNAL": "TRUE",
            "classification": manifest.format,
            OWN_PROPERTY: manifest.table,
            OWN_MIRROR: manifest.lineage.mirror_uuid,
            ALL_VERSIONS: manifest.format,
            **({"skip.header.line.count": "1"} if manifest.format == "csv" else {}),
        },
        "PartitionKeys": [{"Name": column, "Type": "string"}, *dated],
        "StorageDescriptor": {**_storage(root, manifest), "Columns": _glue_columns(columns)},
    }


def _glue_partitions(part: VersionPart, folders: Mapping[tuple[str, ...], str]) -> list[dict[str, Any]]:
    return [
        {"Values": list(values), "StorageDescriptor": _storage(folder, part.manifest)}
        for values, folder in folders.items()
    ]


def _storage(location: str, manifest: Manifest) -> dict[str, Any]:
    """Return Glue's description of files; columns in ORC are found by name, which is not the default there."""
    found = storage_descriptor(location, manifest)
    if manifest.format != "orc":
        return found
    return {**found, "SerdeInfo": {**found["SerdeInfo"], "Parameters": {"orc.column.index.access": "false"}}}


def _require_accepted(name: str, answer: Mapping[str, Any]) -> None:
    if refused := answer.get("Errors"):
        reason = refused[0].get("ErrorDetail", {}).get("ErrorMessage", "no reason given")
        msg = f"Glue refused {len(refused)} partitions of {name}: {reason}"
        raise ConfigurationError(msg, hint="check the rights of the role; the next run tries again")


class SessionVersions:
    """Tables over all versions in Spark's own catalog, which are permanent only in a Hive metastore."""

    def __init__(self, context: TableContext) -> None:
        self._config = context.config
        self._spark: SparkSession = context.spark

    def __enter__(self) -> SessionVersions:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def find(self, name: str) -> FoundTable | None:
        """Return a table with its columns in Spark's types."""
        full = session_name(name)
        if not self._spark.catalog.tableExists(full):
            return None
        rows = self._spark.sql(f"SHOW TBLPROPERTIES {full}").collect()
        columns = self._spark.catalog.listColumns(full)
        return FoundTable(
            {row[0]: row[1] for row in rows},
            tuple(Column(column.name, column.dataType) for column in columns if not column.isPartition),
            tuple(column.name for column in columns if column.isPartition),
        )

    def column_type(self, lake_type: str, manifest: Manifest) -> str:
        """Return the type itself: the lake's types are Spark's."""
        return lake_type

    def create(self, name: str, root: str, column: str, columns: Sequence[Column], manifest: Manifest) -> None:
        """Create an empty table."""
        database = quote_name(name.partition(".")[0])
        self._spark.sql(f"CREATE DATABASE IF NOT EXISTS {SESSION_CATALOG}.{database}")
        dated = [Column(manifest.folder_column, "date")] if manifest.folder_column else []
        fields = [*columns, Column(column, "string"), *dated]
        keys = ", ".join(quote_name(field) for field in _partitioned_by(column, manifest))
        options = ", ".join(f"{sql_text(key)} {sql_text(text)}" for key, text in reader_options(manifest.shape).items())
        self._spark.sql(
            f"CREATE TABLE {session_name(name)} ({_ddl(fields)}) USING {manifest.format}"
            f"{f' OPTIONS ({options})' if options else ''} PARTITIONED BY ({keys}) "
            f"LOCATION {sql_text(self._store(root).for_spark(root))} "
            f"TBLPROPERTIES ({sql_text(OWN_PROPERTY)}={sql_text(manifest.table)}, "
            f"{sql_text(OWN_MIRROR)}={sql_text(manifest.lineage.mirror_uuid)}, "
            f"{sql_text(ALL_VERSIONS)}={sql_text(manifest.format)})"
        )

    def widen(self, name: str, before: Sequence[Column], columns: Sequence[Column]) -> bool:
        """Add new columns; Spark changes no type of a table's column."""
        if tuple(columns[: len(before)]) != tuple(before):
            return False
        self._spark.sql(f"ALTER TABLE {session_name(name)} ADD COLUMNS ({_ddl(columns[len(before) :])})")
        return True

    def drop(self, name: str) -> None:
        """Drop a table; the files of an external one stay."""
        self._spark.sql(f"DROP TABLE {session_name(name)}")

    def partitions(self, name: str, keys: Sequence[str], value: str) -> set[tuple[str, ...]]:
        """Return the partitions of one version."""
        full = session_name(name)
        rows = self._spark.sql(f"SHOW PARTITIONS {full} {_spec(keys, (value,))}").collect()
        return {tuple(unquote(part.partition("=")[2]) for part in row[0].split("/")) for row in rows}

    def add(self, name: str, keys: Sequence[str], part: VersionPart, folders: Mapping[tuple[str, ...], str]) -> None:
        """Add partitions, a hundred at a time."""
        store = self._store(part.location)
        entries = [
            f"{_spec(keys, values)} LOCATION {sql_text(store.for_spark(folder))}" for values, folder in folders.items()
        ]
        for chunk in chunks(entries, CREATED_AT_ONCE):
            self._spark.sql(f"ALTER TABLE {session_name(name)} ADD IF NOT EXISTS {' '.join(chunk)}")

    def move(self, name: str, keys: Sequence[str], part: VersionPart, folders: Mapping[tuple[str, ...], str]) -> None:
        """Set the folders of partitions, each in one step."""
        store = self._store(part.location)
        for values, folder in folders.items():
            where = f"{_spec(keys, values)} SET LOCATION {sql_text(store.for_spark(folder))}"
            self._spark.sql(f"ALTER TABLE {session_name(name)} {where}")

    def remove(self, name: str, keys: Sequence[str], partitions: Collection[tuple[str, ...]]) -> None:
        """Remove partitions; the files of an external table stay."""
        for chunk in chunks([_spec(keys, values) for values in sorted(partitions)], CREATED_AT_ONCE):
            self._spark.sql(f"ALTER TABLE {session_name(name)} DROP IF EXISTS {', '.join(chunk)}")

    def _store(self, location: str) -> FileSystem:
        return open_filesystem(self._spark, self._config, location)


def _spec(keys: Sequence[str], values: Sequence[str]) -> str:
    """Return the partition with these values; rows without a date are in that of the null date."""
    pairs = zip(keys, values, strict=False)
    given = ", ".join(f"{quote_name(key)}={'null' if value == NO_DATE else sql_text(value)}" for key, value in pairs)
    return f"PARTITION ({given})"


def _ddl(columns: Iterable[Column]) -> str:
    return ", ".join(f"{quote_name(column.name)} {column.type}" for column in columns)
