"""Undo, erasure, maintenance and verification behind the methods of :class:`lakeward.Lakeward`."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lakeward.errors import ConfigurationError, LeaseHeldError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lakeward.api.opened import OpenedLake
    from lakeward.config import Config
    from lakeward.mirror.maintenance import MaintenanceReport, WorkKind
    from lakeward.mirror.op.context import TableContext
    from lakeward.mirror.op.report import Marked
    from lakeward.mirror.reset import ResetPlan, TableReset
    from lakeward.mirror.undo import Undone, UndoPlan, UndoRequest
    from lakeward.runner.maintain import MaintenanceBudget, MaintenanceRequest
    from lakeward.runner.tables import KnownTable
    from lakeward.runner.workbench import Workbench
    from lakeward.views.verification.report import Against, TableVerification, VerifyOptions, VerifyReport


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


def reset_table(lake: OpenedLake, name: str, newest_op: int | None) -> TableReset:
    """Read everything in a table's landing folder again, and publish the result in one step."""
    from lakeward.mirror.reset import reset
    from lakeward.runner.workbench import record_ops

    began = datetime.now(UTC)
    with lake.leased(name) as context:
        done = reset(context, newest_op)
        done = replace(done, plan=_reset_with_marks(context, done.plan))
    record_ops(lake.state, lake.table(name).table, began, done.ops)
    return done


def plan_reset(lake: OpenedLake, name: str, *, finish: bool) -> ResetPlan:
    """Return what a reset would do; with ``finish`` an interrupted op is finished first."""
    from lakeward.mirror.reset import plan_reset as plan
    from lakeward.mirror.run import finish_interrupted

    if finish:
        with lake.leased(name) as context:
            finish_interrupted(context)
    context = lake.context(name)
    return _reset_with_marks(context, plan(context))


def _reset_with_marks(context: TableContext, plan: ResetPlan) -> ResetPlan:
    return replace(plan, marked=tuple(_marked(context, range(1, plan.newest_op + 1))))


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
    undone = range(plan.back_to + 1, plan.newest_op + 1)
    return replace(plan, marked=tuple(_marked(context, undone))) if plan.op is not None else plan


def _marked(context: TableContext, undone: range) -> Iterator[Marked]:
    """Yield what contains ops that are undone: publications, then tags that users made."""
    from lakeward.iceberg.define import APPLIED_STAMP
    from lakeward.mirror.op.apply import UNDONE_TAG_PREFIX
    from lakeward.mirror.op.report import Marked
    from lakeward.views.versions.manifest import PublicationKind, list_publications

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


def verify_tables(lake: OpenedLake, chosen: list[KnownTable], options: VerifyOptions, *, repair: bool) -> VerifyReport:
    """Return the verification of tables; with ``repair`` differences are corrected."""
    from lakeward.views.verification.report import VerifyReport

    bench = lake.workbench()
    return VerifyReport(tuple(_verified(bench, known, options, repair=repair) for known in chosen))


def verify_options(
    basis: str, sample: float | None, key_ranges: Iterable[str], against: Against | None, limit: int
) -> VerifyOptions:
    """Return the options of a verification from the arguments of the user.

    Raises:
        ConfigurationError: the basis is unknown, or the sample is not a share.
    """
    from lakeward.views.verification.report import Basis, KeyRange, VerifyOptions

    known = [known.value for known in Basis if known is not Basis.AGAINST]
    if basis not in known:
        msg = f"unknown basis {basis!r}; expected {', '.join(known)}"
        raise ConfigurationError(msg)
    if sample is not None and not 0 < sample <= 1:
        msg = f"a sample is a share of the keys, more than 0 and at most 1; found {sample}"
        raise ConfigurationError(msg)
    return VerifyOptions(Basis(basis), sample, tuple(map(KeyRange.parse, key_ranges)), against, limit)


def other_copy(
    config: Config,
    chosen: list[KnownTable],
    location: str | None,
    table: str | None,
    cut_off: str | None,
    changed_at: str | None,
) -> Against | None:
    """Return the other copy to compare with; None where none is named.

    Raises:
        ConfigurationError: the arguments contradict each other.
    """
    from lakeward.mirror.op.checkpoints import parse_moment
    from lakeward.views.verification.report import Against

    if location is None:
        if table or cut_off or changed_at:
            msg = "--against-table, --cut-off and --changed-at need --against"
            raise ConfigurationError(msg)
        return None
    moment = parse_moment(cut_off, config.timezone) if cut_off is not None else None
    if changed_at is not None and moment is None:
        msg = "--changed-at needs --cut-off"
        raise ConfigurationError(msg)
    found = Against(location, table, moment, changed_at)
    if len(chosen) > 1 and (table is not None or not found.is_jdbc):
        msg = f"--against {location} is the copy of one table, but {len(chosen)} tables would be compared with it"
        raise ConfigurationError(msg, hint="name the table: lakeward verify TABLE --against …")
    return found


def _verified(bench: Workbench, known: KnownTable, options: VerifyOptions, *, repair: bool) -> TableVerification:
    """Verify one table; an error becomes its report."""
    from lakeward.spark.errors import as_lakeward_error
    from lakeward.views.verification.report import TableVerification, Verdict

    try:
        return _compared(bench, known, options, repair=repair)
    except Exception as error:
        stopped = as_lakeward_error(error, str(known.table))
        return TableVerification(
            str(known.table),
            Verdict.FAILED,
            **stopped.as_fields(),
        )


def _compared(bench: Workbench, known: KnownTable, options: VerifyOptions, *, repair: bool) -> TableVerification:
    from lakeward.views.verification.verify import has_other_count, verify_table

    context = bench.context(known)
    found = _repaired(bench, known, context, options) if repair else verify_table(context, options)
    return _counted(bench, known, found) if has_other_count(context, found) else found


def _repaired(bench: Workbench, known: KnownTable, context: TableContext, options: VerifyOptions) -> TableVerification:
    from lakeward.runner.workbench import record_op
    from lakeward.views.verification.repair import repair_table

    began = datetime.now(UTC)
    found = repair_table(context, options, lambda: bench.leased(known))
    if found.repair is not None:
        record_op(bench.state, known.table, began, found.repair)
    return found


def _counted(bench: Workbench, known: KnownTable, found: TableVerification) -> TableVerification:
    from lakeward.views.verification.verify import stamp_row_count

    try:
        with bench.leased(known) as context:
            return stamp_row_count(context, found)
    except LeaseHeldError as error:
        note = f"the row count in its metadata is not that of its last op; it is not corrected now: {error.message}"
        return replace(found, notes=(*found.notes, note))
