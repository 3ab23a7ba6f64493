"""The contract on every adapter that needs no JVM."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward.state.memory import MemoryStateStore
from lakeward.testing.state_contract import SharedStoreContract, StateStoreContract

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.servers.postgres import PostgresServer


class TestMemory(StateStoreContract):
    @pytest.fixture
    def store(self) -> MemoryStateStore:
        return MemoryStateStore()


class TestSqlite(SharedStoreContract):
    @pytest.fixture
    def address(self, tmp_path: Path) -> str:
        return f"sqlite:///{tmp_path}/new/lakeward.db"

    @pytest.fixture
    def wipe(self, tmp_path: Path) -> Callable[[], None]:
        def delete() -> None:
            for file in (tmp_path / "new").glob("lakeward.db*"):
                file.unlink()

        return delete


class TestPostgres(SharedStoreContract):
    @pytest.fixture
    def wipe(self, postgres: PostgresServer) -> Callable[[], None]:
        def drop() -> None:
            postgres.run("DROP SCHEMA IF EXISTS contract CASCADE")
            postgres.run("CREATE SCHEMA contract")

        return drop

    @pytest.fixture
    def address(self, postgres: PostgresServer, wipe: Callable[[], None]) -> str:
        # A schema is made in a hundredth of the time that a database takes.
        wipe()
        return f"{postgres.uri('postgres')}?options=-csearch_path%3Dcontract"
