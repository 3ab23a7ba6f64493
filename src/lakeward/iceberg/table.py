"""One Iceberg table: schema, snapshots, branches and stamps, through Iceberg's own API in the session's JVM.

Metadata steps use the API and not SQL, because an SQL statement costs more CPU than the step itself. A handle holds no
state between calls; an op that needs a stable view pins it by snapshot id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from lakeward.columns import Column, quote_name
from lakeward.errors import BugError, ConflictError, DataError
from lakeward.iceberg.metadata import MAIN, Snapshot, TableMetadata, reference_within
from lakeward.schemas import PREFIX, spark_type
from lakeward.spark.errors import commit_errors, is_missing_table
from lakeward.transforms.columns import with_renamed_unchanged

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession


CATALOG = "lake"


class IcebergTable:
    """A table of the lake by namespace and name."""

    def __init__(
        self,
        spark: SparkSession,
        namespace: str,
        name: str,
        *,
        renames: Mapping[str, str] | None = None,
        within: str = "",
    ) -> None:
        """Refer to a table without loading it.

        Args:
            spark: the session whose catalog has the table.
            namespace: the table's namespace.
            name: the table's name.
            renames: columns whose former names its rows may use.
            within: a prefix of branches in the lake that stand for ``main`` and all others: whatever is done with the
                table is done there, and its own branches stay as they are.
        """
        self.spark = spark
        self.namespace = namespace
        self.name = name
        self._renames = dict(renames or {})
        self._within = within

    @property
    def jvm(self) -> Any:
        """The session's JVM."""
        return _jvm(self.spark)

    @property
    def identifier(self) -> str:
        """The quoted name for Spark SQL."""
        return ".".join(quote_name(part) for part in (CATALOG, self.namespace, self.name))

    def branch_identifier(self, branch: str) -> str:
        """Return the quoted name of a branch for writing with Spark SQL."""
        return f"{self.identifier}.{quote_name('branch_' + self.reference(branch))}"

    def isolated(self, prefix: str) -> IcebergTable:
        """Return the same table with branches in the lake that begin with a prefix in place of its own."""
        return IcebergTable(self.spark, self.namespace, self.name, renames=self._renames, within=prefix)

    def reference(self, name: str) -> str:
        """Return the name that a branch or tag has in the lake."""
        return reference_within(self._within, name)

    def exists(self) -> bool:
        """Whether the catalog has the table."""
        return self.find_metadata() is not None

    def find_metadata(self) -> TableMetadata | None:
        """Return the table's newest metadata, None where the catalog does not have the table."""
        try:
            return self.metadata()
        except Exception as error:
            if is_missing_table(error):
                return None
            raise

    def metadata(self) -> TableMetadata:
        """Return the table's newest metadata."""
        return TableMetadata(self.load(), _jvm(self.spark), within=self._within)

    def load(self) -> Any:
        """Return the table's newest metadata as Iceberg's Java object."""
        with commit_errors(self.identifier):
            jvm = _jvm(self.spark)
            # Spark creates a session's catalog at its first use, from the settings of the thread's active session.
            jvm.SparkSession.setActiveSession(self.spark._jsparkSession)
            util = jvm.org.apache.iceberg.spark.Spark3Util
            return util.loadIcebergTable(self.spark._jsparkSession, self.identifier)

    def columns(self) -> tuple[Column, ...]:
        """Return the table's present columns and their lake types."""
        return self.metadata().columns()

    def property(self, name: str) -> str | None:
        """Return a property of the table, None where it is not set."""
        return self.metadata().property(name)

    def set_properties(self, properties: Mapping[str, str | None]) -> None:
        """Set properties in one commit; the value None removes a property."""
        with commit_errors(self.identifier):
            update = self.load().updateProperties()
            for name, value in properties.items():
                update.remove(name) if value is None else update.set(name, value)
            update.commit()

    def head(self, branch: str = MAIN) -> Snapshot | None:
        """Return the branch's newest snapshot, None where there is no such branch."""
        return self.metadata().head(branch)

    def require_head(self, branch: str = MAIN) -> Snapshot:
        """Return the branch's newest snapshot, which every table of Lakeward has from its creation on.

        Raises:
            DataError: there is none.
        """
        head = self.head(branch)
        if head is None:
            msg = (
                f"{self.identifier} has no snapshot on {branch}: Lakeward did not create it, or its snapshots are gone"
            )
            raise DataError(msg, hint="drop the table and run again, or restore it from a backup")
        return head

    def lineage(self, snapshot_id: int) -> Iterator[Snapshot]:
        """Yield the snapshot and its ancestors, newest first, as far as they are kept."""
        return self.metadata().lineage(snapshot_id)

    def stamp(self, name: str, branch: str = MAIN) -> str | None:
        """Return the newest value of a stamp among the branch's snapshots."""
        metadata = self.metadata()
        head = metadata.head(branch)
        return metadata.stamp_at(name, head.id) if head is not None else None

    def read(self, snapshot_id: int, *, with_columns: Sequence[str] = ()) -> DataFrame:
        """Return the rows of a snapshot under the newest schema; ``with_columns`` are Iceberg's own columns to add.

        Spark reads an old snapshot with the schema of that time; a column that was added, widened or renamed since
        is found by its field id.
        """
        frame = self._read(snapshot_id, with_columns)
        names = set(frame.columns)
        present = {old: new for old, new in self._renames.items() if new in names and old not in names}
        return with_renamed_unchanged(frame, present)

    def _read(self, snapshot_id: int, with_columns: Sequence[str]) -> DataFrame:
        pinned = self.spark.read.option("versionAsOf", str(snapshot_id)).table(self.identifier)
        table = self.load()
        then = table.schemas().get(table.snapshot(snapshot_id).schemaId())
        if then is None or then.schemaId() == table.schema().schemaId():
            return pinned.select("*", *with_columns) if with_columns else pinned
        own = [F.col(name) for name in pinned.columns if name.startswith(PREFIX)]
        now = {column.name: column for column in self.columns()}
        source = [
            _as_named_now(then.findField(field.fieldId()), now[field.name()])
            for field in table.schema().columns()
            if field.name() in now
        ]
        return pinned.select(*own, *source, *with_columns)

    def any_file_in_range(self, snapshot_id: int, ranges: Mapping[str, tuple[Any, Any]]) -> bool:
        """Whether any file may hold a row within all these column ranges, according to file statistics."""
        table = self.load()
        expressions = _jvm(self.spark).org.apache.iceberg.expressions.Expressions
        condition = expressions.alwaysTrue()
        for name, (low, high) in ranges.items():
            name_then = _name_at(table, snapshot_id, name)
            if name_then is not None:
                within = getattr(expressions, "and")(
                    expressions.greaterThanOrEqual(name_then, low), expressions.lessThanOrEqual(name_then, high)
                )
                condition = getattr(expressions, "and")(condition, within)
        files = table.newScan().useSnapshot(snapshot_id).filter(condition).planFiles()
        try:
            return bool(files.iterator().hasNext())
        finally:
            files.close()

    def commit_empty(self, branch: str, stamps: Mapping[str, str]) -> None:
        """Add a snapshot without rows that has stamps."""
        with commit_errors(self.identifier):
            append = self.load().newAppend()
            for name, value in stamps.items():
                append.set(name, value)
            append.toBranch(self.reference(branch)).commit()

    def create_branch(self, branch: str, snapshot_id: int) -> None:
        """Create a branch at a snapshot."""
        with commit_errors(self.identifier):
            self.load().manageSnapshots().createBranch(self.reference(branch), snapshot_id).commit()

    def drop_branch(self, branch: str) -> None:
        """Remove a branch, if it exists; its files are removed by maintenance."""
        with commit_errors(self.identifier):
            table, name = self.load(), self.reference(branch)
            if table.refs().containsKey(name):
                table.manageSnapshots().removeBranch(name).commit()

    def reset_branch(self, branch: str, snapshot_id: int) -> None:
        """Set a branch back to one of its ancestors."""
        with commit_errors(self.identifier):
            self.load().manageSnapshots().replaceBranch(self.reference(branch), snapshot_id).commit()

    def create_tag(self, tag: str, snapshot_id: int) -> None:
        """Create a tag, which also keeps the snapshot from expiry."""
        with commit_errors(self.identifier):
            self.load().manageSnapshots().createTag(self.reference(tag), snapshot_id).commit()

    def drop_tag(self, tag: str) -> None:
        """Remove a tag, if it exists."""
        with commit_errors(self.identifier):
            table, name = self.load(), self.reference(tag)
            if table.refs().containsKey(name):
                table.manageSnapshots().removeTag(name).commit()

    def replace_tag(self, tag: str, snapshot_id: int) -> None:
        """Move a tag to another snapshot."""
        with commit_errors(self.identifier):
            self.load().manageSnapshots().replaceTag(self.reference(tag), snapshot_id).commit()

    def branches(self) -> list[str]:
        """Return the names of all branches and tags."""
        return self.metadata().references()

    def fast_forward(
        self, source: str, target: str, *, expected: int, drop_source: bool = False, tries: int = 5
    ) -> None:
        """Move ``target`` to ``source``'s head if it is still at ``expected``; drop the source in the same commit.

        Raises:
            ConflictError: the target has moved.
        """
        own, other = self.reference(target), self.reference(source)
        for attempt in range(tries):
            table = self.load()
            found = table.snapshot(own)
            if found is None or found.snapshotId() != expected:
                msg = f"{self.identifier}: {target} moved under this writer: expected snapshot {expected}"
                raise ConflictError(msg)
            try:
                with commit_errors(self.identifier):
                    update = table.manageSnapshots().fastForwardBranch(own, other)
                    (update.removeBranch(other) if drop_source else update).commit()
            except ConflictError:
                # An unrelated commit (a tag, a property) may have come first, with the target unchanged.
                if attempt == tries - 1:
                    raise
            else:
                return

    def delete_all(self, branch: str, stamps: Mapping[str, str]) -> None:
        """Remove every row on a branch by metadata alone."""
        with commit_errors(self.identifier):
            expressions = _jvm(self.spark).org.apache.iceberg.expressions.Expressions
            delete = self.load().newDelete().deleteFromRowFilter(expressions.alwaysTrue())
            for name, value in stamps.items():
                delete.set(name, value)
            delete.toBranch(self.reference(branch)).commit()


def _name_at(table: Any, snapshot_id: int, name: str) -> str | None:
    """Return a column's name in the schema of a snapshot, None where it is unknown now or was unknown then."""
    now, then = table.schema().findField(name), table.schemas().get(table.snapshot(snapshot_id).schemaId())
    field = then.findField(now.fieldId()) if now is not None and then is not None else None
    return field.name() if field is not None else None


def _as_named_now(field_then: Any | None, column: Column) -> SparkColumn:
    value = F.col(quote_name(field_then.name())) if field_then is not None else F.lit(None)
    return value.cast(spark_type(column.type)).alias(column.name)


def _jvm(spark: SparkSession) -> Any:
    if spark._jvm is None:
        msg = "this Spark session has no JVM (Spark Connect); Lakeward needs a classic session"
        raise BugError(msg)
    return spark._jvm


def set_references(table: IcebergTable, *, tags: Mapping[str, int], branches: Mapping[str, int | None]) -> None:
    """Create tags, and create, move or (None) drop branches, in one commit.

    Raises:
        ConflictError: another writer set one of them first.
    """
    if not tags and not branches:
        return
    with commit_errors(table.identifier):
        loaded = table.load()
        present = loaded.refs()
        update = loaded.manageSnapshots()
        for tag, snapshot in tags.items():
            update.createTag(table.reference(tag), snapshot)
        for branch, target in branches.items():
            name = table.reference(branch)
            if target is None:
                update.removeBranch(name)
            elif present.containsKey(name):
                update.replaceBranch(name, target)
            else:
                update.createBranch(name, target)
        update.commit()


def adopt_branches(
    table: IcebergTable, prefix: str, *, expected: int, instead_of: Iterable[str], tags: Mapping[str, int]
) -> None:
    """Replace branches by those with a prefix before their names, in one commit that also creates tags.

    ``main`` is fast-forwarded from the snapshot ``expected``. ``instead_of`` are branches that are replaced, or removed
    where there is none with the prefix.

    Raises:
        ConflictError: ``main`` has moved, or another writer committed first.
    """
    metadata = table.metadata()
    head, branches = metadata.head(), metadata.branches()
    if head is None or head.id != expected:
        msg = f"{table.identifier}: {MAIN} moved under this writer: expected snapshot {expected}"
        raise ConflictError(msg)
    found = {name.removeprefix(prefix): name for name in branches if name.startswith(prefix)}
    with commit_errors(table.identifier):
        update = metadata.java.manageSnapshots().fastForwardBranch(MAIN, found[MAIN])
        for tag, snapshot in tags.items():
            update.createTag(tag, snapshot)
        for name in {*instead_of} - found.keys():
            update.removeBranch(name)
        for name, named in found.items():
            if name != MAIN:
                change = update.replaceBranch if name in branches else update.createBranch
                change(name, branches[named])
            update.removeBranch(named)
        update.commit()
