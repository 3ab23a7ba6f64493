"""The contract on every adapter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward.state.memory import MemoryStateStore
from lakeward.state.sql import SqlStateStore
from lakeward.testing.state_contract import StateStoreContract

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class TestMemory(StateStoreContract):
    @pytest.fixture
    def store(self) -> MemoryStateStore:
        return MemoryStateStore()


class TestSqlite(StateStoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[SqlStateStore]:
        store = SqlStateStore(tmp_path / "lakeward.db")
        yield store
        store.close()
