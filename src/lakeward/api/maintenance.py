"""Maintenance, as the library offers it: ``lake.maintain()``, and ``lake.maintain.plan()`` for what it would do."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from lakeward.arguments import NUMBER, OPTIONAL_NUMBER, OPTIONAL_TEXT, OPTIONAL_WHOLE, TEXTS, takes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lakeward.controller.maintaining import Allowance, Wish
    from lakeward.controller.tables import KnownTable
    from lakeward.controller.workbench import Workbench
    from lakeward.pipeline.maintenance.report import MaintenanceReport, WorkKind


class Maintain:
    """Works on the debt of tables; call it, or let it plan."""

    def __init__(
        self,
        bench: Callable[[], Workbench],
        tables: Callable[[], Sequence[KnownTable]],
        chosen: Callable[[Iterable[str]], Sequence[KnownTable]],
    ) -> None:
        """Work with what the lake gives: all its tables, and those that names choose."""
        self._bench = bench
        self._tables = tables
        self._chosen = chosen

    @takes(tables=TEXTS, only=OPTIONAL_TEXT, max_seconds=OPTIONAL_NUMBER, max_bytes=OPTIONAL_WHOLE, wait=NUMBER)
    def __call__(
        self,
        tables: Iterable[str] = (),
        *,
        only: str | None = None,
        max_seconds: float | None = None,
        max_bytes: int | None = None,
        wait: float = 0,
    ) -> MaintenanceReport:
        """Compact mirrors, cluster changelogs, let snapshots expire and remove orphan files; say what was done.

        Args:
            tables: names as ``schema.table``; none: all active ones.
            only: one kind of work: ``compact``, ``cluster``, ``expire`` or ``orphans``.
            max_seconds: begin no further slice after this time, over all tables.
            max_bytes: begin no further slice after so many bytes were rewritten, over all tables.
            wait: seconds to wait for a table that another writer holds; else it is left out and reported.
        """
        from lakeward.controller.maintaining import Allowance, Wish

        return self._done(tables, Wish(_kinds(only), wait=wait), Allowance(max_seconds, max_bytes))

    @takes(tables=TEXTS, only=OPTIONAL_TEXT)
    def plan(self, tables: Iterable[str] = (), *, only: str | None = None) -> MaintenanceReport:
        """Say what maintenance would do, of the first slice of each kind of work; nothing is written."""
        from lakeward.controller.maintaining import Allowance, Wish

        return self._done(tables, Wish(_kinds(only), dry_run=True), Allowance())

    def _done(self, names: Iterable[str], wish: Wish, allowance: Allowance) -> MaintenanceReport:
        from lakeward.controller.maintaining import maintain_tables
        from lakeward.pipeline.maintenance.report import MaintenanceReport

        started, chosen = time.monotonic(), self._chosen(names)
        found = tuple(maintain_tables(self._bench(), chosen, self._tables(), wish, allowance)) if chosen else ()
        return MaintenanceReport(found, time.monotonic() - started)


def _kinds(only: str | None) -> tuple[WorkKind, ...]:
    from lakeward.errors import ConfigurationError
    from lakeward.pipeline.maintenance.report import WorkKind

    if only is None:
        return tuple(WorkKind)
    if only not in {*WorkKind}:
        msg = f"{only!r} is no kind of maintenance; expected {', '.join(WorkKind)}"
        raise ConfigurationError(msg)
    return (WorkKind(only),)
