"""PostgreSQL: restarts, refusals, locks, and whose clock decides."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from sqlalchemy import inspect

from lakeward.errors import ConfigurationError, LeaseHeldError, RetriableError
from lakeward.state import postgres as adapter
from lakeward.state.base import open_state
from lakeward.state.database import MIGRATIONS, metadata
from lakeward.state.leases import HeldLease, current_owner
from lakeward.state.postgres import PostgresDatabase
from lakeward.state.sql import SqlStateStore
from lakeward.testing.state_contract import ELSEWHERE, PRODUCT, PROGRESS, make_entry
from tests.servers.postgres import PASSWORD, QUOTED_PASSWORD, postgres_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers.postgres import PostgresServer


@pytest.fixture
def store(postgres_uri: str) -> Iterator[SqlStateStore]:
    with closing(SqlStateStore(PostgresDatabase(postgres_uri))) as store:
        yield store


def database_of(uri: str) -> str:
    return uri.rpartition("/")[2]


def test_an_empty_database_gets_the_tables_that_the_code_expects(store: SqlStateStore) -> None:
    with store._database.reading() as connection:
        found = inspect(connection)
        assert set(found.get_table_names()) == set(metadata.tables)
        for name, table in metadata.tables.items():
            columns = {column["name"]: column["nullable"] for column in found.get_columns(name)}
            assert columns == {column.name: column.nullable for column in table.columns}
            assert {index["name"] for index in found.get_indexes(name)} == {index.name for index in table.indexes}


def test_tables_of_other_programs_may_be_in_the_same_database(postgres: PostgresServer, postgres_uri: str) -> None:
    postgres.run("CREATE TABLE orders (id int)", database_of(postgres_uri))
    open_state(postgres_uri.replace("postgresql://", "postgresql+psycopg://"), Path()).close()
    assert len(postgres.run("SELECT version FROM lakeward_migrations", database_of(postgres_uri))) == len(MIGRATIONS)


def test_a_database_of_a_newer_version_is_refused(
    store: SqlStateStore, postgres: PostgresServer, postgres_uri: str
) -> None:
    postgres.run("INSERT INTO lakeward_migrations VALUES (99, 'future', '2030')", database_of(postgres_uri))
    with pytest.raises(ConfigurationError, match="newer Lakeward: its version is 99"):
        open_state(postgres_uri, Path())


class TestPasswords:
    def test_the_password_may_come_from_the_environment(
        self, postgres_uri: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PGPASSWORD", PASSWORD)
        open_state(postgres_uri.replace(f":{QUOTED_PASSWORD}@", "@"), Path()).close()

    @pytest.mark.parametrize("change", ["wrong password", "no database", "unreachable"])
    def test_secrets_are_never_shown(self, postgres: PostgresServer, postgres_uri: str, change: str) -> None:
        uri = {
            "wrong password": postgres.uri("postgres", password="not-the-s3cret"),
            "no database": postgres.uri("nowhere"),
            "unreachable": f"postgresql://me:{QUOTED_PASSWORD}@127.0.0.1:1/lakeward?password=s3cret2",
        }[change]
        expected = RetriableError if change == "unreachable" else ConfigurationError
        with pytest.raises(expected) as refused:
            open_state(uri, Path())
        assert "postgresql://" in str(refused.value)
        assert "s3cret" not in f"{refused.value} {refused.value.__cause__}"

    def test_an_open_store_does_not_show_its_password(self, store: SqlStateStore) -> None:
        assert "s3cret" not in f"{store._database.name} {store._database._engine!r}"


class TestRefusals:
    def test_missing_grants_are_configuration_errors(self, postgres: PostgresServer, postgres_uri: str) -> None:
        database = database_of(postgres_uri)
        postgres.run("CREATE ROLE guest LOGIN PASSWORD 'guest'")
        try:
            with pytest.raises(ConfigurationError, match="permission denied for schema public") as refused:
                open_state(postgres.uri(database, user="guest", password="guest"), Path())
            assert "docs/state.md" in str(refused.value.hint)
            postgres.run("GRANT USAGE, CREATE ON SCHEMA public TO guest", database)
            with closing(open_state(postgres.uri(database, user="guest", password="guest"), Path())) as store:
                store.replace_ledger(PRODUCT, 1, PROGRESS, [make_entry("a")])
        finally:
            postgres.run("DROP OWNED BY guest CASCADE", database)
            postgres.run("DROP ROLE guest")

    def test_an_encoding_that_cannot_hold_every_name_is_refused(self, postgres: PostgresServer) -> None:
        postgres.run("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
        with pytest.raises(ConfigurationError, match=r"stores text as LATIN1.*expected UTF8"):
            open_state(postgres.uri("latin"), Path())
        postgres.run("DROP DATABASE latin")

    def test_a_lock_that_is_never_released_is_retriable(
        self, postgres_uri: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(adapter, "LOCK_SECONDS", 0.1)
        number = adapter._lock_number("lakeward_tables sales.product")
        with closing(open_state(postgres_uri, Path())) as store, psycopg.connect(postgres_uri) as other:
            other.execute("SELECT pg_advisory_xact_lock(%s)", [number])
            with pytest.raises(RetriableError, match="lock timeout"):
                store.register(PRODUCT, active=True)
            assert store.acquire_lease(PRODUCT, ELSEWHERE, seconds=30).owner == ELSEWHERE
            other.rollback()
            assert store.register(PRODUCT, active=True)

    def test_a_bug_is_not_reported_as_an_error_of_the_server(self, store: SqlStateStore) -> None:
        with store._database.reading() as connection, pytest.raises(Exception, match="syntax error"):
            connection.exec_driver_sql("SELEC 1")


class TestRestart:
    def test_broken_connections_are_replaced(
        self, store: SqlStateStore, postgres: PostgresServer, postgres_uri: str
    ) -> None:
        store.register(PRODUCT, active=True)
        database = database_of(postgres_uri)
        postgres.run(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'")
        assert store.find_table(PRODUCT) is not None

    def test_a_connection_that_breaks_in_use_is_retriable(
        self, store: SqlStateStore, postgres: PostgresServer, postgres_uri: str
    ) -> None:
        database = database_of(postgres_uri)

        def breaking() -> Iterator[object]:
            yield from (make_entry(f"{number}") for number in range(700))
            postgres.run(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'")
            yield make_entry("last")

        store.replace_ledger(PRODUCT, 1, PROGRESS, [make_entry("old")])
        with pytest.raises(RetriableError, match="does not answer"):
            store.replace_ledger(PRODUCT, 2, PROGRESS, breaking())  # type: ignore[arg-type]
        assert (store.ledger_position(PRODUCT), store.count_files(PRODUCT)) == (1, 1)

    def test_a_store_outlives_its_server(self) -> None:
        with postgres_server() as server, closing(open_state(server.uri("postgres"), Path())) as store:
            with HeldLease(store, PRODUCT, current_owner("run-1")) as held:
                server.stop()
                with pytest.raises(RetriableError, match="does not answer"):
                    store.lease_of(PRODUCT)
                server.start()
                held.require()
                assert store.lease_of(PRODUCT) == held.lease
            server.stop(kill=True)
            server.start()
            assert store.lease_of(PRODUCT) is None


def test_the_server_decides_when_a_lease_ends(postgres: PostgresServer, postgres_uri: str) -> None:
    """A function of the server's own name, found first, makes its clock an hour slow."""
    database = database_of(postgres_uri)
    postgres.run("CREATE SCHEMA slow", database)
    postgres.run(
        "CREATE FUNCTION slow.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS "
        "$$ SELECT pg_catalog.clock_timestamp() - interval '1 hour' $$",
        database,
    )
    with closing(open_state(f"{postgres_uri}?options=-csearch_path%3Dslow,pg_catalog", Path())) as store:
        with HeldLease(store, PRODUCT, current_owner("run-1")) as held:
            assert timedelta(minutes=59) < datetime.now(UTC) - held.lease.expires_at < timedelta(minutes=60)
            held.require()
            assert [lease.table for lease in store.leases()] == [PRODUCT]
            with pytest.raises(LeaseHeldError):
                store.acquire_lease(PRODUCT, ELSEWHERE, seconds=30)
        assert store.lease_of(PRODUCT) is None
    assert postgres.run("SELECT count(*) FROM slow.lakeward_leases", database) == [(0,)]
