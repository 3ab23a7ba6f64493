"""The contract on PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward.testing.state_contract import SharedStoreContract

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers.postgres import PostgresServer


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
