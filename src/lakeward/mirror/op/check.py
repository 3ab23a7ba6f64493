"""The checks that can refuse an op before anything is written, and the count of rows that an op changes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from shlex import quote
from typing import TYPE_CHECKING, NoReturn

from pyspark.sql import functions as F

from lakeward import schemas as S
from lakeward.delete_guard import Removal, batch_refusal, load_refusal
from lakeward.documents import Document
from lakeward.errors import BadRowError, CutError, DataError
from lakeward.formats.base import ReadSpec
from lakeward.formats.dms.changes import WITHOUT_KEY
from lakeward.formats.dms.listing import file_format, is_transactions
from lakeward.formats.dms.sniffing import sniff_bad_rows
from lakeward.mirror.op.adopted import outdated_files_hint
from lakeward.mirror.op.choose import recut_hint
from lakeward.mirror.op.ledger import bad_row_details, greatest_sequence_before
from lakeward.mirror.op.places import cut_at
from lakeward.model import USUAL_LAG_US, FileClass, OrderBy, time_digits
from lakeward.text import count
from lakeward.transforms.columns import column, columns, conformed
from lakeward.transforms.fold import having_keys, is_delete

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, Row

    from lakeward.columns import Column
    from lakeward.formats.base import FileSummary
    from lakeward.formats.dms.sniffing import Suggestion
    from lakeward.iceberg.metadata import Snapshot
    from lakeward.mirror.op.context import TableContext, Work
    from lakeward.mirror.op.effect import Bases, Effect
    from lakeward.model import Generation, Progress


_SHOWN = 5
_PAIRS = 1000
_TIMES, _ARRIVED, _LEFT = (f"{S.PREFIX}{name}" for name in ("times", "arrived", "left"))


def require_readable(context: TableContext, summaries: Sequence[FileSummary]) -> None:
    """Refuse files that cannot be used as a whole."""
    if broken := [summary for summary in summaries if summary.problem]:
        shown = "\n  ".join(f"{summary.path}: {summary.problem}" for summary in broken[:_SHOWN])
        msg = f"{context.table}: {len(broken)} of {count(len(summaries), 'file')} cannot be used:\n  {shown}"
        hint = f"repair or remove them, then: lakeward run {context.table}"
        raise DataError(msg, hint=hint)


def require_fitting_times(context: TableContext, work: Work, progress: Progress, files: Sequence[FileSummary]) -> None:
    """Refuse change files whose commit times contradict the generation that their names indicate.

    Raises:
        CutError: a file named before a reload holds later commits, or one named after it only much older ones, or its
            order column shows changes from before the reload.
    """
    if context.options.cut is not None:
        return  # the user has decided
    with_rows = [file for file in files if file.rows > file.bad]
    for newer in progress.generations:
        if newer.number <= work.generation.number or newer.load_from is None:
            continue
        for file in with_rows:
            if file.newest_commit is None or file.newest_commit >= newer.load_from:
                raise _contradiction(context, file, newer, "is named before the load")
    own = work.generation
    if own.number > 1 and context.settings.files.order == "column":
        _require_later_changes(context, own, progress, files)
    if own.number == 1 or own.load_from is None:
        return
    for file in with_rows:
        if file.newest_commit is not None and file.newest_commit < own.load_from - USUAL_LAG_US:
            raise _contradiction(context, file, own, "is named after the load")


def _require_later_changes(
    context: TableContext, own: Generation, progress: Progress, files: Sequence[FileSummary]
) -> None:
    """Refuse files that follow a reload with changes that come before others which the reload contains.

    They would be applied on top of the load without those others, which may be of the same rows.
    """
    firsts = [file for file in files if file.first is not None and file.order_by is not None]
    if not firsts or not own.cut:
        return
    oldest = min(firsts, key=lambda file: file.first.sequence if file.first is not None else "")
    assert oldest.first is not None  # filtered above
    assert oldest.order_by is not None
    newest = greatest_sequence_before(context, progress, own.cut, oldest.order_by)
    if newest is None or oldest.first.sequence >= newest:
        return
    current = progress.generation
    reached = progress.last_place if current is not None and current.number == own.number else None
    if reached is not None and reached.sequence < newest:
        return  # the user has decided that its values begin anew with the load
    raise _late_changes(context, oldest, own)


def _late_changes(context: TableContext, file: FileSummary, own: Generation) -> CutError:
    table = quote(str(context.table))
    msg = (
        f"{context.table}: {file.path} follows the load of generation {own.number}, and holds changes that come before "
        "others which that load contains: it cannot be known whether they are in the load, too"
    )
    hint = (
        f"they are in it: take them out of the file, or move it out of landing; they follow it: lakeward run {table} "
        f"{cut_at(file)}"
    )
    return CutError(msg, hint=hint)


def _contradiction(context: TableContext, file: FileSummary, generation: Generation, position: str) -> CutError:
    commits = "without commit times" if file.newest_commit is None else f"up to {time_digits(file.newest_commit)}"
    msg = (
        f"{context.table}: {file.path} {position} of generation {generation.number}, which began at "
        f"{time_digits(generation.load_from or 0)}, and holds commits {commits}: name and content contradict each other"
    )
    return CutError(
        msg, hint=f"set name_timezone if file names are in another time zone; or {recut_hint(context, file)}"
    )


def require_good_rows(
    context: TableContext, records: DataFrame, summaries: Sequence[FileSummary], columns: Sequence[Column]
) -> None:
    """Refuse bad rows unless they are to be set aside; ``without_key`` decides on rows that need a key."""
    bad = sum(summary.bad for summary in summaries)
    settings = context.settings
    rule = None if settings.primary_key else settings.without_key
    if not bad or (settings.on_bad_row == "quarantine" and rule != "stop"):
        return
    refused = records.filter(column(S.KIND) == S.KIND_BAD)
    needs_key = F.get_json_object(column(S.DETAIL), "$.reason") == WITHOUT_KEY
    if rule == "stop" and (placeless := refused.filter(needs_key)).take(1):
        _refuse_placeless(context, placeless)
    if settings.on_bad_row == "quarantine":
        return
    if rule == "quarantine":
        refused = refused.filter(~needs_key)
        bad = refused.count()
    if bad:
        _refuse_bad_rows(context, refused, bad, summaries, columns)


_FIELDS = (S.FILE, S.ROW, S.DETAIL, S.RAW)


def _refuse_placeless(context: TableContext, rows: DataFrame) -> NoReturn:
    """Raise for updates and deletes of a table without a key."""
    shown = "\n  ".join(_describe(*row[:3]) for row in rows.select(*_FIELDS).limit(_SHOWN).collect())
    found = count(rows.count(), "update or delete needs", "updates and deletes need")
    msg = f"{context.table}: {found} a key, and without_key is stop; nothing of this batch was applied:\n  {shown}"
    hint = (
        f"set primary_key for {context.table} if it has a key; else without_key: quarantine sets such rows aside, and "
        "without_key: inserts ignores and counts them"
    )
    raise BadRowError(msg, hint=hint)


def _refuse_bad_rows(
    context: TableContext, refused: DataFrame, bad: int, summaries: Sequence[FileSummary], columns: Sequence[Column]
) -> NoReturn:
    """Raise for bad rows that are not to be set aside."""
    rows = refused.select(*_FIELDS).limit(_SHOWN).collect()
    shown = "\n  ".join(_describe(*row[:3]) for row in rows)
    msg = f"{context.table}: {count(bad, 'bad row')}; nothing of this batch was applied:\n  {shown}"
    hint = f"repair the files; or set on_bad_row: quarantine for {context.table} and handle the rows later"
    found = _suggestions(rows, summaries, ReadSpec(context.table, tuple(columns), context.settings))
    if found:
        settings = " ".join(f"--set {quote(f'{suggestion.setting}={suggestion.value}')}" for suggestion in found)
        reasons = "; ".join(suggestion.message for suggestion in found)
        hint = f"{reasons}: lakeward tables set {context.table} {settings}, or the same in lakeward.yaml; else {hint}"
    raise BadRowError(msg, hint=hint)


def _suggestions(rows: Sequence[Row], summaries: Sequence[FileSummary], spec: ReadSpec) -> list[Suggestion]:
    """Return the CSV settings that the bad rows suggest, where their files have no header."""
    texts = [row[S.RAW] for row in rows if row[S.RAW] is not None and _is_headerless(row[S.FILE], spec)]
    if len(texts) < len(rows):
        return []
    bad = {summary.path: summary.bad for summary in summaries}
    are_first = all(row[S.ROW] == 1 and bad.get(row[S.FILE]) == 1 for row in rows)
    return sniff_bad_rows(texts, spec, are_first=are_first)


def _is_headerless(path: str, spec: ReadSpec) -> bool:
    return file_format(path) == "csv" and not is_transactions(path) and not spec.settings.csv.header


def _describe(file: str, row: int, detail: str) -> str:
    reason, name, value = bad_row_details(detail)
    where = f", column {name}" if name else ""
    found = f", value {value!r}" if value is not None else ""
    return f"{file}, row {row}{where}{found}: {reason}"


def require_clear_keys(
    context: TableContext, records: DataFrame, summaries: Sequence[FileSummary], columns: Sequence[Column], bases: Bases
) -> None:
    """Refuse before images that are NULL where key columns hold NULL: they may mean "unchanged" or "was NULL"."""
    found = [summary for summary in summaries if summary.null_images]
    if not found or context.settings.before_image_nulls is not None:
        return
    keys = context.settings.primary_key
    is_null = reduce(lambda left, right: left | right, [column(key).isNull() for key in keys])
    frames = [records.filter(column(S.KIND) == S.KIND_CHANGE)]
    if bases.mirror is not None:
        frames.append(conformed(context.mirror.read(bases.mirror.id), columns, context.settings.renames))
    if not any(frame.filter(is_null).take(1) for frame in frames):
        return
    images = sum(summary.null_images for summary in found)
    msg = (
        f"{context.table}: its key columns ({', '.join(keys)}) hold NULL, and before images of the key are NULL in "
        f"{images:,} updates ({found[0].path} …): the old key may have been NULL "
        "there, or unchanged"
    )
    hint = (
        f"set before_image_nulls: value for {context.table} if the source fills every before image, "
        "or unchanged if it fills only those that changed"
    )
    raise DataError(msg, hint=hint)


def common_order(context: TableContext, fixed: OrderBy | None, summaries: Sequence[FileSummary]) -> OrderBy | None:
    """Return the order that all change files share; a generation's order never changes."""
    found = {
        summary.order_by
        for summary in summaries
        if summary.file_class is not FileClass.LOAD and summary.order_by is not None
    }
    if OrderBy.NONE in found and context.settings.files.order == "column":
        plain = next(summary.path for summary in summaries if summary.order_by is OrderBy.NONE)
        msg = f"{context.table}: files.order is column, and {plain} has no column that orders its changes"
        hint = "set timestamp_column, or sequence_column; or files.order: name, or arrival, if that orders the files"
        raise DataError(msg, hint=hint)
    if fixed is not None or not found:
        return fixed
    if len(found) > 1:
        by_order = {summary.order_by: summary.path for summary in summaries if summary.order_by is not None}
        shown = ", ".join(f"{order} in {path}" for order, path in by_order.items())
        msg = f"{context.table}: change files of one generation are ordered differently: {shown}"
        raise DataError(msg, hint="bring all files of the table to one DMS setting, see docs/dms-setup.md")
    return found.pop()


def require_unique_keys(context: TableContext, rows: DataFrame, files: Sequence[FileSummary]) -> None:
    """Refuse rows of an adopted lake that repeat a key: some of them are former versions of a row.

    The former system writes the rows of a file anew and then removes that file. Where the removal failed, all rows of
    the older file are outdated, including some that were deleted since.

    Raises:
        DataError: a key occurs more than once.
    """
    keys = context.settings.primary_key
    places = rows.groupBy(*columns(keys)).agg(
        F.count(F.lit(1)).alias(_TIMES), F.min(S.FILE).alias(_ARRIVED), F.max(S.FILE).alias(_LEFT)
    )
    repeated = places.filter(column(_TIMES) > 1)
    examples = repeated.limit(_SHOWN).collect()
    if not examples:
        return
    pairs = repeated.select(_ARRIVED, _LEFT).distinct().limit(_PAIRS).collect()
    shown = "; ".join(f"{dict(zip(keys, row[: len(keys)], strict=True))} {row[len(keys)]} times" for row in examples)
    found = count(repeated.count(), "key occurs", "keys occur")
    msg = f"{context.table}: {found} more than once in the adopted lake: {shown}"
    written = {file.path: file.identity.mtime_us for file in files}
    sharing = {(row[0], row[1]) for row in pairs}
    raise DataError(msg, hint=outdated_files_hint(context.table, context.storage, sharing, written))


def require_delete_share(context: TableContext, effect: Effect, names: Sequence[Column], base: Snapshot | None) -> None:
    """Refuse a batch that would delete too large a share of the mirror.

    Deletes of keys that the mirror lacks count first; only where the share looks too large are they looked up.
    """
    folded, keys = effect.folded, context.settings.primary_key
    if context.options.allow_deletes or folded is None or not keys or base is None:
        return
    removal = Removal(folded.deletes, base.rows, context.settings.max_delete_share)
    if not removal.is_refused:
        return
    mirror = conformed(context.mirror.read(base.id), names, context.settings.renames)
    removal = replace(removal, removed=having_keys(mirror, folded.rows.filter(is_delete()), keys=keys).count())
    if removal.is_refused:
        plan = f"{effect.plan.strategy} ({effect.plan.reason}), {count(folded.writes, 'row')} written"
        raise batch_refusal(context.table, removal, plan)


def require_reload_size(context: TableContext, effect: Effect, base: Snapshot | None) -> None:
    """Refuse a load that would empty the mirror or leave it much smaller."""
    if context.options.allow_deletes or base is None:
        return
    removal = Removal(base.rows - effect.load_count, base.rows, context.settings.max_delete_share)
    if removal.is_refused or removal.removes_all:
        raise load_refusal(context.table, removal)


@dataclass(frozen=True)
class RowChanges(Document):
    """The rows that are inserted, updated and deleted between two states. Without a key none is updated."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0


def row_changes(before: DataFrame, after: DataFrame, keys: Sequence[str]) -> RowChanges:
    """Compare two states of the same columns row for row; a null equals a null."""
    names = columns(after.columns)
    sides = before.select(*names, F.lit(-1).alias(_TIMES)).unionByName(after.select(*names, F.lit(1).alias(_TIMES)))
    differing = sides.groupBy(*names).agg(F.sum(_TIMES).alias(_TIMES)).filter(column(_TIMES) != 0)
    arrived = F.sum(F.greatest(column(_TIMES), F.lit(0)))
    left = F.sum(F.greatest(-column(_TIMES), F.lit(0)))
    if not keys:
        found = differing.agg(arrived, left).collect()[0]
        return RowChanges(found[0] or 0, 0, found[1] or 0)
    by_key = differing.groupBy(*columns(keys)).agg(arrived.alias(_ARRIVED), left.alias(_LEFT))
    is_there, was_there = column(_ARRIVED) > 0, column(_LEFT) > 0
    found = by_key.agg(
        *(
            F.count(F.when(condition, 1))
            for condition in (is_there & ~was_there, is_there & was_there, was_there & ~is_there)
        )
    ).collect()[0]
    return RowChanges(*found)
