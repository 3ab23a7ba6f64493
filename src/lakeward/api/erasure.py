"""Removing the rows of certain keys from everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.errors import ConfigurationError

if TYPE_CHECKING:
    from lakeward.api.opened import OpenedLake


def require_keyed(lake: OpenedLake, name: str) -> None:
    """Refuse a table whose rows cannot be named.

    Raises:
        ConfigurationError: the table has no primary key.
    """
    known = lake.table(name)
    if not known.settings.primary_key:
        msg = f"{known.table} has no primary key: the rows of one subject cannot be told from others"
        raise ConfigurationError(msg, hint=f"delete them at the source and reload {known.table}")


def require_reason(reason: str) -> None:
    """Refuse an erasure without a reason.

    Raises:
        ConfigurationError: the reason is empty.
    """
    if not reason.strip():
        msg = "an erasure needs a reason: it is kept with the record of what was done"
        raise ConfigurationError(msg, hint="--reason 'request 4711 of 2026-05-25'")
