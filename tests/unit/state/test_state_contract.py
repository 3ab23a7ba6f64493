"""The contract on every adapter that needs no server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward.state.memory import MemoryStateStore
from lakeward.testing.state_contract import SharedStoreContract, StateStoreContract

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


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
