"""A state store in which the ledger of one table is kept under another name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.model import TableId
    from lakeward.state.base import StateStore


_OF_THE_LEDGER = frozenset(
    {
        "ledger_position", "progress", "replace_ledger", "extend_ledger", "lookup", "load_parts", "count_files",
        "has_files", "forget_ledger",
    }
)  # fmt: skip


class _SeparateLedger:
    """Everything of a store but the ledger, and the ledger of another table."""

    def __init__(self, store: StateStore, ledger: TableId) -> None:
        self._store = store
        self._ledger = ledger

    def __getattr__(self, name: str) -> Any:
        """Return a method of the store; one of the ledger is called for the other table."""
        method: Callable[..., Any] = getattr(self._store, name)
        if name not in _OF_THE_LEDGER:
            return method
        return lambda _table, *values, **named: method(self._ledger, *values, **named)


def with_separate_ledger(store: StateStore, ledger: TableId) -> StateStore:
    """Return a view of a store for work on one table whose ledger is kept as that of the table ``ledger``.

    Other processes keep the table's own ledger meanwhile: one that reads the table would otherwise replace the cache
    that this work relies on.
    """
    return cast("StateStore", _SeparateLedger(store, ledger))
