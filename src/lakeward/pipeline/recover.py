"""Finish the op that a crash left logged but not applied.

How the rest of an op is prepared is decided by its kind: a batch is applied from the changelog, a load is read again
from its files. An op that can no longer be finished is taken back, and no op is ever stuck.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward import schemas as S
from lakeward.errors import ConflictError, DataError
from lakeward.pipeline.effect import capture
from lakeward.pipeline.kinds import kind_of
from lakeward.pipeline.kinds.base import Unfinished
from lakeward.pipeline.ledger import op_record
from lakeward.pipeline.records import FileRecord
from lakeward.transforms.columns import column

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from lakeward.errors import LakewardError
    from lakeward.pipeline.context import TableContext
    from lakeward.pipeline.effect import Bases, Prepared
    from lakeward.pipeline.workspace import Workspace


def unfinished_op(context: TableContext, bases: Bases) -> int | None:
    """Give the number of the op that is logged and not applied."""
    if bases.applied > bases.logged:
        raise _mirror_is_ahead(context, bases)
    if bases.mirror is None:
        if bases.logged:
            msg = f"{context.table}: the changelog stands at op {bases.logged}, but the mirror is gone"
            hint = (
                f"restore {context.mirror.identifier} from a backup; or drop {context.changelog.identifier} too and "
                f"run again: the table is then built anew from the landing files"
            )
            raise DataError(msg, hint=hint)
        return None
    return bases.logged if bases.logged > bases.applied else None


def _mirror_is_ahead(context: TableContext, bases: Bases) -> LakewardError:
    """Say that the changelog was lost or cut back: its files would be read again, twice where there is no key."""
    if capture(context).logged >= bases.applied:
        return ConflictError(f"{context.table}: another writer published while this one looked")
    found = "the changelog is gone" if bases.changelog is None else f"the changelog stands at op {bases.logged}"
    msg = f"{context.table}: the mirror stands at op {bases.applied}, but {found}"
    hint = (
        f"restore {context.changelog.identifier} from a backup; or drop {context.mirror.identifier} too and run again: "
        f"the table is then built anew from the landing files"
    )
    return DataError(msg, hint=hint)


def prepare_unfinished(context: TableContext, workspace: Workspace, op: int, bases: Bases) -> Prepared:
    """Prepare the rest of a logged op; its void where it can no longer be finished."""
    log = context.changelog.read(context.changelog.require_head().id if bases.changelog is None else bases.changelog.id)
    unfinished = Unfinished(op_record(log, op), bases, log, tuple(_file_records(log, op)))
    return kind_of(unfinished.record.kind).recover(context, workspace, unfinished)


def _file_records(log: DataFrame, op: int) -> Iterator[FileRecord]:
    own = (column(S.KIND) == S.KIND_FILE) & (column(S.OP) == op)
    for row in log.filter(own).select(S.DETAIL).toLocalIterator():
        yield FileRecord.from_json(row[0])
