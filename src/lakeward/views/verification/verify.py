"""Verify one table: recompute its rows independently and compare them with its mirror row by row.

Nothing is locked: changelog and mirror are read at the snapshots that were current at the start, so that an op
published meanwhile has no influence.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from lakeward.documents import to_compact_json
from lakeward.errors import ConfigurationError
from lakeward.iceberg.attempt import Attempt
from lakeward.logs import event
from lakeward.mirror.op.apply import carried_stamps
from lakeward.mirror.op.as_of import point_in_time
from lakeward.mirror.op.checkpoints import is_undone, op_moment
from lakeward.mirror.op.effect import capture
from lakeward.mirror.op.fold import ONE_TASK
from lakeward.mirror.op.ledger import progress_of
from lakeward.mirror.run import unfinished_op
from lakeward.schemas import spark_type
from lakeward.spark.workspace import Workspace
from lakeward.storage.checksum import checksum_of
from lakeward.text import json_object, reading_property
from lakeward.transforms import compare
from lakeward.transforms.columns import column, columns
from lakeward.views.verification.against import shown_location, two_sides
from lakeward.views.verification.landing import audit_landing
from lakeward.views.verification.recompute import find_origin, narrowed, recomputed
from lakeward.views.verification.report import Basis, RowFinding, TableVerification, Verdict, Verified

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import Column, DataFrame, Row
    from pyspark.sql.types import DataType

    from lakeward.iceberg.metadata import TableMetadata
    from lakeward.iceberg.table import IcebergTable
    from lakeward.mirror.op.as_of import PointInTime
    from lakeward.mirror.op.context import TableContext
    from lakeward.mirror.op.effect import Bases
    from lakeward.model import Progress
    from lakeward.views.verification.against import TwoSides
    from lakeward.views.verification.report import Against, VerifyOptions


@dataclass(frozen=True)
class Counts:
    """The number of rows that differ, in total and by column."""

    missing: int
    extra: int
    different: int
    columns: dict[str, int]

    @property
    def total(self) -> int:
        """Rows that differ in any way."""
        return self.missing + self.extra + self.different


@dataclass(frozen=True)
class Comparison:
    """The result of comparing rows. ``left``, kept in Spark, are rows whose number of occurrences differs."""

    left: DataFrame
    expected: DataFrame
    counts: Counts
    rows_expected: int
    rows_found: int
    content_hash: str
    findings: tuple[RowFinding, ...]


def compare_rows(
    workspace: Workspace,
    expected: DataFrame,
    found: DataFrame,
    *,
    keys: Sequence[str],
    names: Sequence[str],
    limit: int,
) -> Comparison:
    """Compare two frames that have the same columns of the same types."""
    left = workspace.keep(compare.leftovers(expected, found, names=names))
    pairs = compare.by_key(left, keys=keys, names=names) if keys else compare.unpaired(left, names=names)
    counts = _counts(pairs, keys, names)
    content = checksum_of(found, names)
    return Comparison(
        left=left,
        expected=expected,
        counts=counts,
        rows_expected=content.rows + counts.missing - counts.extra,
        rows_found=content.rows,
        content_hash=content.text,
        findings=tuple(_findings(pairs, keys, names, limit)) if counts.total else (),
    )


def chosen_keys(context: TableContext, bases: Bases, options: VerifyOptions) -> Column | None:
    """Return the condition for the rows to verify, None for all.

    Raises:
        ConfigurationError: a range names a column that is not in the key, or a value that does not fit it.
    """
    keys = context.settings.primary_key
    conditions = [
        _in_range(context, bases, key_range.column, key_range.low, key_range.high) for key_range in options.ranges
    ]
    if options.sample is not None:
        conditions.append(
            compare.in_sample(options.sample, keys or sorted(lake_column.name for lake_column in bases.columns))
        )
    return compare.all_of(conditions) if conditions else None


def _in_range(context: TableContext, bases: Bases, name: str, low: str | None, high: str | None) -> Column:
    keys = context.settings.primary_key
    if name not in keys:
        have = f"its key is {', '.join(keys)}" if keys else "it has no key"
        msg = f"{context.table}: --key-range names {name!r}, and {have}"
        raise ConfigurationError(msg)
    lake_type = spark_type(next(lake_column.lake_type for lake_column in bases.columns if lake_column.name == name))
    ends = [_as_type(end, lake_type) if end is not None else None for end in (low, high)]
    _require_values(context, name, [(text, end) for text, end in zip((low, high), ends, strict=True) if text])
    conditions = []
    if ends[0] is not None:
        conditions.append(column(name) >= ends[0])
    if ends[1] is not None:
        conditions.append(column(name) <= ends[1])
    return compare.all_of(conditions)


def _as_type(text: str, wanted: DataType) -> Column:
    """Return a text as a value, null where it is not one. In SQL, as Spark 3.5 has no other ``try_cast``."""
    literal = text.replace("\\", "\\\\").replace("'", "\\'")
    return F.expr(f"try_cast('{literal}' AS {wanted.simpleString()})")


def _require_values(context: TableContext, name: str, ends: Sequence[tuple[str, Any]]) -> None:
    values = context.spark.range(1).select(*[end.isNull().alias(f"e{at}") for at, (_, end) in enumerate(ends)])
    for (text, _), is_bad in zip(ends, values.collect()[0], strict=True):
        if is_bad:
            msg = f"{context.table}: --key-range {name}: {text!r} is not a value of the column"
            raise ConfigurationError(msg)


def _counts(pairs: DataFrame, keys: Sequence[str], names: Sequence[str]) -> Counts:
    missing, extra, different, *each = pairs.agg(*compare.totals(keys=keys, names=names)).collect()[0]
    values = [name for name in names if name not in keys]
    differing = {name: number for name, number in zip(values, each, strict=True) if number}
    return Counts(missing, extra, different, differing)


def _findings(pairs: DataFrame, keys: Sequence[str], names: Sequence[str], limit: int) -> Iterator[RowFinding]:
    if not limit:
        return
    order = [column(key).asc_nulls_first() for key in keys] or [
        F.coalesce(column(compare.EXPECTED), column(compare.FOUND)).asc_nulls_first()
    ]
    shown = pairs.orderBy(*order).limit(limit)
    rows = shown.select(
        *columns((compare.EXPECTED_TIMES, compare.FOUND_TIMES)),
        compare.as_texts(pairs, compare.EXPECTED, names),
        compare.as_texts(pairs, compare.FOUND, names),
        compare.differing_columns(keys=keys, names=names),
    )
    yielded = 0
    for row in rows.collect():
        for finding in _of_pair(row, keys, names):
            if yielded == limit:
                return
            yielded += 1
            yield finding


def _of_pair(row: Row, keys: Sequence[str], names: Sequence[str]) -> Iterator[RowFinding]:
    expected_times, found_times = row[0], row[1]
    expected, found = (dict(zip(names, side, strict=True)) for side in (row[2], row[3]))
    key = {name: (expected if expected_times else found)[name] for name in keys}
    for name in row[4]:
        yield RowFinding("different", key, name, expected[name], found[name])
    if expected_times > found_times:
        yield RowFinding("missing", key, row=expected, times=expected_times - found_times)
    if found_times > expected_times:
        yield RowFinding("extra", key, row=found, times=found_times - expected_times)


# The record of the last clean verification: a property of the mirror, so that it moves with the lake.


VERIFIED_PROPERTY = "lakeward.verified"


def last_verified(mirror: TableMetadata, progress: Progress) -> Verified | None:
    """Return the last complete verification that found nothing, None where its op was undone."""
    text = mirror.property(VERIFIED_PROPERTY)
    found = _read(text) if text else None
    return None if found is None or is_undone(found.op, progress.undone) else found


def _read(text: str) -> Verified:
    with reading_property(VERIFIED_PROPERTY, of="mirror"):
        return Verified.from_dict(json_object(text))


def record_verified(mirror: IcebergTable, verified: Verified, before: Verified | None) -> Verified:
    """Record a verification, unless one of a later op is on record; return the one on record."""
    if before is not None and before.op > verified.op:
        return before
    mirror.set_properties({VERIFIED_PROPERTY: to_compact_json(verified)})
    return verified


def forget_verified(mirror: IcebergTable) -> None:
    """Remove the record: the mirror was found to be wrong."""
    mirror.set_properties({VERIFIED_PROPERTY: None})


logger = logging.getLogger(__name__)
FOUND_SOMETHING = 1
_CAPTURE_ATTEMPTS = 5


@dataclass(frozen=True)
class Examined:
    """A verification with the frames that it used, which are valid as long as the workspace."""

    at: PointInTime
    bases: Bases
    comparison: Comparison
    report: TableVerification
    sides: TwoSides | None = None


def verify_table(context: TableContext, options: VerifyOptions) -> TableVerification:
    """Verify a table and record the result.

    Raises:
        ConfigurationError: it cannot be verified in the requested way.
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
    """Add the audit of landing, where a whole table is verified from its own files or changelog."""
    if report.basis == Basis.AGAINST or report.part is not None:
        return report
    audit = audit_landing(context, workspace, bases, progress_of(context, bases))
    code = max(report.exit_code, FOUND_SOMETHING if audit.findings else 0)
    notes = (*report.notes, *audit.notes)
    return replace(report, landing=tuple(audit.findings), notes=notes, exit_code=code)


def examine(context: TableContext, workspace: Workspace, bases: Bases, options: VerifyOptions) -> Examined:
    """Compare the mirror at the captured snapshot with the expected rows."""
    # The moment is the op that the mirror shows: what newer ops log or write after the capture is ignored.
    at = point_in_time(context, op_moment(bases.applied))
    context.adapt_plans(wanted=True)
    wanted = chosen_keys(context, bases, options)
    if options.against is not None:
        return _against(at, workspace, bases, options, options.against, wanted)
    names = tuple(lake_column.name for lake_column in bases.columns)
    origin = find_origin(at, workspace, bases.columns, options.basis)
    fields = event("verify.compare", table=str(context.table), basis=origin.basis)
    logger.info("%s: comparing with its %s (%s)", context.table, origin.basis, origin.reason, extra=fields)
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
    """Record that a whole mirror was verified without differences, or remove an earlier record where it has some."""
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
    """Whether the metadata of a mirror verified without differences counts other rows than the last op left.

    Then another program has compacted it: the rows are the same, but delete files may be left that delete nothing.
    """
    if report.verdict is not Verdict.CLEAN or report.part is not None or report.basis == Basis.AGAINST:
        return False
    bases = capture(context)
    return _is_examined(bases, report) and _counts_differently(bases)


def stamp_row_count(context: TableContext, report: TableVerification) -> TableVerification:
    """Make the mirror's present row count the expected one; the caller holds the lease."""
    bases = capture(context)
    if bases.mirror is None or not (_is_examined(bases, report) and _counts_differently(bases)):
        return report
    stamps = carried_stamps(context.mirror.metadata(), bases.mirror.id)
    with Attempt(context.mirror, op=bases.applied, base=bases.mirror.id) as attempt:
        attempt.stamp(stamps)
        attempt.publish(before=context.permission.require)
    note = (
        f"the metadata counts {bases.mirror.rows:,} rows and op {bases.applied} left {bases.expected_rows:,}, though "
        "the rows are right: another program compacted the mirror; its count was accepted"
    )
    return replace(report, notes=(*report.notes, note))


def _is_examined(bases: Bases, report: TableVerification) -> bool:
    return bases.mirror is not None and bases.mirror.id == report.mirror_snapshot


def _counts_differently(bases: Bases) -> bool:
    return bases.mirror is not None and bases.expected_rows not in (None, bases.mirror.rows)


def never_run(context: TableContext) -> TableVerification:
    """Return the report for a table that has nothing to verify."""
    return TableVerification(str(context.table), Verdict.SKIPPED, message="nothing was run yet")


def captured(context: TableContext) -> Bases:
    """Capture a state in which the changelog includes what the mirror shows; an op may be published in between."""
    for _ in range(_CAPTURE_ATTEMPTS):
        bases = capture(context)
        if bases.applied <= bases.logged:
            break
    unfinished_op(context, bases)
    return bases


def _mirror_rows(context: TableContext, bases: Bases) -> DataFrame:
    head = bases.mirror or context.mirror.require_head()
    return context.mirror.read(head.id).select(*columns(lake_column.name for lake_column in bases.columns))


def _against(
    at: PointInTime,
    workspace: Workspace,
    bases: Bases,
    options: VerifyOptions,
    against: Against,
    wanted: Column | None,
) -> Examined:
    context = at.context
    fields = event("verify.compare", table=str(context.table), basis="against")
    logger.info("%s: comparing with %s", context.table, shown_location(against), extra=fields)
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
    at: PointInTime, bases: Bases, options: VerifyOptions, comparison: Comparison, basis: dict[str, Any]
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
