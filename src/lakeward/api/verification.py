"""Verification, as the library offers it: ``lake.verify(["sales.product"])``."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lakeward.arguments import FLAG, OPTIONAL_NUMBER, OPTIONAL_TEXT, TEXT, TEXTS, WHOLE, takes
from lakeward.errors import ConfigurationError, LeaseHeldError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lakeward.controller.tables import KnownTable
    from lakeward.controller.workbench import Workbench
    from lakeward.pipeline.context import TableContext
    from lakeward.snapshots.verification.report import Against, TableVerification, VerifyOptions, VerifyReport


class Verification:
    """Computes mirrors again and compares them row for row; call it."""

    def __init__(self, bench: Callable[[], Workbench], tables: Callable[[tuple[str, ...]], list[KnownTable]]) -> None:
        """Work with what the lake gives; ``tables`` gives the named ones, the active ones when none is named."""
        self._bench = bench
        self._tables = tables

    @takes(tables=TEXTS, basis=TEXT, sample=OPTIONAL_NUMBER, key_ranges=TEXTS, repair=FLAG, limit=WHOLE)
    @takes(against=OPTIONAL_TEXT, against_table=OPTIONAL_TEXT, cut_off=OPTIONAL_TEXT, changed_at=OPTIONAL_TEXT)
    def __call__(
        self,
        tables: Iterable[str] = (),
        *,
        basis: str = "auto",
        sample: float | None = None,
        key_ranges: Iterable[str] = (),
        against: str | None = None,
        against_table: str | None = None,
        cut_off: str | None = None,
        changed_at: str | None = None,
        repair: bool = False,
        limit: int = 20,
    ) -> VerifyReport:
        """Verify all active tables, or those named.

        Args:
            tables: names as ``schema.table``.
            basis: ``files`` reads the landing files again, ``changelog`` folds load and changelog, ``auto`` takes the
                files where all are still there unchanged.
            sample: compare only this share of the keys.
            key_ranges: compare only keys in these ranges, each as ``id=1..1000``.
            against: compare with another copy instead: a ``jdbc:`` address, a folder of files or a published version.
            against_table: the table's name there, or a query in parentheses with an alias; default ``schema.table``.
            cut_off: leave out keys that changed after this day or time.
            changed_at: the other copy's column that tells when a row changed last, for the cut-off.
            repair: put right what is found, as one op per table.
            limit: findings to give per table.

        Raises:
            ConfigurationError: what was asked does not fit together; nothing was looked at.
        """
        bench = self._bench()
        chosen = self._tables(tuple(tables))
        other = _against(bench, chosen, against, against_table, cut_off, changed_at)
        options = _options(basis, sample, key_ranges, other, limit)
        return _report([_verified(bench, known, options, repair=repair) for known in chosen])


def _options(
    basis: str, sample: float | None, key_ranges: Iterable[str], against: Against | None, limit: int
) -> VerifyOptions:
    from lakeward.snapshots.verification.report import Basis, KeyRange, VerifyOptions

    known = [one.value for one in Basis if one is not Basis.AGAINST]
    if basis not in known:
        msg = f"basis {basis!r} is not known; expected {', '.join(known)}"
        raise ConfigurationError(msg)
    if sample is not None and not 0 < sample <= 1:
        msg = f"a sample is a share of the keys, more than 0 and at most 1; found {sample}"
        raise ConfigurationError(msg)
    return VerifyOptions(Basis(basis), sample, tuple(KeyRange.parse(one) for one in key_ranges), against, limit)


def _against(
    bench: Workbench,
    chosen: list[KnownTable],
    location: str | None,
    table: str | None,
    cut_off: str | None,
    changed_at: str | None,
) -> Against | None:
    from lakeward.pipeline.moments import parse_moment
    from lakeward.snapshots.verification.report import Against

    if location is None:
        if table or cut_off or changed_at:
            msg = "--against-table, --cut-off and --changed-at tell of the other copy that --against names"
            raise ConfigurationError(msg)
        return None
    moment = parse_moment(cut_off, bench.config.timezone) if cut_off is not None else None
    if changed_at is not None and moment is None:
        msg = "--changed-at tells which rows changed after --cut-off, which is not given"
        raise ConfigurationError(msg)
    found = Against(location, table, moment, changed_at)
    if len(chosen) > 1 and (table is not None or not found.is_jdbc):
        msg = f"--against {location} is one table's copy, and {len(chosen)} tables are to be compared with it"
        raise ConfigurationError(msg, hint="name the table: lakeward verify TABLE --against …")
    return found


def _verified(bench: Workbench, known: KnownTable, options: VerifyOptions, *, repair: bool) -> TableVerification:
    """Verify one table; whatever stops it is its report."""
    from lakeward.snapshots.verification.report import TableVerification, Verdict
    from lakeward.spark.errors import as_lakeward_error

    try:
        return _looked_at(bench, known, options, repair=repair)
    except Exception as error:
        stopped = as_lakeward_error(error, str(known.table))
        return TableVerification(
            str(known.table),
            Verdict.FAILED,
            message=stopped.message,
            hint=stopped.hint,
            error_kind=stopped.kind,
            exit_code=stopped.exit_code,
        )


def _looked_at(bench: Workbench, known: KnownTable, options: VerifyOptions, *, repair: bool) -> TableVerification:
    from lakeward.snapshots.verification.verify import has_other_count, verify_table

    context = bench.context(known)
    found = _repaired(bench, known, context, options) if repair else verify_table(context, options)
    return _counted(bench, known, found) if has_other_count(context, found) else found


def _repaired(bench: Workbench, known: KnownTable, context: TableContext, options: VerifyOptions) -> TableVerification:
    from lakeward.controller.recording import record_op
    from lakeward.snapshots.verification.repair import repair_table

    began = datetime.now(UTC)
    found = repair_table(context, options, lambda: bench.leased(known))
    if found.repair is not None:
        record_op(bench.state, known.table, began, found.repair)
    return found


def _counted(bench: Workbench, known: KnownTable, found: TableVerification) -> TableVerification:
    from lakeward.snapshots.verification.verify import stamp_row_count

    try:
        with bench.leased(known) as context:
            return stamp_row_count(context, found)
    except LeaseHeldError as error:
        note = f"its metadata counts other rows than its last op left; it is not put right now: {error.message}"
        return replace(found, notes=(*found.notes, note))


def _report(tables: list[TableVerification]) -> VerifyReport:
    from lakeward.snapshots.verification.report import VerifyReport

    return VerifyReport(tuple(tables))
