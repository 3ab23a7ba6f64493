"""Files in a table's folder that no snapshot knows: left by writers that died, removed when they are old enough.

Only what is named and placed as Iceberg's writers name and place files is taken for theirs. Whatever else lies in the
folder was put there by somebody, and stays. Where the metadata of another table lies in it, nothing is removed at all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError

from lakeward.lake.iceberg.table import CATALOG
from lakeward.spark.errors import commit_errors

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakeward.lake.iceberg.table import IcebergTable

# Paths that are told; all are removed.
SHOWN = 1000
_LISTING = "org.apache.iceberg.io.SupportsPrefixOperations"
_BULK = "org.apache.iceberg.io.SupportsBulkOperations"
_REMOVED_AT_ONCE = 1000
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
# data/column=value/00000-1-UUID-00001.parquet, of a delete file …-00001-deletes.parquet or .puffin
_DATA = re.compile(
    rf"data/(?:[^/]+=[^/]*/)*\d{{5,}}-\d+-{_UUID}(?:-\d+)?-\d{{5,}}(?:-deletes)?\.(?:parquet|orc|avro|puffin)"
)
_METADATA = re.compile(
    rf"metadata/(?:snap-\d+-\d+-{_UUID}\.avro|(?:optimized-m-)?{_UUID}(?:-m\d+)?\.avro|\d+-{_UUID}\.stats)"
)
_TABLE_METADATA = re.compile(r"metadata/.+\.metadata\.json(?:\.gz)?")


@dataclass(frozen=True)
class Orphans:
    """Files found, and removed unless only asked for: number and some paths; or why none were looked for.

    ``foreign`` are old files that no snapshot knows either, and that Iceberg did not write: they stay.
    """

    count: int = 0
    paths: tuple[str, ...] = ()
    foreign: int = 0
    foreign_paths: tuple[str, ...] = ()
    skipped: str | None = None


def remove_orphans(
    table: IcebergTable, *, older_than_ms: int, others: Iterable[str] = (), dry_run: bool = False
) -> Orphans:
    """Remove files of the table's own folder that no snapshot knows; ``others`` are the folders of other tables."""
    java = table.load()
    location = str(java.location())
    reason = why_not_own(location, table.name, others)
    if reason is None and not _is_a(table, java.io(), _LISTING):
        reason = f"{java.io().getClass().getSimpleName()} cannot list files"
    if reason is not None:
        return _skipped(table, reason)
    moment = datetime.fromtimestamp(older_than_ms / 1000, UTC)
    call = (
        f"CALL {CATALOG}.system.remove_orphan_files(table => '{_text(table.identifier)}', prefix_listing => true, "
        f"older_than => TIMESTAMP '{moment:%Y-%m-%d %H:%M:%S}Z', dry_run => true)"
    )
    with commit_errors(table.identifier):
        # Only listed by Iceberg, which would remove whatever is there.
        found = table.spark.sql(call)
        if other := _other_table(table, java, (row[0] for row in found.toLocalIterator())):
            return _skipped(table, f"{other} is the metadata of another table, whose files may lie there too")
        own = (row[0] for row in found.toLocalIterator() if is_iceberg_file(row[0], location))
        count, paths = _counted(own) if dry_run else _removed(table, java.io(), own)
        foreign = _counted(row[0] for row in found.toLocalIterator() if not is_iceberg_file(row[0], location))
        return Orphans(count, paths, *foreign)


def is_iceberg_file(path: str, location: str) -> bool:
    """Whether a file is named and placed as Iceberg's writers for Spark do it."""
    folder = _plain(location) + "/"
    name = _plain(path).removeprefix(folder)
    known = (_DATA, _METADATA, _TABLE_METADATA)
    return _plain(path).startswith(folder) and any(one.fullmatch(name) for one in known)


def _other_table(table: IcebergTable, java: Any, paths: Iterable[str]) -> str | None:
    """Return a metadata file among unknown files that is not of this table; its own former ones are."""
    jvm: Any = table.spark._jvm
    location, own = str(java.location()), str(java.uuid())
    for path in paths:
        if not _TABLE_METADATA.fullmatch(_plain(path).removeprefix(_plain(location) + "/")):
            continue
        try:
            found = str(jvm.org.apache.iceberg.TableMetadataParser.read(java.io(), path).uuid())
        except Py4JJavaError:
            # Nobody can say whose it is.
            return path
        if found != own:
            return path
    return None


def _counted(paths: Iterable[str]) -> tuple[int, tuple[str, ...]]:
    rest = iter(paths)
    shown = tuple(islice(rest, SHOWN))
    return len(shown) + sum(1 for _ in rest), shown


def _removed(table: IcebergTable, io: Any, paths: Iterable[str]) -> tuple[int, tuple[str, ...]]:
    count, rest = 0, iter(paths)
    shown: list[str] = []
    while some := list(islice(rest, _REMOVED_AT_ONCE)):
        _remove(table, io, some)
        count += len(some)
        shown += some[: SHOWN - len(shown)]
    return count, tuple(shown)


def _remove(table: IcebergTable, io: Any, paths: list[str]) -> None:
    if not _is_a(table, io, _BULK):
        for path in paths:
            io.deleteFile(path)
        return
    jvm: Any = table.spark._jvm
    wanted = jvm.java.util.ArrayList()
    for path in paths:
        wanted.add(path)
    io.deleteFiles(wanted)


def _skipped(table: IcebergTable, reason: str) -> Orphans:
    return Orphans(skipped=f"{table.identifier}: orphan files were not looked for: {reason}")


def why_not_own(location: str, name: str, others: Iterable[str]) -> str | None:
    """Say why a folder may hold more than this table; None where it is the table's own."""
    own = _folder(location)
    if name.casefold() not in unquote(own.rpartition("/")[2]).casefold():
        return f"{location} is not a folder of this table's name: others may keep files there"
    for other in others:
        if _folder(other) == own or _folder(other).startswith(f"{own}/"):
            return f"{other} of another table lies in it"
    return None


def _is_a(table: IcebergTable, io: Any, name: str) -> bool:
    jvm: Any = table.spark._jvm
    kind = jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
    return bool(kind.isInstance(io))


def _plain(location: str) -> str:
    """Return an address without what is written in several ways: ``file:/x`` and ``/x``, ``s3a://`` and ``s3://``."""
    text = re.sub(r"^s3[an]?://", "s3://", location.rstrip("/"))
    return re.sub(r"^file:/*", "/", text)


def _folder(location: str) -> str:
    return location.rstrip("/")


def _text(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
