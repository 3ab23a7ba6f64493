"""Warnings that several commands give."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.cli.output import warn

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakeward.controller.tables import KnownTable


def warn_of_publishing(tables: Iterable[KnownTable]) -> None:
    """Say which tables have a setting that this version does not act on."""
    names = [str(one.table) for one in tables if one.settings.publish is not None]
    if names:
        warn(f"publish: is set and this version does not act on it yet: {', '.join(names)}")
