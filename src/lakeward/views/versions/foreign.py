"""Versions of a table that another system wrote: they are listed and compared, and never changed or removed.

Their records are properties of the mirror under a prefix of their own, so that nothing that replaces, refreshes or
drops Lakeward's own versions ever sees them. Forgetting such a version removes its record only.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import TYPE_CHECKING

from lakeward.documents import Record, to_compact_json
from lakeward.errors import ConfigurationError, DataError
from lakeward.spark.errors import any_failure, spark_faults, translated
from lakeward.spark.workspace import session_settings
from lakeward.storage.checksum import checksum_of
from lakeward.storage.claims import MANIFEST
from lakeward.storage.filesystem import for_reading, open_filesystem
from lakeward.storage.landing import is_hidden
from lakeward.text import json_object, listed, reading_property
from lakeward.transforms.columns import column
from lakeward.views.versions.manifest import new_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from pyspark.sql import DataFrame

    from lakeward.iceberg.metadata import TableMetadata
    from lakeward.iceberg.table import IcebergTable
    from lakeward.mirror.op.context import TableContext
    from lakeward.storage.filesystem import FileSystem, StoredFile

PREFIX = "lakeward.foreign-version."
FOREIGN = "foreign"
_SUFFIX = ".parquet"
_DATE_FOLDER = re.compile(r"(?P<column>[^=/]+)=\d{4}-\d{2}-\d{2}", re.ASCII)
_AS_TEXT = {"spark.sql.sources.partitionColumnTypeInference.enabled": "false"}


@dataclass(frozen=True)
class ForeignVersion(Record):
    """A version that another system wrote, as it was when it was registered.

    ``date_column`` names the folders of a version that is divided by date; it is empty for a flat one. ``listing`` is
    a fingerprint of the files with their sizes and times.
    """

    id: str
    version: str
    location: str
    rows: int
    content_hash: str
    files: int
    listing: str
    registered: str
    date_column: str = ""

    def is_called(self, name: str) -> bool:
        """Whether a name denotes this version: its own or its location."""
        return name in (self.version, self.location)


@dataclass(frozen=True)
class FoundFolder:
    """A folder that is one version: its files by their paths below it."""

    name: str
    location: str
    files: tuple[StoredFile, ...]
    date_column: str = ""

    @property
    def listing(self) -> str:
        """A text that differs when a file was added, removed or written again."""
        digest = blake2b(digest_size=8)
        for file in sorted(self.files, key=lambda file: file.path):
            known = file.etag or file.mtime_us
            digest.update(f"{file.path}\n{file.size}\n{known}\n".encode("utf-8", "surrogateescape"))
        return digest.hexdigest()


def find_folders(location: str, files: Iterable[StoredFile]) -> list[FoundFolder]:
    """Return the versions at or below a folder: itself, or every folder in it.

    Raises:
        DataError: there is no Parquet file, or the folder mixes versions with other files, or holds those of Lakeward.
    """
    found = [file for file in files if not file.path.endswith("_$folder$")]
    if own := [file.path for file in found if file.path.rpartition("/")[2] == MANIFEST]:
        msg = f"{location}/{own[0]}: Lakeward wrote this version: it is recorded with its own table"
        raise DataError(msg, hint="lakeward snapshot list")
    data = [file for file in found if not any(map(_is_mark, file.path.split("/")))]
    if strange := [file.path for file in data if not file.path.endswith(_SUFFIX)]:
        msg = f"{location} holds files that are not Parquet files: {listed(strange)}"
        raise DataError(msg, hint="name the folder of a single table's versions")
    if not data:
        msg = f"{location} holds no Parquet file"
        raise DataError(msg, hint="check the path; it is the folder of one version, or of a table's versions")
    groups: dict[str, list[StoredFile]] = defaultdict(list)
    for file in data:
        groups[file.path.partition("/")[0] if "/" in file.path else ""].append(file)
    if "" in groups and len(groups) > 1:
        msg = f"{location} holds files beside folders: it cannot be known whether it is one version or several"
        raise DataError(msg, hint=f"name one folder: {location}/{sorted(groups)[1]}")
    date_column = "" if "" in groups else _common_date_column(groups)
    if date_column is not None:
        return [FoundFolder(location.rpartition("/")[2], location, tuple(data), date_column)]
    return [_below(location, name, group) for name, group in sorted(groups.items())]


def _is_mark(name: str) -> bool:
    return is_hidden(name) and _DATE_FOLDER.fullmatch(name) is None


def _below(location: str, name: str, group: Sequence[StoredFile]) -> FoundFolder:
    """Return the version in a folder of a table's versions."""
    below = [type(file)(file.path.removeprefix(f"{name}/"), file.size, file.mtime_us, file.etag) for file in group]
    folders = {file.path.partition("/")[0] for file in below if "/" in file.path}
    date_column = _common_date_column(folders) if folders else ""
    if date_column is None or (folders and any("/" not in file.path for file in below)):
        msg = f"{location}/{name} holds folders that are not dates: {listed(sorted(folders))}"
        raise DataError(msg, hint="a version has its files in its folder, or in folders such as hire_date=2020-11-13")
    return FoundFolder(name, f"{location}/{name}", tuple(below), date_column)


def _common_date_column(folders: Iterable[str]) -> str | None:
    """Return the column by whose dates all folders are named, None where they are not."""
    matches = [_DATE_FOLDER.fullmatch(folder) for folder in folders]
    columns = {match["column"] if match is not None else None for match in matches}
    return next(iter(columns)) if len(columns) == 1 else None


def register_foreign(
    context: TableContext, location: str, *, dry_run: bool = False
) -> list[tuple[ForeignVersion, bool]]:
    """Register the versions at or below a folder, and return each with whether it is new. Every file is read.

    Raises:
        ConfigurationError: the table has no mirror yet, or a version was registered with other content.
        DataError: the folder holds something else than versions, or a file cannot be read.
    """
    mirror = context.mirror.find_metadata()
    if mirror is None:
        msg = f"{context.table} has no mirror yet, with which its versions are recorded"
        raise ConfigurationError(msg, hint=f"lakeward run {context.table}")
    store = open_filesystem(context.spark, context.config, location)
    known = {found.location: found for found in list_foreign(mirror)}
    folders = find_folders(location, store.walk(location))
    for folder in folders:
        if (former := known.get(folder.location)) is not None and former.listing != folder.listing:
            msg = f"{folder.location} is registered, and its files are not those that were registered"
            hint = f"lakeward snapshot drop {context.table} --version {former.version}   (forgets it), then adopt again"
            raise ConfigurationError(msg, hint=hint)
    made: list[tuple[ForeignVersion, bool]] = []
    for folder in folders:
        if folder.location in known:
            made.append((known[folder.location], False))
            continue
        version = _described(context, store, folder)
        if not dry_run:
            context.mirror.set_properties({PREFIX + version.id: to_compact_json(version)})
        made.append((version, True))
    return made


def _described(context: TableContext, store: FileSystem, folder: FoundFolder) -> ForeignVersion:
    """Read a version and return its record."""
    with reading(folder.location):
        content = checksum_of(_read(context, store, folder))
    after = find_folders(folder.location, store.walk(folder.location))
    if [found.listing for found in after] != [folder.listing]:
        msg = f"{folder.location} changed while it was read"
        raise DataError(msg, hint="wait until nothing writes to it, then adopt it again")
    return ForeignVersion(
        id=new_id(),
        version=folder.name,
        location=folder.location,
        rows=content.rows,
        content_hash=content.text,
        files=len(folder.files),
        listing=folder.listing,
        registered=datetime.now(UTC).isoformat(timespec="microseconds"),
        date_column=folder.date_column,
    )


def reading(location: str) -> AbstractContextManager[None]:
    """Return a context that translates what Spark raises while a version of another system is read.

    Raises:
        DataError: a file is damaged, or the files or the values of folders do not fit each other.
    """
    hint = "its Parquet files must be whole, with one type for each column, and folders of dates have real dates"
    unknown = any_failure(DataError, f"{location} cannot be read as a version", hint=hint)
    return translated(*spark_faults(location), unknown)


def _read(context: TableContext, store: FileSystem, folder: FoundFolder) -> DataFrame:
    """Return a version's rows; the column of date folders is a date."""
    reader = context.spark.read.option("mergeSchema", "true").option("basePath", store.for_spark(folder.location))
    for name, value in store.options.items():
        reader = reader.option(name, value)
    paths = [for_reading(store.for_spark(f"{folder.location}/{file.path}")) for file in folder.files]
    with session_settings(context.spark, _AS_TEXT):
        rows = reader.parquet(*paths)
    if not folder.date_column:
        return rows
    return rows.withColumn(folder.date_column, column(folder.date_column).cast("date"))


def list_foreign(mirror: TableMetadata) -> list[ForeignVersion]:
    """Return the registered versions of other systems, in the order of their names."""
    found = [_record(name, text) for name, text in mirror.properties(PREFIX).items()]
    return sorted(found, key=lambda version: (version.version, version.location))


def _record(name: str, text: str) -> ForeignVersion:
    with reading_property(name, of="mirror"):
        return ForeignVersion.from_dict(json_object(text))


def forget_foreign(mirror: IcebergTable, versions: Iterable[ForeignVersion]) -> None:
    """Remove the records of versions; their files stay."""
    names: Mapping[str, None] = {PREFIX + version.id: None for version in versions}
    if names:
        mirror.set_properties(dict(names))


def why_missing(context: TableContext, version: ForeignVersion) -> str | None:
    """Return why a version is not there as it was registered, None where it is."""
    store = open_filesystem(context.spark, context.config, version.location)
    try:
        [folder] = find_folders(version.location, store.walk(version.location))
    except (DataError, ValueError):
        return "its files are gone"
    return None if folder.listing == version.listing else "its files are not those that were registered"


def read_foreign(context: TableContext, version: ForeignVersion) -> DataFrame | None:
    """Return the rows of a version, None where its files are gone."""
    store = open_filesystem(context.spark, context.config, version.location)
    files = [
        file
        for file in store.walk(version.location)
        if file.path.endswith(_SUFFIX) and not any(map(_is_mark, file.path.split("/")))
    ]
    if not files:
        return None
    return _read(context, store, FoundFolder(version.version, version.location, tuple(files), version.date_column))
