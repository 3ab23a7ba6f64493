"""A table's settings travel with its mirror: the state store may be deleted, the lake may not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lakeward.errors import ConfigurationError
from lakeward.lake.iceberg.define import LAYOUT_PROPERTY, READING_PROPERTY, SETTINGS_PROPERTY
from lakeward.lake.iceberg.partitions import renamed_partition
from lakeward.reading_back import json_object, reading_property
from lakeward.redaction import redact_values

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakeward.config import TableSettings
    from lakeward.datatypes import Column
    from lakeward.lake.iceberg.table import IcebergTable
    from lakeward.model import TableId
    from lakeward.pipeline.context import TableContext


def keep_settings(context: TableContext, present: Mapping[str, str | None]) -> None:
    """Write layout and the settings set by command as properties of the mirror, when they changed."""
    registered = context.state.find_table(context.table)
    own = registered.settings if registered else {}
    wanted = {
        # Whoever may read the mirror reads its properties, too.
        SETTINGS_PROPERTY: json.dumps(redact_values(own), sort_keys=True),
        LAYOUT_PROPERTY: json.dumps(_layout(context), sort_keys=True),
        READING_PROPERTY: json.dumps(reading_settings(context.settings), sort_keys=True),
    }
    if any(present.get(name) != text for name, text in wanted.items()):
        context.mirror.set_properties(wanted)


def reading_settings(settings: TableSettings) -> dict[str, Any]:
    """Return the settings by which a table's files are read, those of CSV by their full names."""
    csv = settings.csv.model_dump(mode="json")
    own = {name: getattr(settings, name) for name in ("timestamp_column", "sequence_column", "operation_column")}
    return {**own, **{f"csv.{name}": value for name, value in csv.items()}}


def describe_changed_reading(
    table: TableId, before: Mapping[str, Any], settings: TableSettings, mirror: Sequence[Column] = ()
) -> str | None:
    """Say what other settings for reading leave as it is in a table that was run with those of ``before``.

    Returns None where nothing changed. ``mirror`` are the columns that its mirror has, as far as they are known.
    """
    now = reading_settings(settings)
    changed = [name for name, value in now.items() if name in before and before[name] != value]
    if not changed:
        return None
    shown = "; ".join(f"{name} was {before[name]!r}, now {now[name]!r}" for name in changed)
    steps = [f"lakeward undo {table} --to-op 0", f"lakeward run {table}"]
    kept = captured_columns(mirror, settings)
    if kept:
        shown += f"; the mirror keeps {', '.join(kept)} as a column"
    if kept or (not mirror and any(not name.startswith("csv.") for name in changed)):
        steps.insert(0, f"lakeward tables repair {table} (removes such a column from the mirror)")
    anew = ", then ".join(steps)
    return f"{table}: {shown}; files that were read before stay as they were read. To read them anew: {anew}"


def captured_columns(mirror: Sequence[Column], settings: TableSettings) -> tuple[str, ...]:
    """Return the mirror's columns that the settings declare to be the capture's own, and no schema to be the source's.

    A table that is read under these settings from the start has no such columns.
    """
    declared = {column.name for column in settings.columns or ()}
    own = {settings.timestamp_column, settings.sequence_column, settings.operation_column} - declared
    return tuple(column.name for column in mirror if column.name in own)


def require_same_layout(context: TableContext, properties: Mapping[str, str | None]) -> None:
    """Refuse a key or partitioning other than the mirror was built with: old and new rows would not match."""
    kept = properties.get(LAYOUT_PROPERTY)
    if kept is None:
        return
    with reading_property(LAYOUT_PROPERTY, of="mirror"):
        built = _named_now(json_object(kept), context.settings.renames)
    wanted = _layout(context)
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
    if text is None:
        return None
    with reading_property(SETTINGS_PROPERTY, of="mirror"):
        return json_object(text)
