"""Replace files of a table by others with the same rows: written, committed on a branch, proven equal, published."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.errors import BugError
from lakeward.lake.iceberg.attempt import Attempt
from lakeward.lake.iceberg.staging import location_of, staged_data, staged_deletes
from lakeward.pipeline.stamps import carried_stamps
from lakeward.pipeline.steps import Step
from lakeward.storage.checksum import checksum_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame

    from lakeward.lake.iceberg.metadata import Snapshot
    from lakeward.lake.iceberg.staging import Replacement
    from lakeward.lake.iceberg.table import IcebergTable
    from lakeward.pipeline.context import TableContext

POSITION = ("file_path", "pos")


class Rewritten:
    """What a rewrite wrote, and the hashes that its new files must have: one of rows, one of deleted positions."""

    def __init__(self, files: Replacement) -> None:
        self.files = files
        self.rows: list[str] = []
        self.positions: list[str] = []


def publish_rewritten(
    context: TableContext, table: IcebergTable, base: Snapshot, op: int, write: Callable[[], Rewritten]
) -> Snapshot:
    """Let ``write`` write files anew and publish them in the place of the old ones; give the new snapshot.

    Raises:
        BugError: the new files do not hold the same rows. Nothing was published.
        ConflictError: the table has moved since, or the lease was lost. Nothing was published.
    """
    stamps = carried_stamps(table.metadata(), base.id)
    with Attempt(table, op=op, base=base.id) as attempt:
        context.reached(Step.MAINTAIN_BRANCH)
        written = write()
        context.reached(Step.MAINTAIN_WRITE)
        attempt.commit(written.files.update(table, base.id, stamps))
        context.reached(Step.MAINTAIN_COMMIT)
        require_same(table, base, attempt.checked_head(), written)
        context.reached(Step.MAINTAIN_VERIFY)
        published = attempt.publish(before=context.permission.require)
        context.reached(Step.MAINTAIN_PUBLISH)
    return published


def require_same(table: IcebergTable, base: Snapshot, head: Snapshot, written: Rewritten) -> None:
    """Refuse new files that do not hold what the old ones held, and a table that does not count the same rows."""
    if head.rows != base.rows:
        raise _differs(table, f"{head.rows:,} rows", f"{base.rows:,}")
    files = written.files
    new = {location_of(file) for file in files.new}
    found = [_hash_of_data(table, head, new)] if new else []
    if found != written.rows and (found or _is_something(written.rows)):
        raise _differs(table, f"rows with the hash {found}", str(written.rows))
    deletes = {location_of(file) for file, _ in files.new_deletes}
    positions = _hashes_of_deletes(table, head, deletes) if deletes else []
    if sorted(positions) != sorted(one for one in written.positions if _is_something([one])):
        raise _differs(table, f"deleted positions with the hashes {positions}", str(written.positions))


def hash_of(rows: DataFrame, names: Sequence[str] | None = None) -> str:
    """Return the checksum of a frame's content as text."""
    return checksum_of(rows, names).text


def _hash_of_data(table: IcebergTable, head: Snapshot, paths: set[str]) -> str:
    with staged_data(table, head.id, paths) as staged:
        return hash_of(staged.read())


def _hashes_of_deletes(table: IcebergTable, head: Snapshot, paths: set[str]) -> list[str]:
    found = []
    for group in staged_deletes(table, head.id, paths):
        with group as staged:
            found.append(hash_of(staged.read(), POSITION))
    return found


def _is_something(hashes: Sequence[str]) -> bool:
    return any(not one.startswith("0:") for one in hashes)


def _differs(table: IcebergTable, found: str, expected: str) -> BugError:
    msg = f"{table.identifier}: rewritten files hold {found}, expected {expected}; nothing was published"
    return BugError(msg, hint="please report it; the table is as it was")
