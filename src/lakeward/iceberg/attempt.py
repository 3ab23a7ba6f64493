"""One attempt to change a table: work on a separate branch, prove whose work it is, then publish by fast-forward.

The branch is named by op and a fresh id and starts at the snapshot the op has pinned. Every commit on it carries
the attempt's id and must follow the one before it, the first the base: a branch dropped under a writer is
silently recreated from ``main`` by the next append, and then lacks what was deleted before.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from lakeward.columns import quote_name
from lakeward.errors import ConflictError, DataError
from lakeward.iceberg.metadata import MAIN
from lakeward.spark.errors import commit_errors
from lakeward.spark.versions import STAMPS_STATEMENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from pyspark.sql import DataFrame, DataFrameWriterV2

    from lakeward.iceberg.metadata import Snapshot, TableMetadata
    from lakeward.iceberg.table import IcebergTable

ATTEMPT_STAMP = "lakeward.attempt"
# The snapshot that the attempt started from, for undoing it.
BASE_STAMP = "lakeward.attempt-base"
# The rows that the table must have after the commit: counted while writing, compared with its metadata later.
ROWS_STAMP = "lakeward.rows"
# Iceberg copies session settings with this prefix into the summaries of DELETE statements, which take no options.
_SESSION_STAMP = "spark.sql.iceberg.snapshot-property."
BRANCH_PREFIX = "lw-"


class Attempt:
    """A branch to write on, published as a whole or dropped."""

    def __init__(self, table: IcebergTable, *, op: int, base: int) -> None:
        """Plan an attempt of op number ``op`` on top of snapshot ``base``."""
        self.table = table
        self.base = base
        self.id = uuid.uuid4().hex
        self.branch = f"{BRANCH_PREFIX}{op}-{self.id}"
        self._spark = table.spark
        self._head = base
        self._rows = 0
        self._is_published = False

    def __enter__(self) -> Attempt:
        self._spark.conf.set(_SESSION_STAMP + ATTEMPT_STAMP, self.id)
        self.table.create_branch(self.branch, self.base)
        self._rows = self.table.require_head(self.branch).rows
        return self

    def __exit__(self, *_error: object) -> None:
        self._spark.conf.unset(_SESSION_STAMP + ATTEMPT_STAMP)
        if not self._is_published:
            self.table.drop_branch(self.branch)

    def append(self, rows: DataFrame, stamps: Mapping[str, str], *, expected: int) -> None:
        """Append rows by name, stamping the commit.

        Raises:
            DataError: another number of rows than ``expected`` was written: a frame that Spark had to compute again,
                after losing what it kept, came out differently because its input changed.
        """
        with commit_errors(self.table.identifier):
            self._stamped_writer(rows, {**stamps, ROWS_STAMP: str(self._rows + expected)}).append()
        self._require_written(expected)

    def overwrite(self, rows: DataFrame, stamps: Mapping[str, str], *, expected: int) -> None:
        """Replace all rows of the branch.

        Raises:
            DataError: another number of rows than ``expected`` was written.
        """
        with commit_errors(self.table.identifier):
            self._stamped_writer(rows, {**stamps, ROWS_STAMP: str(expected)}).overwrite(F.lit(True))
        self._require_written(expected)

    def _require_written(self, expected: int) -> None:
        written = int(self._advanced().summary.get("added-records", 0))
        if written != expected:
            msg = (
                f"{self.table.identifier}: {written:,} rows were written, expected {expected:,}; nothing was published"
            )
            raise DataError(msg, hint="an input file changed while it was read: run again once it is complete")

    def _stamped_writer(self, rows: DataFrame, stamps: Mapping[str, str]) -> DataFrameWriterV2:
        """Return a writer to the branch whose commit has the stamps."""
        writer = rows.writeTo(self.table.branch_identifier(self.branch))
        for name, value in self._stamps(stamps).items():
            writer = writer.option(f"snapshot-property.{name}", value)
        return writer

    def delete_keys(self, touched: DataFrame, keys: Sequence[str], *, without_nulls: Collection[str] = ()) -> None:
        """Delete the rows whose key is among ``touched``, which must have the table's own types.

        For columns known to hold no null among the touched keys a plain comparison finds the same rows, and Spark
        can look a single number up directly: the scan costs half.
        """
        view = f"lw_touched_{self.id}"
        touched.createOrReplaceTempView(view)
        equals = {key: "=" if key in without_nulls else "<=>" for key in keys}
        same = " AND ".join(f"t.{quote_name(key)} {sign} s.{quote_name(key)}" for key, sign in equals.items())
        target = self.table.branch_identifier(self.branch)
        try:
            with commit_errors(self.table.identifier):
                self._spark.sql(f"DELETE FROM {target} t WHERE EXISTS (SELECT 1 FROM {view} s WHERE {same})")
        finally:
            self._spark.catalog.dropTempView(view)
        self._advanced(is_stamped=STAMPS_STATEMENTS)

    def stamp(self, stamps: Mapping[str, str]) -> None:
        """Commit nothing but stamps."""
        self.table.commit_empty(self.branch, self._stamps({**stamps, ROWS_STAMP: str(self._rows)}))
        self._advanced()

    def clear(self, stamps: Mapping[str, str]) -> None:
        """Remove every row of the branch."""
        self.table.delete_all(self.branch, self._stamps({**stamps, ROWS_STAMP: "0"}))
        self._advanced()

    def commit(self, update: Any) -> None:
        """Commit one of Iceberg's own updates of the table to the branch."""
        for name, value in self._stamps({}).items():
            update.set(name, value)
        with commit_errors(self.table.identifier):
            update.toBranch(self.table.reference(self.branch)).commit()
        self._advanced()

    def publish(self, *, before: Callable[[], None], to: str = MAIN) -> Snapshot:
        """Check the branch, fast-forward ``to`` and return the published snapshot.

        ``before`` runs last before the fast-forward: it raises when this writer has lost the right to publish.
        """
        head = self.checked_head()
        before()
        self.table.fast_forward(self.branch, to, expected=self.base, drop_source=True)
        self._is_published = True
        return head

    def checked_head(self) -> Snapshot:
        """Return the branch's head after proving that it is this attempt's last commit."""
        head = self.table.head(self.branch)
        if head is None or head.id != self._head:
            raise self._disturbed()
        return head

    def _stamps(self, stamps: Mapping[str, str]) -> dict[str, str]:
        return {**stamps, ATTEMPT_STAMP: self.id, BASE_STAMP: str(self.base)}

    def _advanced(self, *, is_stamped: bool = True) -> Snapshot:
        """Return the commit just made after proving that it is this attempt's and follows the one before."""
        head = self.table.head(self.branch)
        if head is None or head.parent != self._head or (is_stamped and head.summary.get(ATTEMPT_STAMP) != self.id):
            raise self._disturbed()
        self._head, self._rows = head.id, head.rows
        return head

    def _disturbed(self) -> ConflictError:
        return ConflictError(f"{self.table.identifier}: branch {self.branch} contains changes of another writer")


def drop_abandoned(table: IcebergTable) -> TableMetadata | None:
    """Drop branches that a dead writer left; return the table's metadata after that, None if there is no table.

    The caller holds the table's lease; a writer that lost it finds its branch gone and does not publish.
    """
    metadata = table.find_metadata()
    abandoned = [name for name in metadata.references() if name.startswith(BRANCH_PREFIX)] if metadata else []
    for name in abandoned:
        table.drop_branch(name)
    return table.find_metadata() if abandoned else metadata
