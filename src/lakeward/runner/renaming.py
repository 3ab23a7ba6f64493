"""Renaming a table: its Iceberg tables, its registration or declaration, and its runs; files stay where they are.

A catalog renames one Iceberg table at a time. All of them are marked with both names first and until the end: no op is
done in between, and the same command finishes what was interrupted.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakeward.config.editing import (
    declared_lines,
    read_text_exactly,
    require_valid,
    with_renamed_table,
    write_text_in_place,
)
from lakeward.documents import Document
from lakeward.errors import ConfigurationError
from lakeward.formats.dms.listing import table_folder
from lakeward.iceberg.define import SETTINGS_PROPERTY, rename_table
from lakeward.mirror.op.isolation import settle_resets
from lakeward.mirror.op.marks import REMOVED_PROPERTY, renaming, renaming_marks
from lakeward.mirror.op.settings import kept_settings
from lakeward.mirror.op.steps import Step
from lakeward.runner.removing import StoredVersion, stored_tables, stored_versions
from lakeward.runner.tables import KnownTable, known_tables, require_table, settings_for
from lakeward.session.catalog import CatalogKind, catalog_kind
from lakeward.views.versions.folders import publishing

if TYPE_CHECKING:
    from lakeward.config import Config
    from lakeward.iceberg.table import IcebergTable
    from lakeward.mirror.op.context import TableContext
    from lakeward.model import TableId
    from lakeward.runner.workbench import Workbench


@dataclass(frozen=True)
class RenamePlan(Document):
    """What a renaming would do.

    ``path`` is the folder under landing that the table is read from, before and after. ``tables`` maps the names of
    Iceberg tables to their new ones. ``file`` is the configuration file in which the table is declared, ``line`` the
    number of the line that names it, None where it is registered or was changed there already. ``versions`` stay in
    their folders under the former name. ``resumes``: a renaming that was interrupted is finished.
    """

    table: str
    name: str
    path: str
    tables: dict[str, str]
    file: str | None = None
    line: int | None = None
    versions: tuple[StoredVersion, ...] = ()
    resumes: bool = False


@dataclass(frozen=True)
class _Decision:
    """The table under both names, and the pairs of Iceberg tables that are still to be renamed."""

    plan: RenamePlan
    before: KnownTable
    after: KnownTable
    pairs: tuple[tuple[IcebergTable, IcebergTable], ...]


def plan_renaming(bench: Workbench, table: TableId, name: TableId) -> RenamePlan:
    """Return what a renaming would do; nothing is changed.

    Raises:
        ConfigurationError: there is no such table, or it cannot have this name.
    """
    return _decide(bench, table, name).plan


def rename(bench: Workbench, table: TableId, name: TableId) -> RenamePlan:
    """Rename a table, or finish a renaming that was interrupted; return what was done.

    Raises:
        ConfigurationError: there is no such table, or it cannot have this name; nothing was changed.
        LeaseHeldError: another writer holds the table.
    """
    decision = _decide(bench, table, name)
    with ExitStack() as stack:
        old, new = (stack.enter_context(bench.leased(known)) for known in (decision.before, decision.after))
        stack.enter_context(publishing(old))
        settle_resets(old)
        # What was decided without the leases may have changed.
        decision = _decide(bench, table, name)
        _mark(old, new, decision)
        _move(old, new, decision)
        for _, stored in stored_tables(new):
            if renaming(stored.find_metadata()):
                stored.set_properties(renaming_marks(None, None))
    return decision.plan


def _decide(bench: Workbench, table: TableId, name: TableId) -> _Decision:
    if catalog_kind(bench.config) is CatalogKind.HADOOP:
        msg = "a Hadoop catalog cannot rename tables: a table's name is that of its folder"
        raise ConfigurationError(msg)
    if table == name:
        msg = f"{table} has that name already"
        raise ConfigurationError(msg)
    tables = known_tables(bench.config, bench.state)
    known = {entry.table: entry for entry in tables}
    before = known.get(table) or KnownTable(table, settings_for(bench.config, table, {}), active=False, declared=False)
    old = bench.context(before)
    after = known.get(name) or replace(before, table=name)
    new = bench.context(after)
    resumes = _resumes(old, new, table, name)
    if table not in known and not resumes and not (after.declared and any(t.exists() for _, t in stored_tables(old))):
        before = require_table(tables, table)
    path = after.settings.path if name in known and after.settings.path else table_folder(table, before.settings)
    if not resumes:
        _require_free(known, before, name, path)
        _require_source_name(bench.config, table, path)
    pairs = tuple(_pairs(old, new, resumes=resumes))
    mirror = old.mirror.find_metadata() or new.mirror.find_metadata()
    plan = RenamePlan(
        table=str(table),
        name=str(name),
        path=path,
        tables={f"{a.namespace}.{a.name}": f"{b.namespace}.{b.name}" for a, b in pairs},
        file=str(bench.config.file) if before.declared else None,
        line=_line(bench, table, name, path) if before.declared else None,
        versions=stored_versions(mirror),
        resumes=resumes,
    )
    return _Decision(plan, before, after, pairs)


def _line(bench: Workbench, table: TableId, name: TableId, path: str) -> int:
    """Return the line that declares a table, after checking that it can be renamed there: nothing is changed before."""
    file = bench.config.file
    if file is None:
        msg = f"{table} is declared in settings that come from no file"
        raise ConfigurationError(msg, hint="rename it in the settings that the lake is opened with")
    text = read_text_exactly(file)
    require_valid(with_renamed_table(text, str(table), str(name), path, str(file)), file)
    return declared_lines(text, str(table), str(file)).first


def _resumes(old: TableContext, new: TableContext, table: TableId, name: TableId) -> bool:
    """Whether this renaming was begun before.

    Raises:
        ConfigurationError: another one was begun, or the table's data is being removed.
    """
    found = False
    for context in (old, new):
        for _, stored in stored_tables(context):
            metadata = stored.find_metadata()
            names = renaming(metadata)
            if names == (str(table), str(name)):
                found = True
            elif names is not None:
                msg = f"{names[0]} is being renamed to {names[1]}, and that is not finished"
                raise ConfigurationError(msg, hint=f"lakeward tables rename {names[0]} {names[1]}")
            elif metadata is not None and metadata.property(REMOVED_PROPERTY) is not None:
                msg = f"{context.table} was removed from the registry, or its data is being removed"
                hint = f"lakeward tables set {context.table} --activate and a run bring it back; or remove its data"
                raise ConfigurationError(msg, hint=hint)
    return found


def _require_free(known: dict[TableId, KnownTable], before: KnownTable, name: TableId, path: str) -> None:
    """Refuse a name that another table has; a declaration that was already renamed by hand is the same table."""
    taken = known.get(name)
    if taken is None:
        return
    if taken.declared and before.table not in known and table_folder(name, taken.settings) == path:
        return
    msg = f"there is a table {name} already"
    raise ConfigurationError(msg, hint="choose another name, or remove that table first: lakeward tables remove")


def _require_source_name(config: Config, table: TableId, path: str) -> None:
    """Refuse a table whose records in transaction files are found by its own name: under a new one, none would be."""
    if config.transactions and "/" not in path:
        msg = (
            f"{table} cannot be renamed: transactions: is set, and the table's path: {path} names one folder only, so "
            f"that its records in transaction files are found by the name {table}"
        )
        raise ConfigurationError(msg, hint=f"keep the name {table}")


def _pairs(old: TableContext, new: TableContext, *, resumes: bool) -> list[tuple[IcebergTable, IcebergTable]]:
    """Return the Iceberg tables that exist under the former name, each with its new name.

    Raises:
        ConfigurationError: the new name is taken in the lake.
    """
    pairs = []
    for (_, before), (_, after) in zip(stored_tables(old), stored_tables(new), strict=True):
        if before.exists():
            pairs.append((before, after))
        if after.exists() and (before.exists() or not resumes):
            msg = f"{after.identifier} exists already"
            raise ConfigurationError(msg, hint="choose another name")
    return pairs


def _mark(old: TableContext, new: TableContext, decision: _Decision) -> None:
    """Mark every Iceberg table of the table with both names, and store the folder that it is read from."""
    marks = renaming_marks(old.table, new.table)
    for context in (old, new):
        for role, stored in stored_tables(context):
            if not stored.exists():
                continue
            kept = kept_settings(stored) if role == "mirror" else None
            settings = {**(kept or {}), "path": decision.plan.path}
            own = {SETTINGS_PROPERTY: json.dumps(settings, sort_keys=True)} if kept is not None else {}
            stored.set_properties({**marks, **own})
    old.reached(Step.RENAME_MARKED)


def _move(old: TableContext, new: TableContext, decision: _Decision) -> None:
    """Rename the Iceberg tables, and before the last one, the mirror, the table in the file or the registry.

    At that moment an Iceberg table with the marks has each of the names, so that a run under either is refused. Were
    all of them renamed first, nothing would keep a run from building the table anew under the former name.
    """
    is_registered = False
    for before, after in decision.pairs:
        if after.identifier == new.mirror.identifier and new.changelog.exists():
            _register(old, new, decision)
            is_registered = True
        old.permission.require()
        rename_table(before, after)
        old.reached(Step.RENAME_MOVED)
    if not is_registered:
        _register(old, new, decision)


def _register(old: TableContext, new: TableContext, decision: _Decision) -> None:
    """Rename the table in the configuration file or the registry."""
    plan, state = decision.plan, old.state
    if decision.before.declared and old.config.file is not None:
        file = old.config.file
        text = read_text_exactly(file)
        changed = with_renamed_table(text, plan.table, plan.name, plan.path, str(file))
        require_valid(changed, file)
        write_text_in_place(file, text, changed)
    state.rename_table(old.table, new.table)
    if not (decision.before.declared or decision.after.declared):
        state.set_table(new.table, settings={"path": plan.path})
    for table in (old.table, new.table):
        state.forget_ledger(table)
    old.reached(Step.RENAME_REGISTERED)
