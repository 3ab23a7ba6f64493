"""The table's schema for an op: the mirror's columns, the declared columns and the files' columns, merged.

Additions and safe widenings evolve the schema; a column that files no longer have stays; every other difference stops
the table with an exact description.
"""

from __future__ import annotations

from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING

from lakeward.column_policy import as_read, as_stored, of_files
from lakeward.columns import (
    Column,
    can_widen,
    describe_problems,
    fits_type,
    format_ddl,
    lake_type,
    name_problems,
    renames_for,
)
from lakeward.config.policy import rules_of
from lakeward.errors import ConfigurationError, SchemaError
from lakeward.mirror.op.settings import settings_problems

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakeward.column_policy import Rules
    from lakeward.columns import NameProblem
    from lakeward.config import TableSettings
    from lakeward.formats.base import FileSummary
    from lakeward.model import TableId


_DECIDE = "set its rule (columns:), or schema_mode: evolve to store new columns as they are"


def known_columns(table: TableId, mirror: Sequence[Column], settings: TableSettings) -> tuple[Column, ...]:
    """Return the mirror's columns with declared renames, widenings and additions applied, as the lake stores them."""
    renames, rules = settings.renames, rules_of(settings)
    taken = {column.name for column in mirror}
    renamed = [
        replace(column, name=renames[column.name])
        if column.name in renames and renames[column.name] not in taken
        else column
        for column in mirror
    ]
    if settings.columns is None:
        return tuple(renamed)
    by_name = {column.name: column for column in of_files(settings.columns, rules)}
    merged: list[Column] = []
    for column in as_read(renamed, rules):
        wanted = by_name.pop(column.name, column)
        if column.type and not can_widen(lake_type(column.type), wanted.lake_type):
            raise _refused(table, [f"{column.name}: the mirror has {column.type}, declared is {wanted.type}"])
        merged.append(wanted)
    return as_stored((*merged, *by_name.values()), rules)


def with_file_columns(
    table: TableId, columns: Sequence[Column], summaries: Iterable[FileSummary], settings: TableSettings
) -> tuple[Column, ...]:
    """Evolve columns so that every file fits.

    Raises:
        SchemaError: some file differs in a way that is not safe, or at all where the schema is strict.
    """
    rules = rules_of(settings)
    merged = {column.name: column for column in as_read(columns, rules)}
    differences: list[str] = []
    mismatched = [summary for summary in summaries if summary.mismatch]
    for summary in mismatched:
        if settings.is_strict:
            declared = of_files(settings.columns, rules) if settings.columns else merged.values()
            differences += _strict_differences(summary, declared, rules)
        else:
            differences += _merge_file(summary, merged, settings)
    evolved = as_stored(merged.values(), rules)
    if mismatched and not differences and evolved == tuple(columns):
        # A file that yielded no rows must change the schema or stop the table; it must never be skipped.
        differences = [
            f"{summary.path}: columns {summary.columns} do not fit {format_ddl(evolved)}" for summary in mismatched
        ]
    if differences:
        raise _refused(table, differences)
    return evolved


def describe_changes(before: Sequence[Column], after: Sequence[Column], renames: Mapping[str, str]) -> tuple[str, ...]:
    """Return descriptions of the schema changes, for plan and report."""
    had = {column.name: column.lake_type for column in before}
    changes: list[str] = []
    for column in after:
        old = next((name for name, new in renames.items() if new == column.name and name in had), None)
        if column.name not in had and old is not None:
            changes.append(f"rename {old} to {column.name}")
        elif column.name not in had:
            changes.append(f"add {column.name} {column.lake_type}")
        elif had[column.name] != column.lake_type:
            changes.append(f"widen {column.name} from {had[column.name]} to {column.lake_type}")
    return tuple(changes)


def require_usable(
    table: TableId, columns: Sequence[Column], settings: TableSettings, mirror: Sequence[Column] = ()
) -> None:
    """Refuse settings that do not fit the table's columns, and names that a column of the lake cannot have."""
    require_names(table, columns, settings, mirror)
    if problem := next(settings_problems(columns, settings), None):
        msg = f"{table}: {problem.message}"
        raise ConfigurationError(msg, hint=f"lakeward tables check {table}")


def require_names(
    table: TableId, columns: Sequence[Column], settings: TableSettings, mirror: Sequence[Column] = ()
) -> None:
    """Refuse column names with which the mirror could be written but not read; those of ``mirror`` exist already.

    Raises:
        ConfigurationError: some column needs another name.
    """
    present = [column.name for column in mirror]
    problems = name_problems([column.name for column in columns], present)
    if not problems:
        return
    msg = f"{table} cannot have these columns in the lake: {describe_problems(problems)}"
    raise ConfigurationError(msg, hint=_renames_hint(table, problems, settings))


def require_readable_names(table: TableId, mirror: Sequence[Column], settings: TableSettings) -> None:
    """Refuse a mirror that cannot be read because of its columns' names; earlier versions could write one.

    Raises:
        ConfigurationError: some column needs another name.
    """
    names = [column.name for column in mirror]
    problems = name_problems(names, names)
    if problems:
        msg = f"{table}: its mirror has columns that readers cannot read: {describe_problems(problems)}"
        hint = f"{_renames_hint(table, problems, settings)}; then: lakeward tables repair {quote(str(table))}"
        raise ConfigurationError(msg, hint=hint)


def _renames_hint(table: TableId, problems: Sequence[NameProblem], settings: TableSettings) -> str:
    """Return the setting that renames the columns to valid names."""
    command = quote(f"renames={renames_for(problems, settings.renames)}")
    hint = f"lakeward tables set {quote(str(table))} --set {command}, or the same as renames: in lakeward.yaml"
    twins = [problem for problem in problems if problem.twin is not None]
    if twins:
        hint += f" ({twins[0].name}: {twins[0].twin} where both are one column in two spellings)"
    return f"{hint}; a declared schema: has the new names"


def _merge_file(summary: FileSummary, merged: dict[str, Column], settings: TableSettings) -> list[str]:
    """Merge a file's columns into ``merged``; return the differences that do not fit."""
    differences, rules = [], rules_of(settings)
    # Whoever has decided on some columns has not decided on one that nobody has seen yet.
    is_closed = bool(rules) and settings.schema_mode is None
    for name, file_type in _file_columns(summary, rules):
        if not file_type:
            if name not in merged:
                differences.append(f"{summary.path}: column {name} is not declared, and CSV has no types")
            continue
        stored = lake_type(file_type)
        if is_closed and name not in merged and name not in rules:
            differences.append(f"{summary.path}: column {name} is new, and the table has a column policy: {_DECIDE}")
        elif name not in merged or not merged[name].type or _widens(merged[name].lake_type, stored):
            merged[name] = Column(name, stored)
        elif not fits_type(stored, merged[name].lake_type):
            differences.append(f"{summary.path}: column {name} is {file_type}, the table has {merged[name].type}")
    return differences


def _file_columns(summary: FileSummary, rules: Rules) -> list[tuple[str, str]]:
    """Return names and types of a file's columns that have a place in the lake."""
    found = of_files((Column(name, file_type) for name, file_type in summary.columns or ()), rules)
    return [(column.name, column.type) for column in found]


def _strict_differences(summary: FileSummary, columns: Iterable[Column], rules: Rules) -> list[str]:
    found = dict(_file_columns(summary, rules))
    wanted = {column.name: column.lake_type for column in columns}
    differences = [f"{summary.path}: column {name} is not declared" for name in found if name not in wanted]
    differences += [f"{summary.path}: declared column {name} is missing" for name in wanted if name not in found]
    differences += [
        f"{summary.path}: column {name} is {found[name]}, declared is {wanted[name]}"
        for name in wanted
        if found.get(name) and not fits_type(lake_type(found[name]), wanted[name])
    ]
    return differences


def _widens(table_type: str, file_type: str) -> bool:
    return table_type != file_type and can_widen(table_type, file_type)


def _refused(table: TableId, differences: Sequence[str]) -> SchemaError:
    shown = "\n  ".join(differences[:20])
    more = f"\n  … and {len(differences) - 20} more" if len(differences) > 20 else ""
    msg = f"{table}: the files' schema does not fit the table:\n  {shown}{more}"
    hint = "declare the schema in lakeward.yaml (schema:, renames:, schema_mode: evolve), or reload under a new table"
    return SchemaError(msg, hint=hint)
