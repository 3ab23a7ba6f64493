"""Files in a table's folder that no snapshot knows: left by writers that died, removed when they are old enough."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from lakeward.lake.iceberg.table import CATALOG, translated

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakeward.lake.iceberg.table import IcebergTable

# Paths that are told; all are removed.
SHOWN = 1000
_LISTING = "org.apache.iceberg.io.SupportsPrefixOperations"


@dataclass(frozen=True)
class Orphans:
    """Files found, and removed unless only asked for: number and some paths; or why none were looked for."""

    count: int = 0
    paths: tuple[str, ...] = ()
    skipped: str | None = None


def remove_orphans(
    table: IcebergTable, *, older_than_ms: int, others: Iterable[str] = (), dry_run: bool = False
) -> Orphans:
    """Remove files of the table's own folder that no snapshot knows; ``others`` are the folders of other tables."""
    java = table.load()
    location = str(java.location())
    reason = why_not_own(location, table.name, others)
    if reason is None and not _can_list(table, java.io()):
        reason = f"{java.io().getClass().getSimpleName()} cannot list files"
    if reason is not None:
        return Orphans(skipped=f"{table.identifier}: orphan files were not looked for: {reason}")
    moment = datetime.fromtimestamp(older_than_ms / 1000, UTC)
    call = (
        f"CALL {CATALOG}.system.remove_orphan_files(table => '{_text(table.identifier)}', prefix_listing => true, "
        f"older_than => TIMESTAMP '{moment:%Y-%m-%d %H:%M:%S}Z', dry_run => {str(dry_run).lower()})"
    )
    with translated(table.identifier):
        found = (row[0] for row in table.spark.sql(call).toLocalIterator())
        paths = tuple(islice(found, SHOWN))
        return Orphans(len(paths) + sum(1 for _ in found), paths)


def why_not_own(location: str, name: str, others: Iterable[str]) -> str | None:
    """Say why a folder may hold more than this table; None where it is the table's own."""
    own = _folder(location)
    if name.casefold() not in unquote(own.rpartition("/")[2]).casefold():
        return f"{location} is not a folder of this table's name: others may keep files there"
    for other in others:
        if _folder(other) == own or _folder(other).startswith(f"{own}/"):
            return f"{other} of another table lies in it"
    return None


def _can_list(table: IcebergTable, io: Any) -> bool:
    jvm: Any = table.spark._jvm
    listing = jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(_LISTING)
    return bool(listing.isInstance(io))


def _folder(location: str) -> str:
    return location.rstrip("/")


def _text(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
