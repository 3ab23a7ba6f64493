"""Marks on the Iceberg tables of a table that is being removed or renamed, or was removed from the registry.

The state store can be rebuilt from the lake at any time: what must not come back by that is marked in the lake.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from lakeward.errors import ConfigurationError

if TYPE_CHECKING:
    from lakeward.iceberg.metadata import TableMetadata
    from lakeward.mirror.op.context import TableContext
    from lakeward.model import TableId

REMOVED_PROPERTY = "lakeward.removed"
# The name that a table is being renamed to; both Iceberg tables keep it until the end.
RENAMED_PROPERTY = "lakeward.renamed-to"
FORMER_PROPERTY = "lakeward.renamed-from"


class RemovalMark(StrEnum):
    """What was removed of a table: its registration, or, once that is done, its data too."""

    REGISTRATION = "registration"
    DATA = "data"


def require_no_mark(context: TableContext, *tables: TableMetadata | None) -> None:
    """Refuse to work on a table that is being renamed or whose data is being removed.

    Raises:
        ConfigurationError: names the command that finishes it.
    """
    for metadata in tables:
        if metadata is None:
            continue
        if metadata.property(REMOVED_PROPERTY) == RemovalMark.DATA:
            msg = f"{context.table}: the removal of its data was begun and is not finished"
            raise ConfigurationError(msg, hint=f"lakeward tables remove {context.table} --drop-data")
        former, name = metadata.property(FORMER_PROPERTY), metadata.property(RENAMED_PROPERTY)
        if former and name:
            msg = f"{former} is being renamed to {name}, and that is not finished"
            raise ConfigurationError(msg, hint=f"lakeward tables rename {former} {name}")


def clear_removal(context: TableContext, mirror: TableMetadata | None) -> None:
    """Forget that a table was removed from the registry: it is there again."""
    if mirror is not None and mirror.property(REMOVED_PROPERTY) == RemovalMark.REGISTRATION:
        context.mirror.set_properties({REMOVED_PROPERTY: None})


def renaming(metadata: TableMetadata | None) -> tuple[str, str] | None:
    """Return the former and the new name of a table that is being renamed, None where it is not."""
    former = metadata.property(FORMER_PROPERTY) if metadata else None
    name = metadata.property(RENAMED_PROPERTY) if metadata else None
    return (former, name) if former and name else None


def renaming_marks(table: TableId | None, name: TableId | None) -> dict[str, str | None]:
    """Return the properties that mark a renaming; without names those that end it."""
    return {FORMER_PROPERTY: str(table) if table else None, RENAMED_PROPERTY: str(name) if name else None}
