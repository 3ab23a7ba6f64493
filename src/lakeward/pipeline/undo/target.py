"""Which op an undo goes back to: one that was named, or the last one before a time. Never into the middle of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakeward import schemas as S
from lakeward.errors import ConfigurationError, DataError
from lakeward.pipeline.as_of import require_captured
from lakeward.pipeline.checkpoints import is_undone
from lakeward.pipeline.moments import MomentKind
from lakeward.pipeline.undo.effect import is_op_row, pinned_log
from lakeward.transforms.columns import column
from lakeward.transforms.order import lacks_commit_time
from lakeward.transforms.standing import is_standing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakeward.model import Progress
    from lakeward.pipeline.context import TableContext
    from lakeward.pipeline.effect import Bases
    from lakeward.pipeline.moments import Moment


@dataclass(frozen=True)
class Target:
    """The op to go back to, and in words why it is that one."""

    op: int
    reason: str


def target_op(context: TableContext, progress: Progress, op: int) -> Target:
    """Give the target of an undo to a named op.

    Raises:
        ConfigurationError: there is no such op.
    """
    if not 0 <= op <= progress.op:
        msg = f"{context.table}: there is no op {op}; its ops are 1 to {progress.op}"
        raise ConfigurationError(msg, hint=f"lakeward undo {context.table} --to-op OP, 0 for nothing at all")
    return Target(op, f"op {op} is the newest" if op == progress.op else f"op {op} was asked for")


def target_before(context: TableContext, bases: Bases, progress: Progress, moment: Moment) -> Target:
    """Give the last op such that neither it nor one before it holds a change committed after the moment.

    Raises:
        ConfigurationError: the table cannot be asked by time, or no op or not even its capture lies before the moment.
        DataError: some changes have no commit time.
    """
    _require_times(context, moment)
    require_captured(context, moment)
    log = pinned_log(context, bases).filter(is_standing(progress.undone))
    late = _first_late_op(context, log, progress, moment)
    if late is None:
        return Target(progress.op, f"no change was committed after {moment.label}")
    before = next((op for op in range(late - 1, 0, -1) if not is_undone(op, progress.undone)), 0)
    if before == 0:
        msg = f"{context.table}: its first op, {late}, already holds changes that were committed after {moment.label}"
        raise ConfigurationError(msg, hint=f"lakeward undo {context.table} --to-op 0   (back to an empty table)")
    reason = f"op {before} is the last one before {moment.label}: op {late} holds what was committed after it"
    return Target(before, reason)


def _require_times(context: TableContext, moment: Moment) -> None:
    by_op = f"lakeward undo {context.table} --to-op OP   (lakeward runs lists ops with their times)"
    if moment.kind is not MomentKind.TIME:
        msg = f"{moment.label} is not a time; expected 2020-11-14 or 2020-11-14T10:30:00"
        raise ConfigurationError(msg, hint=by_op)
    if context.settings.timestamp_column is None:
        msg = f"{context.table} has no timestamp_column: nothing tells when its changes were committed"
        raise ConfigurationError(msg, hint=by_op)


def _first_late_op(context: TableContext, log: DataFrame, progress: Progress, moment: Moment) -> int | None:
    """Give the first op with a change committed after the moment, or with a load that began after it."""
    after = column(S.COMMIT_TIME) > F.timestamp_micros(F.lit(moment.micros))
    changes = log.filter(column(S.KIND) == S.KIND_CHANGE)
    changed, unknown = changes.agg(
        *(F.min(F.when(one, column(S.OP))) for one in (after, lacks_commit_time()))
    ).collect()[0]  # fmt: skip
    late = min((one for one in (changed, _first_late_load(log, progress, moment)) if one is not None), default=None)
    if unknown is not None and (late is None or unknown < late):
        msg = f"{context.table}: op {unknown} holds changes without a commit time: nothing tells where they belong"
        raise DataError(msg, hint=f"lakeward undo {context.table} --to-op OP")
    return late


def _first_late_load(log: DataFrame, progress: Progress, moment: Moment) -> int | None:
    late = [one.number for one in progress.generations if one.began > moment.digits]
    if not late:
        return None
    starts = F.get_json_object(column(S.DETAIL), "$.starts") == F.lit("true")
    found: int | None = (
        log.filter(is_op_row() & starts & column(S.GENERATION).isin(late)).agg(F.min(S.OP)).collect()[0][0]
    )
    return found
