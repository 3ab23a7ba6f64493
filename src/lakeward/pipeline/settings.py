"""A table's settings travel with its mirror: the state store may be deleted, the lake may not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lakeward.errors import ConfigurationError
from lakeward.lake.iceberg.define import LAYOUT_PROPERTY, SETTINGS_PROPERTY
from lakeward.lake.iceberg.partitions import renamed_partition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakeward.lake.iceberg.table import IcebergTable
    from lakeward.pipeline.context import TableContext


def keep_settings(context: TableContext, present: Mapping[str, str | None]) -> None:
    """Write layout and the settings set by command as properties of the mirror, when they changed."""
    registered = context.state.find_table(context.table)
    own = registered.settings if registered else {}
    wanted = {
        SETTINGS_PROPERTY: json.dumps(own, sort_keys=True),
        LAYOUT_PROPERTY: json.dumps(_layout(context), sort_keys=True),
    }
    if any(present.get(name) != text for name, text in wanted.items()):
        context.mirror.set_properties(wanted)


def require_same_layout(context: TableContext, properties: Mapping[str, str | None]) -> None:
    """Refuse a key or partitioning other than the mirror was built with: old and new rows would not match."""
    kept = properties.get(LAYOUT_PROPERTY)
    if kept is None:
        return
    built, wanted = _named_now(json.loads(kept), context.settings.renames), _layout(context)
    if built == wanted:
        return
    differing = [name for name in wanted if wanted[name] != built.get(name)]
    shown = "; ".join(f"{name} was {built.get(name)}, now {wanted[name]}" for name in differing)
    msg = f"{context.table}: the mirror was built with other settings: {shown}"
    hint = (
        f"set it back; or drop {context.mirror.identifier} and {context.changelog.identifier} and run again: "
        "the table is then built anew from the landing files"
    )
    raise ConfigurationError(msg, hint=hint)


def _layout(context: TableContext) -> dict[str, list[str]]:
    settings = context.settings
    own = {"primary_key": settings.primary_key, "partition_by": settings.partition_by}
    return _named_now(own, settings.renames)


def _named_now(layout: Mapping[str, Sequence[str]], renames: Mapping[str, str]) -> dict[str, list[str]]:
    """Give a layout in one spelling, whose columns have the names that declared renames gave them."""
    return {
        "primary_key": [renames.get(name, name) for name in layout["primary_key"]],
        "partition_by": [renamed_partition(expression, renames) for expression in layout["partition_by"]],
    }


def kept_settings(mirror: IcebergTable) -> dict[str, Any] | None:
    """Read the settings that :func:`keep_settings` wrote; None where a table is not Lakeward's."""
    text = mirror.property(SETTINGS_PROPERTY)
    return json.loads(text) if text is not None else None
