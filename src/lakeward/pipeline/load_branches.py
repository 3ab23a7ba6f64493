"""Where load branches stand after an undo, and what is tagged so that the undo can be undone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.errors import ConflictError
from lakeward.lake.iceberg.define import EMPTY_TAG, LOAD_STAMP
from lakeward.lake.iceberg.metadata import MAIN
from lakeward.lake.iceberg.references import set_references
from lakeward.pipeline.checkpoints import load_at, require_load
from lakeward.pipeline.effect import LOAD_BRANCH_PREFIX, load_branch
from lakeward.pipeline.ledger import last_load_ops

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.lake.iceberg.metadata import TableMetadata
    from lakeward.model import Progress, TableId
    from lakeward.pipeline.context import TableContext
    from lakeward.pipeline.effect import Bases
    from lakeward.pipeline.records import OpRecord

# Tags that an undo gives to the heads it leaves behind: undone-<op of the undo>, undone-<op>-load-<generation>.
UNDONE_TAG_PREFIX = "undone-"


def undone_tag(op: int, branch: str = MAIN) -> str:
    """Name the tag that keeps what a branch held before an undo."""
    return f"{UNDONE_TAG_PREFIX}{op}" if branch == MAIN else f"{UNDONE_TAG_PREFIX}{op}-{branch}"


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
