"""The SQLite file: migrations, damage, deletion under our feet."""

from __future__ import annotations

import sqlite3
import stat
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import BigInteger, Boolean, Column, Text, create_engine, inspect

from lakeward.errors import ConfigurationError, ConflictError, LeaseHeldError, RetriableError
from lakeward.state import sqlite
from lakeward.state.base import open_state
from lakeward.state.database import MIGRATIONS, Migration, UtcTime, metadata, migrate
from lakeward.state.leases import HeldLease, current_owner
from lakeward.state.sql import SqlStateStore
from lakeward.testing.state_contract import ELSEWHERE, PRODUCT, PROGRESS, make_entry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NEWEST = MIGRATIONS[-1].version


def sqlite_store(file: Path) -> SqlStateStore:
    return SqlStateStore(sqlite.SqliteDatabase(file))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "lakeward.db"


@pytest.fixture
def store(file: Path) -> Iterator[SqlStateStore]:
    store = sqlite_store(file)
    yield store
    store.close()


def run_sql(file: Path, *statements: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(file)) as connection, connection:
        return [row for statement in statements for row in connection.execute(statement).fetchall()]


def migrate_twice(file: Path, second: Migration) -> None:
    database = sqlite.SqliteDatabase(file)
    try:
        for _ in range(2):
            with database.connected() as connection:
                migrate(database, connection, (*MIGRATIONS, second))
    finally:
        database.close()


@pytest.mark.parametrize(("access", "modes"), [("private", {0o700, 0o600}), ("umask", {0o755, 0o644})])
def test_a_file_its_journals_and_its_folders_are_for_their_user_alone_unless_configured(
    tmp_path: Path, usual_umask: None, access: str, modes: set[int]
) -> None:
    folder = tmp_path / "new" / "deep"
    with closing(open_state("sqlite:///new/deep/lakeward.db", tmp_path, access)) as store:
        store.register(PRODUCT, active=True)
        made = [folder.parent, folder, *folder.iterdir()]
        assert {found.name for found in made} >= {"lakeward.db", "lakeward.db-wal", "lakeward.db-shm"}
        assert {stat.S_IMODE(found.stat().st_mode) for found in made} == modes


def stored_type(column: Column[object]) -> str:
    """The plain SQL type behind a column's Python type, as reflection shows it."""
    return {UtcTime: "TEXT()", Text: "TEXT()", BigInteger: "BIGINT()", Boolean: "BOOLEAN()"}.get(
        type(column.type), "REAL()"
    )


class TestMigrations:
    def test_an_empty_file_gets_the_tables_that_the_code_expects(self, file: Path, store: SqlStateStore) -> None:
        engine = create_engine(f"sqlite:///{file}")
        found = inspect(engine)
        assert set(found.get_table_names()) == set(metadata.tables)
        for name, table in metadata.tables.items():
            columns = {column["name"]: (repr(column["type"]), column["nullable"]) for column in found.get_columns(name)}
            assert columns == {column.name: (stored_type(column), column.nullable) for column in table.columns}
            assert set(found.get_pk_constraint(name)["constrained_columns"]) == set(table.primary_key.columns.keys())
            assert {index["name"] for index in found.get_indexes(name)} == {index.name for index in table.indexes}
        engine.dispose()

    def test_a_file_is_migrated_once_and_keeps_what_it_holds(self, file: Path, store: SqlStateStore) -> None:
        store.register(PRODUCT, active=True)
        again = sqlite_store(file)
        assert again.find_table(PRODUCT) is not None
        again.close()
        assert run_sql(file, "SELECT max(version), count(*) FROM lakeward_migrations") == [(NEWEST, NEWEST)]

    def test_an_old_file_gets_only_the_steps_it_lacks(self, file: Path, store: SqlStateStore) -> None:
        store.register(PRODUCT, active=True)
        added = Migration(NEWEST + 1, "add a note", ("ALTER TABLE lakeward_tables ADD COLUMN note TEXT",))
        migrate_twice(file, added)
        assert run_sql(file, "SELECT table_name, note FROM lakeward_tables") == [("product", None)]
        assert run_sql(file, "SELECT version, name FROM lakeward_migrations ORDER BY 1")[-1] == (
            NEWEST + 1,
            "add a note",
        )

    def test_a_step_that_fails_leaves_nothing_behind(self, file: Path) -> None:
        broken = Migration(
            NEWEST + 1, "broken", ("CREATE TABLE half (a TEXT)", "CREATE TABLE lakeward_tables (a TEXT)")
        )
        with pytest.raises(Exception, match="already exists"):
            migrate_twice(file, broken)
        assert run_sql(file, "SELECT max(version) FROM lakeward_migrations") == [(NEWEST,)]
        assert run_sql(file, "SELECT name FROM sqlite_master WHERE name = 'half'") == []

    def test_a_file_of_a_newer_version_is_refused(self, file: Path, store: SqlStateStore) -> None:
        run_sql(file, "INSERT INTO lakeward_migrations VALUES (99, 'future', '2030-01-01T00:00:00.000000+00:00')")
        with pytest.raises(
            ConfigurationError, match=f"newer Lakeward: its version is 99, this one knows up to {NEWEST}"
        ):
            sqlite_store(file)

    def test_the_database_of_another_program_is_left_alone(self, file: Path) -> None:
        run_sql(file, "CREATE TABLE iceberg_tables (a TEXT)")
        with pytest.raises(ConfigurationError, match="not a Lakeward state store: it holds the tables iceberg_tables"):
            sqlite_store(file)
        assert run_sql(file, "SELECT name FROM sqlite_master") == [("iceberg_tables",)]


class TestDamage:
    def test_a_file_that_is_not_a_database_is_named_with_the_remedy(self, file: Path) -> None:
        file.write_bytes(b"this is not a database, however long one looks at it" * 100)
        with pytest.raises(ConfigurationError) as refused:
            sqlite_store(file)
        assert str(file) in refused.value.message
        assert refused.value.hint is not None
        assert "delete" in refused.value.hint
        assert "lakeward state rebuild" in refused.value.hint

    def test_a_damaged_page_is_explained_when_it_is_read(self, file: Path) -> None:
        store = sqlite_store(file)
        store.replace_ledger(PRODUCT, 1, PROGRESS, (make_entry(f"file-{number}") for number in range(3000)))
        store.close()
        content = bytearray(file.read_bytes())
        content[4096:] = b"\xff" * (len(content) - 4096)
        file.write_bytes(content)
        with pytest.raises(ConfigurationError, match=r"damaged(.|\n)*lakeward state rebuild"):
            use_and_close(file)

    def test_a_folder_in_place_of_the_file_is_explained(self, file: Path) -> None:
        file.mkdir()
        with pytest.raises(ConfigurationError, match="cannot be opened"):
            sqlite_store(file)

    def test_a_file_in_place_of_the_folder_is_explained(self, file: Path) -> None:
        file.write_text("x")
        with pytest.raises(ConfigurationError, match="cannot create the folder"):
            sqlite_store(file / "deeper" / "lakeward.db")

    def test_a_lock_that_is_never_released_is_retriable(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.05)
        store = sqlite_store(file)
        with closing(sqlite3.connect(file, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert store.find_table(PRODUCT) is None
            with pytest.raises(RetriableError, match="locked by another process"):
                store.register(PRODUCT, active=True)
        assert store.register(PRODUCT, active=True)
        store.close()


def use_and_close(file: Path) -> None:
    store = sqlite_store(file)
    try:
        store.lookup(PRODUCT, ["file-1"])
    finally:
        store.close()


class TestDeletedWhileOpen:
    def test_the_store_is_created_again(self, file: Path, store: SqlStateStore) -> None:
        store.replace_ledger(PRODUCT, 1, PROGRESS, [make_entry("a")])
        for leftover in file.parent.glob("lakeward.db*"):
            leftover.unlink()
        assert store.ledger_position(PRODUCT) is None
        store.register(PRODUCT, active=True)
        other = sqlite_store(file)
        assert other.find_table(PRODUCT) is not None
        other.close()

    def test_it_is_created_again_too_when_only_the_main_file_is_gone(self, file: Path, store: SqlStateStore) -> None:
        store.replace_ledger(PRODUCT, 1, PROGRESS, [make_entry("a")])
        file.unlink()
        assert not store.has_files(PRODUCT)
        store.replace_ledger(PRODUCT, 2, PROGRESS, (make_entry(f"file-{number}") for number in range(2000)))
        assert store.count_files(PRODUCT) == 2000
        assert run_sql(file, "PRAGMA integrity_check") == [("ok",)]

    def test_a_lease_in_the_deleted_file_is_lost(self, file: Path, store: SqlStateStore) -> None:
        with HeldLease(store, PRODUCT, current_owner("run-1")) as held:
            file.unlink()
            with pytest.raises(ConflictError, match="gone"):
                held.require()

    def test_a_replaced_file_counts(self, file: Path, tmp_path: Path, store: SqlStateStore) -> None:
        other = sqlite_store(tmp_path / "other.db")
        other.acquire_lease(PRODUCT, ELSEWHERE, seconds=30)
        other.close()
        for leftover in file.parent.glob("lakeward.db*"):
            leftover.unlink()
        (tmp_path / "other.db").replace(file)
        with pytest.raises(LeaseHeldError):
            store.acquire_lease(PRODUCT, current_owner("run-1"), seconds=30)


def test_the_file_is_shared_by_write_ahead_log(file: Path, store: SqlStateStore) -> None:
    assert run_sql(file, "PRAGMA journal_mode") == [("wal",)]


def test_a_closed_store_leaves_one_file(file: Path) -> None:
    store = sqlite_store(file)
    store.register(PRODUCT, active=True)
    store.close()
    assert [found.name for found in file.parent.iterdir()] == ["lakeward.db"]
