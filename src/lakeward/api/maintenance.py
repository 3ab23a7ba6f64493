"""Maintenance of tables: compacting, clustering, expiring, removing orphans."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from lakeward.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakeward.api.opened import OpenedLake
    from lakeward.controller.maintaining import Allowance, Wish
    from lakeward.pipeline.maintenance.report import MaintenanceReport, WorkKind


def maintain(lake: OpenedLake, names: Iterable[str], wish: Wish, allowance: Allowance) -> MaintenanceReport:
    """Work on the named tables, all active ones when none is named."""
    from lakeward.controller.maintaining import maintain_tables
    from lakeward.pipeline.maintenance.report import MaintenanceReport

    started, chosen = time.monotonic(), lake.active(names)
    found = tuple(maintain_tables(lake.workbench(), chosen, lake.tables(), wish, allowance)) if chosen else ()
    return MaintenanceReport(found, time.monotonic() - started)


def work_kinds(only: str | None) -> tuple[WorkKind, ...]:
    """Return the kinds of work that a user asks for; None: all.

    Raises:
        ConfigurationError: there is no such kind.
    """
    from lakeward.pipeline.maintenance.report import WorkKind

    if only is None:
        return tuple(WorkKind)
    if only not in {*WorkKind}:
        msg = f"{only!r} is no kind of maintenance; expected {', '.join(WorkKind)}"
        raise ConfigurationError(msg)
    return (WorkKind(only),)
