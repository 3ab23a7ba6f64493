"""A change set as tasks take it: what happened to each row, which of its columns changed, and its values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakeward.cassandra.snapshot_columns import EXPIRES, WRITETIME
from lakeward.cassandra.writing.matching import Found
from lakeward.cassandra.writing.plan import CHANGED, DELETED, INSERTED
from lakeward.diffing.comparators import PLAIN
from lakeward.diffing.widening import is_same
from lakeward.errors import RefusedInputError
from lakeward.transforms.columns import column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column

    from lakeward.diffing.reading_diffs import ReadDiff, SideValue


def require_applicable(label: str, diff: ReadDiff) -> None:
    """Refuse a change set that does not tell what to write.

    Raises:
        RefusedInputError: it has no current values; or it does not tell a value that became null from one that did not
            change.
    """
    if diff.right is None:
        msg = f"{label} has past values only, so that there is nothing to write"
        raise RefusedInputError(msg, hint="lakeward diff … --mode structs --change-column changes")
    is_ambiguous = diff.options.sparse_mode or diff.left is None
    if diff.changed is None and is_ambiguous:
        msg = (
            f"{label} does not say which columns changed: a value that became null cannot be told from one that stayed"
        )
        raise RefusedInputError(msg, hint="make it with their list: lakeward diff … --change-column changes")


def action(diff: ReadDiff) -> Column:
    """Give what happened to a row, whatever labels the change set has for it."""
    return F.when(~diff.has_left, F.lit(INSERTED)).when(~diff.has_right, F.lit(DELETED)).otherwise(F.lit(CHANGED))


def changed_names(diff: ReadDiff) -> Column:
    """Give the names of the columns that changed: as the change set says, else by comparing both sides."""
    if diff.changed is not None:
        return diff.changed
    past = {diff.fold(one.name): one for one in diff.left or ()}
    none = F.array().cast("array<string>")
    names = [
        F.when(_is_equal(past.get(diff.fold(one.name)), one), none).otherwise(F.array(F.lit(one.name)))
        for one in diff.right or ()
    ]
    return F.when(diff.has_left & diff.has_right, F.concat(none, *names))


def _is_equal(left: SideValue | None, right: SideValue) -> Column:
    if left is None:
        return right.value.isNull()
    if not is_same(left.type, right.type):
        return F.lit(False)
    return PLAIN.equal(PLAIN.prepared(left.value, left.type), PLAIN.prepared(right.value, right.type))


def found_columns(diff: ReadDiff) -> dict[str, Found]:
    """Give the columns of the rows: their current values, and the past ones of deleted rows."""
    past = {one.name: one for one in diff.left or ()}
    found = {one.name: Found(one.dataType, column(one.name)) for one in diff.keys}
    for one in diff.right or ():
        if one.name.startswith((WRITETIME, EXPIRES)):
            continue
        before, value = past.get(one.name), one.value
        if before is not None and is_same(before.type, one.type):
            value = F.when(diff.has_right, one.value).otherwise(before.value)
        found[one.name] = Found(one.type, value)
    return found


def expiries(diff: ReadDiff, values: Sequence[str]) -> list[Column]:
    """Give when the current values expire; nothing where the change set does not tell it of any."""
    known = {one.name: one.value for one in diff.right or ()}
    if not any(EXPIRES + name in known for name in values):
        return []
    none = F.lit(None).cast("bigint")
    return [known.get(EXPIRES + name, none).cast("bigint") for name in values]
