"""A table's settings travel with its mirror: the state store may be deleted, the lake may not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lakeward.lake.iceberg.define import SETTINGS_PROPERTY

if TYPE_CHECKING:
    from lakeward.lake.iceberg.table import IcebergTable
    from lakeward.pipeline.context import TableContext


def keep_settings(context: TableContext) -> None:
    """Write the settings that were set by command as a property of the mirror, when they changed."""
    registered = context.state.find_table(context.table)
    own = registered.settings if registered else {}
    text = json.dumps(own, sort_keys=True)
    if context.mirror.properties().get(SETTINGS_PROPERTY) != text:
        context.mirror.set_properties({SETTINGS_PROPERTY: text})


def kept_settings(mirror: IcebergTable) -> dict[str, Any] | None:
    """Read the settings that :func:`keep_settings` wrote; None where a table is not Lakeward's."""
    text = mirror.properties().get(SETTINGS_PROPERTY)
    return json.loads(text) if text is not None else None
