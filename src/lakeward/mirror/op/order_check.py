"""What must hold so that ``files.order`` decides the order of changes: a batch for which it does not is refused.

A table without a key tells a repeat of a row by its change sequence, so that different rows must not share one.
With ``column``, changes of one key that have equal values in two files have no order, unless they are the same change.
A copy of a file, or one that was renamed, is a new file: with ``arrival`` and without an order column it would apply
its changes once more, after later ones, and to a table without a key it would add its rows once more.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakeward import schemas as S
from lakeward.errors import DataError
from lakeward.mirror.op.effect import earlier_changes
from lakeward.mirror.op.ledger import progress_of
from lakeward.model import Disposition, FileClass, OrderBy
from lakeward.text import count, listed
from lakeward.transforms.columns import column, columns
from lakeward.transforms.fold import is_standing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, Row

    from lakeward.config.tables import FileOrder
    from lakeward.formats.base import FileSummary
    from lakeward.mirror.op.context import TableContext
    from lakeward.mirror.op.effect import OpInput
    from lakeward.model import Progress

_SHOWN = 5
_FIRST, _LAST, _CONTENTS, _ARRIVED = (f"{S.PREFIX}{name}" for name in ("first", "last", "contents", "arrived"))


def require_decided_order(context: TableContext, op_input: OpInput, summaries: Sequence[FileSummary]) -> None:
    """Refuse changes whose order the files do not decide.

    Raises:
        DataError: two files have changes of a key with equal values, one is a copy of another, or different rows of a
            table without a key share a change sequence.
    """
    order, keys = context.settings.files.order, context.settings.primary_key
    if op_input.changes is None:
        return
    progress, number = progress_of(context, op_input.bases), op_input.record.generation
    own = next(found for found in op_input.record.progress.generations if found.number == number)
    if not keys and own.order_by is OrderBy.SEQUENCE:
        _require_same_repeats(context, op_input, op_input.changes, progress)
    if order is None:
        return
    if order == "column" and keys:
        _require_no_ties(context, op_input, op_input.changes, progress)
    if do_copies_count(order, own.order_by, has_key=bool(keys)):
        _require_no_copies(context, op_input, progress, summaries)


def do_copies_count(order: FileOrder, order_by: OrderBy | None, *, has_key: bool) -> bool:
    """Whether the content of a file, read once more under another name, would change the table."""
    if not has_key:
        return order_by is not OrderBy.SEQUENCE
    return order == "arrival" and order_by in (OrderBy.NONE, None)


def _require_same_repeats(context: TableContext, op_input: OpInput, changes: DataFrame, progress: Progress) -> None:
    changes = changes.filter(column(S.SEQUENCE).isNotNull()).withColumn(_ARRIVED, F.lit(True))
    first, last = changes.agg(F.min(S.SEQUENCE), F.max(S.SEQUENCE)).collect()[0]
    if first is None:
        return
    if (overlapping := _read_between(context, op_input, progress, first, last)) is not None:
        # Rows that were read before are compared with new ones, and not among each other.
        changes = changes.unionByName(overlapping.withColumn(_ARRIVED, F.lit(False)), allowMissingColumns=True)
    described = context.settings.metadata_columns.listed  # of changes, and no part of a row
    content = F.struct(S.OPERATION, *columns(name for name in op_input.names if name not in described))
    places = changes.groupBy(S.SEQUENCE).agg(
        F.min(S.FILE).alias(_FIRST), F.max(S.FILE).alias(_LAST), F.max(_ARRIVED).alias(_ARRIVED),
        F.count_distinct(content).alias(_CONTENTS),
    )  # fmt: skip
    differing = places.filter(column(_ARRIVED) & (column(_CONTENTS) > 1))
    if found := differing.orderBy(S.SEQUENCE).limit(_SHOWN).collect():
        raise _shared_sequences(context, found, differing.count())


def _read_between(
    context: TableContext, op_input: OpInput, progress: Progress, first: str, last: str
) -> DataFrame | None:
    """Return the changes between two values of the order column that were read before, None where none can be."""
    reached = progress.last_place
    if reached is None or first > reached.sequence:
        return None
    history = earlier_changes(context, op_input)
    return None if history is None else history.filter(column(S.SEQUENCE).between(first, last))


def _shared_sequences(context: TableContext, found: Sequence[Row], total: int) -> DataError:
    shown = "\n  ".join(
        f"{row[S.SEQUENCE]}: {row[_CONTENTS]} rows in {row[_FIRST]}"
        + (f" and {row[_LAST]}" if row[_LAST] != row[_FIRST] else "")
        for row in found
    )
    name = context.settings.sequence_column or "the change sequence"
    msg = (
        f"{context.table}: it has no key, so that {name} shows which rows were read before, and "
        f"{count(total, 'value of it belongs', 'values of it belong')} to different rows:\n  {shown}"
    )
    hint = "set sequence_column to one that is different for every change; or set primary_key if the table has a key"
    return DataError(msg, hint=hint)


def _require_no_ties(context: TableContext, op_input: OpInput, changes: DataFrame, progress: Progress) -> None:
    keys, changes = context.settings.primary_key, changes.filter(column(S.SEQUENCE).isNotNull())
    first, last, one_file = changes.agg(
        F.min(S.SEQUENCE), F.max(S.SEQUENCE), F.min(S.FILE) == F.max(S.FILE)
    ).collect()[0]  # fmt: skip
    if first is None:
        return
    if (overlapping := _read_between(context, op_input, progress, first, last)) is not None:
        changes, one_file = changes.unionByName(overlapping), False
    if one_file:
        return
    places = [*keys, S.SEQUENCE]
    twice = changes.groupBy(*columns(places)).agg(F.min(S.FILE).alias(_FIRST), F.max(S.FILE).alias(_LAST))
    twice = twice.filter(column(_FIRST) != column(_LAST))
    if not twice.take(1):
        return
    content = F.struct(S.OPERATION, S.STEP, S.UNCHANGED, *columns(op_input.names))
    differing = (
        changes.groupBy(*columns(places))
        .agg(F.min(S.FILE).alias(_FIRST), F.max(S.FILE).alias(_LAST), F.count_distinct(content).alias(_CONTENTS))
        .filter((column(_FIRST) != column(_LAST)) & (column(_CONTENTS) > 1))
    )
    found = differing.limit(_SHOWN).collect()
    if found:
        shown = "\n  ".join(
            f"key {', '.join(f'{key}={row[key]!r}' for key in keys)}: {row[_FIRST]} and {row[_LAST]}" for row in found
        )
        msg = (
            f"{context.table}: files.order is column, and {count(differing.count(), 'key has', 'keys have')} different "
            f"changes with equal values in two files, so that nothing orders them:\n  {shown}"
        )
        table = shlex.quote(str(context.table))
        hint = (
            "set sequence_column to one that is different for every change; or let the order in which files were first "
            f"seen decide where values are equal: lakeward tables set {table} --set files.order=arrival"
        )
        raise DataError(msg, hint=hint)


def _require_no_copies(
    context: TableContext, op_input: OpInput, progress: Progress, summaries: Sequence[FileSummary]
) -> None:
    own = [file for file in summaries if file.file_class is FileClass.CHANGES and file.rows]
    by_content: dict[str, str] = {}
    copies: list[tuple[str, str]] = []
    for file in sorted(own, key=lambda file: (file.time, file.path)):
        first = by_content.setdefault(file.content_hash, file.path)
        if first != file.path:
            copies.append((file.path, first))
    if op_input.bases.changelog is not None and by_content:
        log = context.changelog.read(op_input.bases.changelog.id)
        content, disposition = (
            F.get_json_object(column(S.DETAIL), path) for path in ("$.file.content_hash", "$.disposition")
        )
        read = (column(S.KIND) == S.KIND_FILE) & (disposition == Disposition.CONSUMED.value)
        same = log.filter(read & is_standing(progress.undone) & content.isin(*by_content))
        others = same.filter(~column(S.FILE).isin(*(file.path for file in own)))
        rows = others.select(S.FILE, content).limit(_SHOWN).collect()
        copies += [(by_content[row[1]], row[0]) for row in rows]
    if copies:
        shown = listed((f"{path} has the content of {other}" for path, other in copies), most=_SHOWN)
        msg = f"{context.table}: {shown}: a copy, or a file that was renamed, would be applied once more, elsewhere"
        hint = (
            "remove it from landing if it is a copy, and rename it back if it was renamed; if the same changes were "
            "captured twice, compress the file with gzip, and its content is another"
        )
        raise DataError(msg, hint=hint)
