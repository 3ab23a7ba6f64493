"""The delete guard: a table does not lose a larger share of its rows in one step than is allowed.

Every refusal states how many rows would be deleted, how many may be, and the command that allows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.errors import DeleteShareError, RefusedInputError

if TYPE_CHECKING:
    from lakeward.model import TableId

# In a smaller table a large share is a handful of rows and no sign of an error.
GUARDED_ROWS = 1_000
# The share that may be deleted by default.
DEFAULT_MAX_SHARE = 0.5


@dataclass(frozen=True)
class Removal:
    """The number of a table's rows that would be removed, and the share that may be removed."""

    removed: int
    rows: int
    max_share: float

    @property
    def share(self) -> float:
        """The share of the rows that would be removed; 0 for an empty table."""
        return self.removed / self.rows if self.rows else 0.0

    @property
    def is_too_large(self) -> bool:
        """Whether more rows would be removed than may be, however small the table is."""
        return self.removed > self.max_share * self.rows

    @property
    def is_refused(self) -> bool:
        """Whether more rows would be removed than may be, of a table that is large enough to be guarded."""
        return self.rows >= GUARDED_ROWS and self.is_too_large

    @property
    def removes_all(self) -> bool:
        """Whether a table with rows would be left empty."""
        return bool(self.rows) and self.removed >= self.rows


def batch_refusal(table: TableId, removal: Removal, plan: str) -> DeleteShareError:
    """Return the error of a batch that would delete too many rows of the mirror."""
    msg = (
        f"{table}: this batch would delete {_counted(removal)} ({removal.share:.0%}), more than max_delete_share "
        f"{removal.max_share:.0%}; plan: {plan}"
    )
    return DeleteShareError(msg, hint=_allow_in_run(table))


def load_refusal(table: TableId, removal: Removal) -> DeleteShareError:
    """Return the error of a load that would leave too few rows, or none, in the mirror."""
    msg = (
        f"{table}: this load would replace {removal.rows:,} rows by {removal.rows - removal.removed:,}, "
        f"{removal.share:.0%} fewer; allowed are {removal.max_share:.0%} (max_delete_share), and never all of them"
    )
    return DeleteShareError(msg, hint=_allow_in_run(table))


def comparison_refusal(removal: Removal, current: str) -> RefusedInputError:
    """Return the error of a comparison whose current side lacks too many rows of the past side."""
    msg = (
        f"{_counted(removal)} would be deleted, {_found_and_allowed(removal)}: the current side may be incomplete; "
        "nothing was written"
    )
    return RefusedInputError(msg, hint=_allow_in_diff(current))


def change_set_refusal(removal: Removal, change_set: str) -> RefusedInputError:
    """Return the error of a change set that would delete too many rows of the table it is applied to."""
    msg = (
        f"{change_set} would delete {_counted(removal)}, {_found_and_allowed(removal)}: its current side may be "
        "incomplete; nothing was written"
    )
    return RefusedInputError(msg, hint=_allow_in_diff("the current export"))


def rows_refusal(removal: Removal, table: str, condition: str) -> RefusedInputError:
    """Return the error of a condition that selects too many rows of a table for deletion."""
    msg = (
        f"{table}: {_counted(removal)} meet the condition {condition!r} and would be deleted, "
        f"{_found_and_allowed(removal)}; nothing was deleted"
    )
    return RefusedInputError(msg, hint="check the condition, then allow it: --max-delete-share 1")


def _counted(removal: Removal) -> str:
    return f"{removal.removed:,} of {removal.rows:,} rows"


def _found_and_allowed(removal: Removal) -> str:
    return f"{removal.share:.0%} where {removal.max_share:.0%} are allowed"


def _allow_in_run(table: TableId) -> str:
    return f"lakeward run {table} --allow-deletes"


def _allow_in_diff(checked: str) -> str:
    return f"check {checked}, then allow it: --max-delete-share 1"
