"""Verify one table: compute its rows again, independently, and compare them with its mirror row for row.

Nothing is locked: changelog and mirror are read at the snapshots that stood when it began, and an op that is published
meanwhile does not disturb.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lakeward.lake.iceberg.attempt import Attempt
from lakeward.logs import event
from lakeward.pipeline.as_of import standpoint
from lakeward.pipeline.effect import capture
from lakeward.pipeline.folding import ONE_TASK
from lakeward.pipeline.ledger import progress_of
from lakeward.pipeline.moments import op_moment
from lakeward.pipeline.recover import unfinished_op
from lakeward.pipeline.stamps import carried_stamps
from lakeward.pipeline.workspace import Workspace
from lakeward.snapshots.verification.against import two_sides
from lakeward.snapshots.verification.compare import chosen_keys, compare_rows
from lakeward.snapshots.verification.landing import audit_landing
from lakeward.snapshots.verification.recompute import find_origin, narrowed, recomputed
from lakeward.snapshots.verification.report import Basis, TableVerification, Verdict, Verified
from lakeward.snapshots.verification.source import shown_location
from lakeward.snapshots.verification.verified import forget_verified, last_verified, record_verified
from lakeward.transforms.columns import columns as named

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from lakeward.pipeline.as_of import Standpoint
    from lakeward.pipeline.context import TableContext
    from lakeward.pipeline.effect import Bases
    from lakeward.snapshots.verification.against import TwoSides
    from lakeward.snapshots.verification.compare import Comparison
    from lakeward.snapshots.verification.report import Against, VerifyOptions

logger = logging.getLogger(__name__)
FOUND_SOMETHING = 1
_LOOKS = 5


@dataclass(frozen=True)
class Examined:
    """A verification with the frames that it stands on; they live as long as the workspace."""

    at: Standpoint
    bases: Bases
    comparison: Comparison
    report: TableVerification
    sides: TwoSides | None = None


def verify_table(context: TableContext, options: VerifyOptions) -> TableVerification:
    """Verify a table and keep on record what that showed.

    Raises:
        ConfigurationError: it cannot be verified in the way that was asked for.
        DataError: what the recomputation needs is gone.
    """
    started = time.monotonic()
    bases = captured(context)
    if bases.mirror is None or not bases.applied:
        return never_run(context)
    with Workspace() as workspace:
        report = _with_landing(context, workspace, bases, examine(context, workspace, bases, options).report)
        report = recorded(context, bases, report)
    return replace(report, seconds=time.monotonic() - started)


def _with_landing(
    context: TableContext, workspace: Workspace, bases: Bases, report: TableVerification
) -> TableVerification:
    """Add what a look over landing finds, where a table is verified from its own files or changelog, and in whole."""
    if report.basis == Basis.AGAINST or report.part is not None:
        return report
    audit = audit_landing(context, workspace, bases, progress_of(context, bases))
    code = max(report.exit_code, FOUND_SOMETHING if audit.findings else 0)
    notes = (*report.notes, *audit.notes)
    return replace(report, landing=tuple(audit.findings), notes=notes, exit_code=code)


def examine(context: TableContext, workspace: Workspace, bases: Bases, options: VerifyOptions) -> Examined:
    """Compare the mirror at the captured snapshot with what it must be."""
    # What a newer op logs or writes after the capture is not looked at: the moment is the op that the mirror shows.
    at = standpoint(context, op_moment(bases.applied))
    context.adapt_plans(wanted=True)
    wanted = chosen_keys(context, bases, options)
    if options.against is not None:
        return _against(at, workspace, bases, options, options.against, wanted)
    names = tuple(one.name for one in bases.columns)
    origin = find_origin(at, workspace, bases.columns, options.basis)
    told = event("verify.compare", table=str(context.table), basis=origin.basis)
    logger.info("%s: comparing with its %s (%s)", context.table, origin.basis, origin.reason, extra=told)
    context.adapt_plans(wanted=origin.rows > ONE_TASK)
    found = _mirror_rows(context, bases)
    if wanted is not None:
        if context.settings.primary_key:
            origin = narrowed(origin, wanted)
        expected, found = recomputed(at, workspace, origin, names).filter(wanted), found.filter(wanted)
    else:
        expected = recomputed(at, workspace, origin, names)
    keys = context.settings.primary_key
    comparison = compare_rows(workspace, expected, found, keys=keys, names=names, limit=options.limit)
    basis = {"basis": origin.basis.value, "reason": origin.reason}
    return Examined(at, bases, comparison, _report(at, bases, options, comparison, basis))


def recorded(context: TableContext, bases: Bases, report: TableVerification) -> TableVerification:
    """Keep on record that all of a mirror was found right; take an earlier record back where it was found wrong."""
    before = last_verified(context.mirror.metadata(), progress_of(context, bases))
    if report.basis == Basis.AGAINST or (report.verdict is Verdict.CLEAN and report.part is not None):
        return replace(report, verified=before)
    if report.verdict is Verdict.DIFFERENT or report.landing:
        if before is not None:
            forget_verified(context.mirror)
        return report
    now = datetime.now(UTC).isoformat(timespec="seconds")
    verified = Verified(bases.applied, now, report.basis or "", report.rows_found or 0, report.content_hash or "")
    return replace(report, verified=record_verified(context.mirror, verified, before))


def has_other_count(context: TableContext, report: TableVerification) -> bool:
    """Tell whether a mirror that was found right in whole counts other rows in its metadata than the last op left.

    Something else has compacted it then: its rows are the same, and delete files may be left that delete nothing.
    """
    if report.verdict is not Verdict.CLEAN or report.part is not None or report.basis == Basis.AGAINST:
        return False
    bases = capture(context)
    return _is_examined(bases, report) and _counts_differently(bases)


def stamp_row_count(context: TableContext, report: TableVerification) -> TableVerification:
    """Let the mirror's present count be the expected one; the caller holds the lease."""
    bases = capture(context)
    if bases.mirror is None or not (_is_examined(bases, report) and _counts_differently(bases)):
        return report
    stamps = carried_stamps(context.mirror.metadata(), bases.mirror.id)
    with Attempt(context.mirror, op=bases.applied, base=bases.mirror.id) as attempt:
        attempt.stamp(stamps)
        attempt.publish(before=context.permission.require)
    note = (
        f"the metadata counts {bases.mirror.rows:,} rows and op {bases.applied} left {bases.expected_rows:,}, though "
        "the rows are right: the mirror was compacted by something else; the count was taken over"
    )
    return replace(report, notes=(*report.notes, note))


def _is_examined(bases: Bases, report: TableVerification) -> bool:
    return bases.mirror is not None and bases.mirror.id == report.mirror_snapshot


def _counts_differently(bases: Bases) -> bool:
    return bases.mirror is not None and bases.expected_rows not in (None, bases.mirror.rows)


def never_run(context: TableContext) -> TableVerification:
    """Say that there is nothing to verify."""
    return TableVerification(str(context.table), Verdict.SKIPPED, message="nothing was run yet")


def captured(context: TableContext) -> Bases:
    """Capture a state in which the changelog knows what the mirror shows: an op may be published in between."""
    for _ in range(_LOOKS):
        bases = capture(context)
        if bases.applied <= bases.logged:
            break
    unfinished_op(context, bases)
    return bases


def _mirror_rows(context: TableContext, bases: Bases) -> DataFrame:
    head = bases.mirror or context.mirror.require_head()
    return context.mirror.read(head.id).select(*named(one.name for one in bases.columns))


def _against(
    at: Standpoint,
    workspace: Workspace,
    bases: Bases,
    options: VerifyOptions,
    against: Against,
    wanted: Column | None,
) -> Examined:
    context = at.context
    told = event("verify.compare", table=str(context.table), basis="against")
    logger.info("%s: comparing with %s", context.table, shown_location(against), extra=told)
    sides = two_sides(at, bases, _mirror_rows(context, bases), workspace, against)
    expected, found, keys = sides.expected, sides.found, context.settings.primary_key
    if wanted is not None:
        expected, found = expected.filter(wanted), found.filter(wanted)
    comparison = compare_rows(workspace, expected, found, keys=keys, names=sides.names, limit=options.limit)
    found_sides = {
        "basis": Basis.AGAINST.value,
        "reason": shown_location(against),
        "only_here": sides.only_here,
        "only_there": sides.only_there,
        "not_compared": sides.not_compared,
        "left_out": sides.left_out,
    }
    return Examined(at, bases, comparison, _report(at, bases, options, comparison, found_sides), sides)


def _report(
    at: Standpoint, bases: Bases, options: VerifyOptions, comparison: Comparison, basis: dict[str, Any]
) -> TableVerification:
    counts = comparison.counts
    return TableVerification(
        table=str(at.context.table),
        verdict=Verdict.DIFFERENT if counts.total else Verdict.CLEAN,
        op=bases.applied,
        generation=at.generation.number,
        mirror_snapshot=bases.mirror.id if bases.mirror else None,
        part=options.part,
        rows_expected=comparison.rows_expected,
        rows_found=comparison.rows_found,
        missing=counts.missing,
        extra=counts.extra,
        different=counts.different,
        columns=counts.columns,
        findings=comparison.findings,
        content_hash=comparison.content_hash,
        exit_code=FOUND_SOMETHING if counts.total else 0,
        **basis,
    )
