"""Erasure, as the library offers it: ``lake.erase("sales.customer", [{"id": 42}], reason="…")``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakeward.arguments import FLAG, MAPPINGS, OPTIONAL_TEXT, TEXT, takes
from lakeward.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Literal

    from lakeward.controller.tables import KnownTable
    from lakeward.controller.workbench import Workbench
    from lakeward.snapshots.erasure.receipts import Receipt


class Erasing:
    """Removes rows of certain keys from everywhere; call it, let it plan, or let it finish what was interrupted."""

    def __init__(self, bench: Callable[[], Workbench], table: Callable[[str], KnownTable]) -> None:
        """Work with what the lake gives."""
        self._bench = bench
        self._table = table

    @takes(name=TEXT, keys=MAPPINGS, reason=TEXT, landing=FLAG, moves=OPTIONAL_TEXT)
    def __call__(
        self,
        name: str,
        keys: Sequence[Mapping[str, Any]],
        *,
        reason: str,
        landing: bool = False,
        moves: Literal["erase", "keep"] | None = None,
    ) -> list[Receipt]:
        """Erase keys from mirror, changelog, quarantine, branches, tags, history, publications and old snapshots.

        Gives the receipt last; before it that of an erasure which was interrupted and is finished first.

        Args:
            name: the table as ``schema.table``.
            keys: the keys, each with a value for every key column.
            reason: why, for the record.
            landing: rewrite the landing files too.
            moves: what happens to keys that rows of these keys moved to or came from.

        Raises:
            ConfigurationError: a key does not fit, no reason is given, or it must be decided about other keys.
            ConflictError: another writer holds the table.
        """
        from lakeward.snapshots.erasure.erasing import erase

        _require_reason(reason)
        with self._bench().leased(self._keyed(name)) as context:
            return erase(context, keys, reason, landing=landing, moves=moves)

    @takes(name=TEXT, keys=MAPPINGS, moves=OPTIONAL_TEXT)
    def plan(
        self, name: str, keys: Sequence[Mapping[str, Any]], *, moves: Literal["erase", "keep"] | None = None
    ) -> Receipt:
        """Say what an erasure would remove from which place; nothing is written."""
        from lakeward.snapshots.erasure.erasing import plan

        return plan(self._bench().context(self._keyed(name)), keys, "", moves=moves)

    @takes(name=TEXT)
    def resume(self, name: str) -> list[Receipt]:
        """Finish an erasure that was interrupted and give its receipt; an empty list where none was."""
        from lakeward.snapshots.erasure.erasing import resume

        with self._bench().leased(self._keyed(name)) as context:
            return resume(context)

    def _keyed(self, name: str) -> KnownTable:
        known = self._table(name)
        if not known.settings.primary_key:
            msg = f"{known.table} has no primary key: the rows of one subject cannot be told from others"
            raise ConfigurationError(msg, hint=f"delete them at the source and reload {known.table}")
        return known


def _require_reason(reason: str) -> None:
    if not reason.strip():
        msg = "an erasure needs a reason: it is kept with the record of what was done"
        raise ConfigurationError(msg, hint="--reason 'request 4711 of 2026-05-25'")
