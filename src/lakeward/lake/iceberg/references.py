"""Tags and branches of a table set together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.spark.errors import commit_errors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.lake.iceberg.table import IcebergTable


def set_references(table: IcebergTable, *, tags: Mapping[str, int], branches: Mapping[str, int | None]) -> None:
    """Create tags, and create, move or (None) drop branches, all in one commit or nothing.

    Raises:
        ConflictError: another writer set one of them first.
    """
    if not tags and not branches:
        return
    with commit_errors(table.identifier):
        loaded = table.load()
        present = loaded.refs()
        update = loaded.manageSnapshots()
        for name, snapshot in tags.items():
            update.createTag(name, snapshot)
        for name, target in branches.items():
            if target is None:
                update.removeBranch(name)
            elif present.containsKey(name):
                update.replaceBranch(name, target)
            else:
                update.createBranch(name, target)
        update.commit()
