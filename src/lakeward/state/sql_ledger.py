"""The ledger cache on a SQL database."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy import and_, delete, exists, func, insert, select
from sqlalchemy.schema import CreateTable, DropTable

from lakeward.model import FileClass, LedgerEntry, Progress, TableId
from lakeward.state import codec
from lakeward.state.rows import lock_of, put_row, rows_of
from lakeward.state.tables import files, incoming_files, ledgers

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from sqlalchemy import Connection

    from lakeward.state.database import Database

Item = TypeVar("Item")

# SQLite allows 999 variables per statement in old builds.
_PAGE = 500


class SqlLedger:
    """The part of :class:`~lakeward.state.sql.SqlStateStore` that remembers consumed files."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def ledger_position(self, table: TableId) -> int | None:
        """The changelog snapshot the cached ledger reflects."""
        with self._database.reading() as connection:
            return _position(connection, table)

    def progress(self, table: TableId) -> Progress | None:
        """The cached progress."""
        with self._database.reading() as connection:
            text = connection.execute(select(ledgers.c.progress).where(rows_of(ledgers, table))).scalar()
        return codec.load_progress(table, text) if text is not None else None

    def replace_ledger(
        self, table: TableId, snapshot_id: int, progress: Progress, entries: Iterable[LedgerEntry]
    ) -> None:
        """Throw the cache of this table away and fill it anew."""
        with self._database.connected() as connection:
            self._collect(connection, table, entries)
            with self._database.write(connection, lock_of(files, table)):
                connection.execute(delete(files).where(rows_of(files, table)))
                _adopt(connection, table, snapshot_id, progress)

    def extend_ledger(
        self, table: TableId, *, after: int | None, snapshot_id: int, progress: Progress, entries: Iterable[LedgerEntry]
    ) -> bool:
        """Add one op's entries if the cache stands at ``after``."""
        with self._database.connected() as connection:
            self._collect(connection, table, entries)
            with self._database.write(connection, lock_of(files, table)):
                if _position(connection, table) != after:
                    return False
                again = files.c.path.in_(select(incoming_files.c.path))
                connection.execute(delete(files).where(rows_of(files, table), again))
                _adopt(connection, table, snapshot_id, progress)
                return True

    def lookup(self, table: TableId, paths: Collection[str]) -> dict[str, LedgerEntry]:
        """Entries of those paths that are in the ledger."""
        found: dict[str, LedgerEntry] = {}
        with self._database.reading() as connection:
            for page in _pages(paths):
                query = select(files).where(rows_of(files, table), files.c.path.in_(page))
                found.update((row["path"], codec.file_entry(row)) for row in connection.execute(query).mappings())
        return found

    def load_parts(self, table: TableId, generation: int) -> list[LedgerEntry]:
        """Load parts of a generation, by path."""
        is_part = and_(files.c.file_class == FileClass.LOAD.value, files.c.generation == generation)
        with self._database.reading() as connection:
            rows = connection.execute(select(files).where(rows_of(files, table), is_part)).mappings().all()
        # Databases differ in how they sort text.
        return sorted((codec.file_entry(row) for row in rows), key=lambda entry: entry.path)

    def count_files(self, table: TableId) -> int:
        """Number of files in the ledger cache."""
        with self._database.reading() as connection:
            return connection.execute(select(func.count()).select_from(files).where(rows_of(files, table))).scalar_one()

    def has_files(self, table: TableId, *, generation: int | None = None) -> bool:
        """Whether the ledger cache holds any file of the table, in one generation if it is given."""
        wanted = rows_of(files, table)
        if generation is not None:
            wanted = and_(wanted, files.c.generation == generation)
        with self._database.reading() as connection:
            return bool(connection.execute(select(exists().where(wanted))).scalar())

    def forget_ledger(self, table: TableId) -> None:
        """Drop this table's cached ledger and progress."""
        with self._database.writing(lock_of(files, table)) as connection:
            connection.execute(delete(files).where(rows_of(files, table)))
            connection.execute(delete(ledgers).where(rows_of(ledgers, table)))

    def _collect(self, connection: Connection, table: TableId, entries: Iterable[LedgerEntry]) -> None:
        """Bring all entries into the connection's temporary table, without a lock and page by page.

        Entries may take Spark minutes; a lock held so long would end the leases of every other writer, and a
        transaction left open so long is ended by some servers.
        """
        with self._database.read(connection):
            connection.execute(DropTable(incoming_files, if_exists=True))
            connection.execute(CreateTable(incoming_files))
        for page in _pages(entries):
            rows = {entry.path: codec.file_row(table, entry) for entry in page}
            with self._database.read(connection):
                again = incoming_files.c.path.in_(rows)
                connection.execute(delete(incoming_files).where(rows_of(incoming_files, table), again))
                connection.execute(insert(incoming_files), list(rows.values()))


def _position(connection: Connection, table: TableId) -> int | None:
    position: int | None = connection.execute(select(ledgers.c.snapshot_id).where(rows_of(ledgers, table))).scalar()
    return position


def _adopt(connection: Connection, table: TableId, snapshot_id: int, progress: Progress) -> None:
    """Move the collected entries into the ledger and set where it stands."""
    names = [column.name for column in files.columns]
    connection.execute(insert(files).from_select(names, select(incoming_files)))
    connection.execute(DropTable(incoming_files))
    values = {**codec.table_key(table), "snapshot_id": snapshot_id, "progress": codec.dump_progress(progress)}
    put_row(connection, ledgers, table, values)


def _pages(items: Iterable[Item]) -> Iterator[list[Item]]:
    iterator = iter(items)
    while page := list(islice(iterator, _PAGE)):
        yield page
