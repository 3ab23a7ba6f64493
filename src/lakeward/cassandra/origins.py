"""Which table a snapshot is an export of, and when it was read: from what snapshots and change sets say."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from lakeward.cassandra.schema import TableSchema
from lakeward.errors import RefusedInputError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

EXPORT = "export"
BLOCK = "cassandra"


@dataclass(frozen=True)
class Origin:
    """An export: its cluster and table, the time in which it was read, and what of the table is in it.

    ``where`` and ``columns`` are those that were asked for; with either, rows or columns that the table has are not in
    the export, and their absence tells nothing.
    """

    cluster: str
    schema: TableSchema
    started: datetime
    ended: datetime
    writetime: bool
    ttl: bool
    where: str | None = None
    columns: tuple[str, ...] = ()

    @property
    def part(self) -> str | None:
        """Which part of its table it holds; None: all of it."""
        return part_of(self.where, self.columns)

    @property
    def is_whole(self) -> bool:
        """Whether all rows and columns of the table are in it."""
        return self.part is None


def part_of(where: str | None, columns: Collection[str]) -> str | None:
    """Say which part of its table an export holds that was asked for so; None: all of it."""
    parts = [f"the rows where {where}"] if where else []
    parts += [f"the columns {', '.join(sorted(columns))}"] if columns else []
    return " and ".join(parts) or None


def origin_of(identity: Mapping[str, Any]) -> Origin | None:
    """Give the origin of a side, or of a parent of a change set; None where it is no export of a table.

    Raises:
        RefusedInputError: it is one, but what it says of itself is damaged.
    """
    document = identity.get(BLOCK)
    if not isinstance(document, dict):
        return None
    try:
        return Origin(
            cluster=str(document["cluster"]),
            schema=TableSchema.from_document(document["schema"]),
            started=datetime.fromisoformat(document["started"]),
            ended=datetime.fromisoformat(document["ended"]),
            writetime=bool(document["writetime"]),
            ttl=bool(document["ttl"]),
            where=document.get("where"),
            columns=tuple(document.get("columns") or ()),
        )
    except (KeyError, TypeError, ValueError) as error:
        msg = f"{identity.get('location')}: what its manifest says of the exported table is damaged: {error!r}"
        raise RefusedInputError(msg, hint="export the table again") from error
