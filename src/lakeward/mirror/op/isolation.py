"""Ops that nobody sees until all of them are done: on branches of their own, and published together.

A reset reads a table's files again, by any number of ops, and readers keep what the table was until the end. Its ops
work on a view of changelog and mirror whose branches have a prefix, with a separate ledger in the state store. At the
end ``main`` of the changelog moves first. One commit on the mirror then moves ``main``, replaces the load branches, and
tags the heads that they leave.

A crash before the changelog moved leaves branches that nobody reads: the next writer removes them, and the table is as
it was. After a crash between the two the next writer does the second step.
"""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from lakeward.iceberg.define import APPLIED_STAMP
from lakeward.iceberg.metadata import MAIN
from lakeward.iceberg.table import adopt_branches
from lakeward.mirror.op.apply import undone_tag
from lakeward.mirror.op.effect import LOAD_BRANCH_PREFIX, bases_of
from lakeward.mirror.op.steps import Step
from lakeward.model import TableId
from lakeward.state.separate import with_separate_ledger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.iceberg.metadata import TableMetadata
    from lakeward.iceberg.table import IcebergTable
    from lakeward.mirror.op.context import RunOptions, TableContext
    from lakeward.mirror.op.effect import Bases
    from lakeward.model import Generation


# Users cannot give this prefix to tags.
RESET_PREFIX = "lakeward-reset-"
_ID_DIGITS = 12


@contextmanager
def isolated(context: TableContext, bases: Bases, options: RunOptions, again: Generation | None) -> Iterator[Isolation]:
    """Begin branches at the bases and yield the view of the table on them; remove them unless they are published.

    ``again`` is the generation that the load in landing is known to begin, None where every change file follows it.
    """
    view = Isolation(context, bases, options, again)
    try:
        view.begin()
        yield view
    except Exception:
        # Once the changelog has moved, the branches are needed to finish.
        if not view.is_logged:
            view.remove()
        raise
    finally:
        view.context.state.forget_ledger(context.table)


class Isolation:
    """A view of a table on branches of its own; its ``context`` is for the ops."""

    def __init__(self, context: TableContext, bases: Bases, options: RunOptions, again: Generation | None) -> None:
        self.is_logged = False
        self._whole = context
        self._bases = bases
        self._prefix = f"{RESET_PREFIX}{uuid.uuid4().hex[:_ID_DIGITS]}-"
        self.context = replace(
            context,
            mirror=context.mirror.isolated(self._prefix),
            changelog=context.changelog.isolated(self._prefix),
            state=with_separate_ledger(context.state, _ledger_of(context.table)),
            options=options,
            again=again,
        )

    def begin(self) -> None:
        """Begin the branches at the bases."""
        self.context.state.forget_ledger(self._whole.table)
        for table, base in ((self._whole.changelog, self._bases.changelog), (self._whole.mirror, self._bases.mirror)):
            assert base is not None  # the table has ops
            table.create_branch(self._prefix + MAIN, base.id)

    def publish(self) -> None:
        """Publish all ops of the view to the table.

        Raises:
            ConflictError: another writer changed the table, or the lease was lost.
        """
        context, base = self._whole, self._bases.changelog
        assert base is not None  # the table has ops
        context.permission.require()
        context.changelog.fast_forward(self._prefix + MAIN, MAIN, expected=base.id)
        self.is_logged = True
        context.reached(Step.RESET_LOGGED)
        settle_resets(context)

    def remove(self) -> None:
        """Remove the branches: the table is as it was."""
        for table in (self._whole.changelog, self._whole.mirror):
            _remove(table, [name for name in table.branches() if name.startswith(self._prefix)])


def settle_resets(context: TableContext) -> bool:
    """Finish a reset whose ops are in the changelog, and remove what is left of others; whether there was any.

    The caller holds the table's lease.
    """
    changelog, mirror = context.changelog.find_metadata(), context.mirror.find_metadata()
    logged, applied = reset_branches(changelog), reset_branches(mirror)
    if not logged and not applied:
        return False
    if changelog is not None and mirror is not None:
        bases = bases_of(changelog, mirror)
        for name in applied:
            if name.endswith(f"-{MAIN}") and _is_whole(mirror, name, bases):
                _adopt(context, mirror, name.removesuffix(MAIN), bases)
    for table in (context.changelog, context.mirror):
        _remove(table, reset_branches(table.find_metadata()))
    # The cached ledger is that of the changelog from before, and the separate one is of no use any more.
    for ledger in (context.table, _ledger_of(context.table)):
        context.state.forget_ledger(ledger)
    return True


def _ledger_of(table: TableId) -> TableId:
    """Return the name under which the ledger of a reset is kept."""
    return TableId(table.schema, f"{table.name} (reset)")


def reset_branches(metadata: TableMetadata | None) -> list[str]:
    """Return the branches of resets that are not finished."""
    return [name for name in metadata.references() if name.startswith(RESET_PREFIX)] if metadata else []


def _is_whole(mirror: TableMetadata, name: str, bases: Bases) -> bool:
    """Whether a branch holds the mirror after the changelog's newest op, which ``main`` does not have yet."""
    head = mirror.head(name)
    applied = int(mirror.stamp_at(APPLIED_STAMP, head.id) or 0) if head else 0
    return applied == bases.logged > bases.applied


def _adopt(context: TableContext, mirror: TableMetadata, prefix: str, bases: Bases) -> None:
    """Replace ``main`` and the load branches by those of a reset, in one commit that tags the heads they leave."""
    assert bases.mirror is not None  # a reset is of a table that has one
    # The reset itself is the first op that the mirror lacks.
    op, known = bases.applied + 1, mirror.tags()
    loads = {name: head for name, head in mirror.branches().items() if name.startswith(LOAD_BRANCH_PREFIX)}
    tags = {undone_tag(op, name): head for name, head in {MAIN: bases.mirror.id, **loads}.items()}
    context.permission.require()
    adopt_branches(
        context.mirror,
        prefix,
        expected=bases.mirror.id,
        instead_of=loads,
        tags={name: head for name, head in tags.items() if name not in known},
    )
    context.reached(Step.RESET_PUBLISHED)


def _remove(table: IcebergTable, branches: list[str]) -> None:
    for name in branches:
        table.drop_branch(name)
