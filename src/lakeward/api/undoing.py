"""Taking ops of a table back."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lakeward.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lakeward.api.opened import OpenedLake
    from lakeward.pipeline.context import TableContext
    from lakeward.pipeline.undoing import Goal, Marked, Undone, UndoPlan


def undo_ops(lake: OpenedLake, name: str, goal: Goal) -> Undone:
    """Take back every op after the goal, by an op of its own."""
    from lakeward.controller.recording import record_op
    from lakeward.pipeline.undoing import undo

    began = datetime.now(UTC)
    with lake.leased(name) as context:
        done = undo(context, goal)
        done = replace(done, plan=_with_marks(context, done.plan))
    if done.op is not None:
        record_op(lake.state, lake.table(name).table, began, done.op)
    return done


def plan_undo(lake: OpenedLake, name: str, goal: Goal, *, finish: bool) -> UndoPlan:
    """Return what an undo would take back; with ``finish`` an interrupted op is finished first."""
    from lakeward.pipeline.run import finish_interrupted
    from lakeward.pipeline.undoing import plan_undo as plan

    if finish:
        with lake.leased(name) as context:
            finish_interrupted(context)
    context = lake.context(name)
    return _with_marks(context, plan(context, goal))


def undo_goal(
    lake: OpenedLake, to_op: int | None, to_time: str | None, skip_files: Iterable[str], newest_op: int | None = None
) -> Goal:
    """Return the goal of an undo from what a user says.

    Raises:
        ConfigurationError: neither an op nor a time is given, or both.
    """
    from lakeward.pipeline.moments import parse_moment
    from lakeward.pipeline.undoing import Goal

    if (to_op is None) == (to_time is None):
        msg = "an undo goes back either to an op or to a time"
        raise ConfigurationError(msg, hint="lakeward undo TABLE --to-op OP, or --to-time TIME")
    moment = parse_moment(to_time, lake.config.timezone) if to_time is not None else None
    return Goal(to_op, moment, frozenset(_path(lake, file) for file in skip_files), newest_op)


def _path(lake: OpenedLake, file: str) -> str:
    """Return a file's path under landing; one that is gone from there is named as the ledger has it."""
    from lakeward.controller.files import landing_path

    try:
        return landing_path(lake, file)
    except ConfigurationError:
        return file


def _with_marks(context: TableContext, plan: UndoPlan) -> UndoPlan:
    return replace(plan, marked=tuple(_marked(context, plan))) if plan.op is not None else plan


def _marked(context: TableContext, plan: UndoPlan) -> Iterator[Marked]:
    """Yield what was made of the table and holds ops that are taken back: publications, then tags made by hand."""
    from lakeward.lake.iceberg.define import APPLIED_STAMP
    from lakeward.pipeline.load_branches import UNDONE_TAG_PREFIX
    from lakeward.pipeline.undoing import Marked
    from lakeward.snapshots.versions.publications import PublicationKind, list_publications

    undone = range(plan.back_to + 1, plan.newest_op + 1)
    mirror = context.mirror.metadata()
    publications = list_publications(mirror)
    for made in publications:
        if made.op in undone:
            yield Marked(made.kind, made.version, made.location, made.op)
    known = {made.location for made in publications if made.kind is PublicationKind.TAG}
    for tag, snapshot in sorted(mirror.tags().items()):
        op = int(mirror.stamp_at(APPLIED_STAMP, snapshot) or 0)
        if op in undone and tag not in known and not tag.startswith(UNDONE_TAG_PREFIX):
            yield Marked(PublicationKind.TAG, tag, tag, op)
