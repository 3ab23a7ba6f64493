"""Undo, erasure and maintenance behind the methods of :class:`lakeward.Lakeward`."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lakeward.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lakeward.api.opened import OpenedLake
    from lakeward.mirror.maintenance import MaintenanceReport, WorkKind
    from lakeward.mirror.op.context import TableContext
    from lakeward.mirror.undo import Marked, Undone, UndoPlan, UndoRequest
    from lakeward.runner.maintain import MaintenanceBudget, MaintenanceRequest


def undo_ops(lake: OpenedLake, name: str, request: UndoRequest) -> Undone:
    """Undo every op after the requested one, by an op of its own."""
    from lakeward.mirror.undo import undo
    from lakeward.runner.workbench import record_op

    began = datetime.now(UTC)
    with lake.leased(name) as context:
        done = undo(context, request)
        done = replace(done, plan=_with_marks(context, done.plan))
    if done.op is not None:
        record_op(lake.state, lake.table(name).table, began, done.op)
    return done


def plan_undo(lake: OpenedLake, name: str, request: UndoRequest, *, finish: bool) -> UndoPlan:
    """Return what an undo would do; with ``finish`` an interrupted op is finished first."""
    from lakeward.mirror.run import finish_interrupted
    from lakeward.mirror.undo import plan_undo as plan

    if finish:
        with lake.leased(name) as context:
            finish_interrupted(context)
    context = lake.context(name)
    return _with_marks(context, plan(context, request))


def undo_request(
    lake: OpenedLake, to_op: int | None, to_time: str | None, skip_files: Iterable[str], newest_op: int | None = None
) -> UndoRequest:
    """Return the request for an undo from the user's arguments.

    Raises:
        ConfigurationError: there is neither an op nor a time, or both.
    """
    from lakeward.mirror.op.checkpoints import parse_moment
    from lakeward.mirror.undo import UndoRequest

    if (to_op is None) == (to_time is None):
        msg = "an undo goes back either to an op or to a time"
        raise ConfigurationError(msg, hint="lakeward undo TABLE --to-op OP, or --to-time TIME")
    moment = parse_moment(to_time, lake.config.timezone) if to_time is not None else None
    return UndoRequest(to_op, moment, frozenset(_path(lake, file) for file in skip_files), newest_op)


def _path(lake: OpenedLake, file: str) -> str:
    """Return a file's path under landing; for a file that is gone from there, the name in the ledger."""
    from lakeward.runner.watch.requests import landing_path

    try:
        return landing_path(lake, file)
    except ConfigurationError:
        return file


def _with_marks(context: TableContext, plan: UndoPlan) -> UndoPlan:
    return replace(plan, marked=tuple(_marked(context, plan))) if plan.op is not None else plan


def _marked(context: TableContext, plan: UndoPlan) -> Iterator[Marked]:
    """Yield what contains ops that are undone: publications, then tags that users made."""
    from lakeward.iceberg.define import APPLIED_STAMP
    from lakeward.mirror.op.apply import UNDONE_TAG_PREFIX
    from lakeward.mirror.undo import Marked
    from lakeward.views.versions.manifest import PublicationKind, list_publications

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


def require_keyed(lake: OpenedLake, name: str) -> None:
    """Refuse a table whose rows cannot be identified.

    Raises:
        ConfigurationError: the table has no primary key.
    """
    known = lake.table(name)
    if not known.settings.primary_key:
        msg = f"{known.table} has no primary key: the rows of one subject cannot be identified"
        raise ConfigurationError(msg, hint=f"delete them at the source and reload {known.table}")


def require_reason(reason: str) -> None:
    """Refuse an erasure without a reason.

    Raises:
        ConfigurationError: the reason is empty.
    """
    if not reason.strip():
        msg = "an erasure needs a reason: it is kept with the record of what was done"
        raise ConfigurationError(msg, hint="--reason 'request 4711 of 2026-05-25'")


def maintain(
    lake: OpenedLake, names: Iterable[str], request: MaintenanceRequest, budget: MaintenanceBudget
) -> MaintenanceReport:
    """Maintain the named tables, all active ones when none is named."""
    from lakeward.mirror.maintenance import MaintenanceReport
    from lakeward.runner.maintain import maintain_tables

    started, chosen = time.monotonic(), lake.active(names)
    found = tuple(maintain_tables(lake.workbench(), chosen, lake.tables(), request, budget)) if chosen else ()
    return MaintenanceReport(found, time.monotonic() - started)


def work_kinds(only: str | None) -> tuple[WorkKind, ...]:
    """Return the kinds of maintenance to do; None: all.

    Raises:
        ConfigurationError: there is no such kind.
    """
    from lakeward.mirror.maintenance import WorkKind

    if only is None:
        return tuple(WorkKind)
    if only not in {*WorkKind}:
        msg = f"{only!r} is not a kind of maintenance; expected {', '.join(WorkKind)}"
        raise ConfigurationError(msg)
    return (WorkKind(only),)
