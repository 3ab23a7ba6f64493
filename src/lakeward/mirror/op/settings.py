"""Settings that are stored with the mirror, and checks of settings against the table's columns.

The state store may be deleted; the lake may not. What a table was built with is therefore kept in its mirror.
"""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakeward.column_policy import POLICY_PROPERTY, dropped
from lakeward.config.policy import rules_of
from lakeward.errors import ConfigurationError
from lakeward.iceberg.define import LAYOUT_PROPERTY, READING_PROPERTY, SETTINGS_PROPERTY
from lakeward.iceberg.partitions import partition_problems, renamed_partition
from lakeward.mirror.op.policy import anew_hint, policy_property, rule_conflicts, rule_misfits
from lakeward.redaction import redact_values
from lakeward.text import count, json_object, listed, reading_property

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakeward.columns import Column
    from lakeward.config import TableSettings
    from lakeward.iceberg.table import IcebergTable
    from lakeward.mirror.op.context import TableContext
    from lakeward.model import TableId


def keep_settings(context: TableContext, present: Mapping[str, str | None], columns: Sequence[Column]) -> None:
    """Store layout, column policy and the settings set by command as properties of the mirror, when they changed."""
    registered = context.state.find_table(context.table)
    own = registered.settings if registered else {}
    wanted = {
        # Everyone who may read the mirror can read its properties.
        SETTINGS_PROPERTY: json.dumps(redact_values(own), sort_keys=True),
        LAYOUT_PROPERTY: json.dumps(_layout(context), sort_keys=True),
        READING_PROPERTY: json.dumps(reading_settings(context.settings), sort_keys=True),
    }
    policy = policy_property(context.settings, columns, present.get(POLICY_PROPERTY))
    if policy is not None:
        wanted[POLICY_PROPERTY] = policy
    if any(present.get(name) != text for name, text in wanted.items()):
        context.mirror.set_properties(wanted)


def reading_settings(settings: TableSettings) -> dict[str, Any]:
    """Return the settings by which a table's files are read, those of CSV under their full names."""
    csv = settings.csv.model_dump(mode="json")
    own = {name: getattr(settings, name) for name in ("timestamp_column", "sequence_column", "operation_column")}
    return {**own, **{f"csv.{name}": value for name, value in csv.items()}}


def describe_changed_reading(
    table: TableId, before: Mapping[str, Any], settings: TableSettings, mirror: Sequence[Column] = ()
) -> str | None:
    """Return which settings for reading changed since ``before``, what that leaves unchanged, and how to read again.

    Returns None where nothing changed. ``mirror`` are the columns of the mirror, as far as they are known.
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
    commands = ", then ".join(steps)
    return f"{table}: {shown}; files that were read before stay as they were read. To read them again: {commands}"


def describe_ignored(table: TableId, before: TableSettings, settings: TableSettings, ignored: int) -> str | None:
    """Return what a new key, or another rule for tables without one, leaves of the rows that were ignored so far.

    Returns None where no row was ignored, or where key and rule stay as they were.
    """
    rules = [(found.primary_key, found.without_key) for found in (before, settings)]
    if not ignored or rules[0] == rules[1]:
        return None
    found = count(ignored, "update or delete was", "updates and deletes were")
    what = f"{table}: {found} ignored since the table's last load, because it has no key"
    if settings.primary_key:
        return f"{what}; the mirror must be built again to have one, as the next run explains"
    again = f"lakeward undo {table} --to-op 0, then lakeward run {table}"
    return f"{what}; they stay ignored. To read them again under the new setting: {again}"


def captured_columns(mirror: Sequence[Column], settings: TableSettings) -> tuple[str, ...]:
    """Return the mirror's columns that, by the settings, belong to the capture and not to the source.

    A table that was read under these settings from the start has no such columns.
    """
    declared = {column.name for column in settings.columns or ()}
    kept = declared | {*settings.metadata_columns.listed}
    if settings.adopt is not None and settings.adopt.keep_op:
        kept.add(settings.operation_column)
    own = {settings.timestamp_column, settings.sequence_column, settings.operation_column} - kept
    return tuple(column.name for column in mirror if column.name in own)


def require_same_layout(context: TableContext, properties: Mapping[str, str | None]) -> None:
    """Refuse a key or partitioning that the mirror was not built with: old and new rows would not match."""
    kept = properties.get(LAYOUT_PROPERTY)
    if kept is None:
        return
    with reading_property(LAYOUT_PROPERTY, of="mirror"):
        built = _with_renames(json_object(kept), context.settings.renames)
    wanted = _layout(context)
    if built == wanted:
        return
    differing = [name for name in wanted if wanted[name] != built.get(name)]
    shown = "; ".join(f"{name} was {built.get(name)}, now {wanted[name]}" for name in differing)
    msg = f"{context.table}: the mirror was built with other settings: {shown}"
    raise ConfigurationError(msg, hint=f"set it back; or {anew_hint(context.table)}")


def _layout(context: TableContext) -> dict[str, list[str]]:
    settings = context.settings
    metadata = [f"{kind}: {name}" for kind, name in settings.metadata_columns.names().items()]
    own = {"primary_key": settings.primary_key, "partition_by": settings.partition_by, "metadata_columns": metadata}
    return _with_renames(own, settings.renames)


def _with_renames(layout: Mapping[str, Sequence[str]], renames: Mapping[str, str]) -> dict[str, list[str]]:
    """Return a layout in canonical spelling, with declared renames applied to its columns."""
    return {
        "primary_key": [renames.get(name, name) for name in layout["primary_key"]],
        "partition_by": [renamed_partition(expression, renames) for expression in layout["partition_by"]],
        # Mirrors of earlier versions have none.
        "metadata_columns": list(layout.get("metadata_columns", ())),
    }


def kept_settings(mirror: IcebergTable) -> dict[str, Any] | None:
    """Read the settings that :func:`keep_settings` wrote; None for a table that Lakeward did not write."""
    text = mirror.property(SETTINGS_PROPERTY)
    if text is None:
        return None
    with reading_property(SETTINGS_PROPERTY, of="mirror"):
        return json_object(text)


_NAMING_COLUMNS = ("primary_key", "null_means_unchanged", "before_image_columns")
_SHOWN = 40


@dataclass(frozen=True)
class SettingProblem:
    """One setting that does not fit the table."""

    setting: str
    message: str


def settings_problems(columns: Sequence[Column], settings: TableSettings) -> Iterator[SettingProblem]:
    """Yield the problems of settings that name columns of the table."""
    yield from (SettingProblem("columns", message) for message in rule_conflicts(settings))
    yield from (SettingProblem("columns", message) for message in rule_misfits(columns, settings))
    names = [column.name for column in columns]
    for setting in _NAMING_COLUMNS:
        wanted = getattr(settings, setting) or ()
        # Dropped columns have a place in the files.
        known = {*names, *dropped(rules_of(settings))} if setting == "before_image_columns" else {*names}
        yield from _unknown(setting, [name for name in wanted if name not in known], names, settings)
        if repeated := sorted({name for name in wanted if wanted.count(name) > 1}):
            yield SettingProblem(setting, f"{setting} names {', '.join(repeated)} more than once")
    taken = {name.lower(): name for name in names}
    for kind, name in settings.metadata_columns.names().items():
        if name.lower() in taken:
            yield SettingProblem(
                "metadata_columns",
                f"metadata_columns names {kind} {name!r}, and the table has a column {taken[name.lower()]!r}",
            )
    # A rename keeps the partition: the old and the new name are both right.
    expressions = [renamed_partition(expression, settings.renames) for expression in settings.partition_by]
    for message, missing in partition_problems(expressions, columns):
        more = "" if missing is None else f"; {nearest(missing, names)}"
        yield SettingProblem("partition_by", f"{message}{more}")


def _unknown(
    setting: str, missing: Sequence[str], names: Sequence[str], settings: TableSettings
) -> Iterator[SettingProblem]:
    for name in missing:
        renamed = settings.renames.get(name)
        meant = f"it was renamed to {renamed}" if renamed in names else nearest(name, names)
        yield SettingProblem(setting, f"{setting} names {name!r}, which is not a column of the table; {meant}")


def nearest(name: str, names: Sequence[str]) -> str:
    """Return the closest name by case or spelling, and the names that exist."""
    by_case = [known for known in names if known.lower() == name.lower()]
    close = by_case or difflib.get_close_matches(name, names, n=1)
    columns = f"columns: {listed(names, most=_SHOWN)}"
    return f"did you mean {close[0]!r}? {columns}" if close else columns
