"""Verification of tables: mirrors are computed again and compared row by row."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lakeward.errors import ConfigurationError, LeaseHeldError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakeward.api.opened import OpenedLake
    from lakeward.config import Config
    from lakeward.mirror.op.context import TableContext
    from lakeward.runner.tables import KnownTable
    from lakeward.runner.workbench import Workbench
    from lakeward.views.verification.report import Against, TableVerification, VerifyOptions, VerifyReport


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
            message=stopped.message,
            hint=stopped.hint,
            error_kind=stopped.kind,
            exit_code=stopped.exit_code,
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
