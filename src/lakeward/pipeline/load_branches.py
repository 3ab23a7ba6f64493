"""The mirror's load branches, each with the load of one generation: written once per op, taken back, set back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.errors import ConflictError
from lakeward.lake.iceberg.attempt import BASE_STAMP, Attempt
from lakeward.lake.iceberg.define import EMPTY_TAG, LOAD_STAMP, empty_snapshot
from lakeward.lake.iceberg.metadata import MAIN
from lakeward.lake.iceberg.references import set_references
from lakeward.pipeline.checkpoints import load_at, require_load
from lakeward.pipeline.effect import LOAD_BRANCH_PREFIX, load_branch
from lakeward.pipeline.ledger import last_load_ops
from lakeward.pipeline.stamps import applied_stamps
from lakeward.pipeline.steps import Step
from lakeward.transforms.columns import columns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from lakeward.lake.iceberg.metadata import Snapshot, TableMetadata
    from lakeward.model import Progress, TableId
    from lakeward.pipeline.context import TableContext
    from lakeward.pipeline.effect import Bases
    from lakeward.pipeline.records import OpRecord

# Tags that an undo gives to the heads it leaves behind: undone-<op of the undo>, undone-<op>-load-<generation>.
UNDONE_TAG_PREFIX = "undone-"


def undone_tag(op: int, branch: str = MAIN) -> str:
    """Name the tag that keeps what a branch held before an undo."""
    return f"{UNDONE_TAG_PREFIX}{op}" if branch == MAIN else f"{UNDONE_TAG_PREFIX}{op}-{branch}"


def extend_load(context: TableContext, record: OpRecord, rows: DataFrame, count: int) -> None:
    """Add load rows to the generation's load branch, unique per key, once per op."""
    mirror, branch, keys = context.mirror, load_branch(record.generation), context.settings.primary_key
    if is_load_written(context, record):
        return
    head = mirror.head(branch)
    stamps = {**applied_stamps(record), LOAD_STAMP: str(record.op)}
    with Attempt(mirror, op=record.op, base=head.id if head else empty_snapshot(mirror)) as attempt:
        context.reached(Step.LOAD_BRANCH)
        if head is not None and keys:
            attempt.delete_keys(rows.select(*columns(keys)), keys)
            context.reached(Step.LOAD_DELETE)
        attempt.append(rows, stamps, expected=count)
        context.reached(Step.LOAD_APPEND)
        if head is not None:
            attempt.publish(before=context.permission.require, to=branch)
        else:
            snapshot = attempt.checked_head()
            context.permission.require()
            mirror.create_branch(branch, snapshot.id)
        context.reached(Step.LOAD_PUBLISH)


def is_load_written(context: TableContext, record: OpRecord) -> bool:
    """Whether the op's rows are already in its generation's load branch."""
    return context.mirror.stamp(LOAD_STAMP, load_branch(record.generation)) == str(record.op)


def take_back_load(context: TableContext, *, generation: int, op: int) -> None:
    """Cut a load branch back to what it was before an op; does nothing where the op has not reached it."""
    mirror, branch = context.mirror, load_branch(generation)
    head = mirror.head(branch)
    if head is None or head.summary.get(LOAD_STAMP) != str(op):
        return
    before = int(head.summary[BASE_STAMP])
    if before == empty_snapshot(mirror):
        mirror.drop_branch(branch)
    else:
        mirror.reset_branch(branch, before)


def become_load(context: TableContext, record: OpRecord, base: int) -> Snapshot:
    """Let an untouched, empty mirror share the load branch's snapshot: nothing is written twice."""
    branch = load_branch(record.generation)
    context.permission.require()
    context.mirror.fast_forward(branch, "main", expected=base)
    context.reached(Step.APPLY_PUBLISH)
    return context.mirror.require_head()


def begin_empty_load(context: TableContext, generation: int) -> None:
    """Begin a generation with a load of no rows."""
    if context.mirror.head(load_branch(generation)) is None:
        context.mirror.create_branch(load_branch(generation), empty_snapshot(context.mirror))


def loads_at(mirror: TableMetadata, table: TableId, progress: Progress, last_ops: Mapping[int, int]) -> dict[str, int]:
    """Give the snapshots that load branches stood at when the table was so far.

    ``last_ops`` is the op that brought the newest part of each generation's load by then.

    Raises:
        DataError: a load grew or was undone since, and what it was is no longer kept.
    """
    empty = mirror.head(EMPTY_TAG)
    found: dict[str, int] = {}
    for generation in progress.generations:
        branch = load_branch(generation.number)
        load, head = load_at(mirror, generation.number, progress), mirror.head(branch)
        require_load(table, generation.number, load, last_ops.get(generation.number))
        if load is None and generation.emptied:
            load = empty
        if load is not None and head is not None and head.summary.get(LOAD_STAMP) == load.summary.get(LOAD_STAMP):
            # The same load, which may have been written anew since: what was erased must not come back.
            load = head
        if load is not None:
            found[branch] = load.id
    return found


def set_back_loads(context: TableContext, record: OpRecord, bases: Bases) -> None:
    """Let every load branch stand where it stood at the op that is gone back to, and tag all heads left behind.

    One commit does it, so that nothing is ever unreferenced; done again, it changes nothing.
    """
    mirror = context.mirror.metadata()
    head = mirror.head()
    if head is None or bases.mirror is None or head.id != bases.mirror.id or bases.changelog is None:
        msg = f"{context.table}: the mirror moved under this undo"
        raise ConflictError(msg)
    last_ops = last_load_ops(context.changelog.read(bases.changelog.id), record.progress)
    wanted = loads_at(mirror, context.table, record.progress, last_ops)
    present = {name: one for name, one in mirror.branches().items() if name.startswith(LOAD_BRANCH_PREFIX)}
    moved = {name: wanted.get(name) for name in {*present, *wanted} if wanted.get(name) != present.get(name)}
    left = {MAIN: head.id, **{name: one for name, one in present.items() if name in moved}}
    tags = {undone_tag(record.op, name): one for name, one in left.items()}
    known = mirror.tags()
    context.permission.require()
    set_references(context.mirror, tags={name: one for name, one in tags.items() if name not in known}, branches=moved)
