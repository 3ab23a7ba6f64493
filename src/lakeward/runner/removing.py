"""Removing a table: from the registry and the configuration file, and on request everything that is kept of it.

Only what Lakeward can prove to be its own is removed: Iceberg tables with its first snapshot, versions by their
manifests. Every step can be repeated, so that an interrupted removal is finished by the same command.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.config.editing import declared_lines, read_text_exactly, require_valid, without_table, write_text_in_place
from lakeward.documents import Document
from lakeward.errors import ConfigurationError
from lakeward.iceberg.cleanup import drop_table, empty_table, is_catalog_file, is_iceberg_file, is_table_metadata
from lakeward.iceberg.define import LOGGED_STAMP, history_of, is_complete
from lakeward.iceberg.metadata import EMPTY_TAG, MAIN
from lakeward.logs import event
from lakeward.mirror.op.erased import erased_keys
from lakeward.mirror.op.isolation import settle_resets
from lakeward.mirror.op.marks import REMOVED_PROPERTY, RemovalMark, renaming, require_no_mark
from lakeward.mirror.op.steps import Step
from lakeward.runner.declaring import heading_of
from lakeward.runner.tables import KnownTable, is_landed, known_tables, require_table, settings_for
from lakeward.session.catalog import CatalogKind, catalog_kind
from lakeward.storage.filesystem import open_filesystem
from lakeward.text import listed
from lakeward.views.versions.current import withdraw_current
from lakeward.views.versions.folders import publishing
from lakeward.views.versions.manifest import PublicationKind, list_publications
from lakeward.views.versions.tags import remove_versions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from lakeward.config import Config
    from lakeward.iceberg.metadata import TableMetadata
    from lakeward.iceberg.table import IcebergTable
    from lakeward.mirror.op.context import TableContext
    from lakeward.model import TableId
    from lakeward.runner.workbench import Workbench
    from lakeward.storage.filesystem import FileSystem
    from lakeward.views.versions.manifest import Publication

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StoredTable(Document):
    """An Iceberg table of a table: ``role`` is ``mirror``, ``changelog`` or ``history``.

    ``rows``, ``files`` and ``size`` in bytes are those of its newest snapshot; ``tags`` are names that users gave, and
    those of states that an undo or a reset left.
    """

    role: str
    name: str
    location: str
    rows: int
    files: int
    size: int
    snapshots: int
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class StoredVersion(Document):
    """A version that was published as files; ``registered`` is an external table that points to it."""

    kind: str
    version: str
    location: str
    rows: int
    registered: str = ""


@dataclass(frozen=True)
class RemovalPlan(Document):
    """What a removal would do.

    ``file`` is the configuration file from which ``lines``, from number ``first_line`` on, would be removed.
    ``registered``: the table is in the registry. ``returns``: its folder is in landing, so that discovery would
    register it again, as inactive. ``tables`` and ``versions`` are what the lake keeps of it, which ``drop_data``
    would remove. ``ops`` is the number of its newest op. ``erased_keys`` counts keys that were erased, which only the
    changelog knows.
    """

    table: str
    drop_data: bool
    registered: bool
    returns: bool
    file: str | None = None
    first_line: int | None = None
    lines: tuple[str, ...] = ()
    tables: tuple[StoredTable, ...] = ()
    versions: tuple[StoredVersion, ...] = ()
    ops: int = 0
    erased_keys: int = 0


@dataclass(frozen=True)
class TableRemoval(Document):
    """The result of a removal. ``left`` are files and folders that stayed because they are not Lakeward's."""

    plan: RemovalPlan
    left: tuple[str, ...] = ()


def plan_removal(bench: Workbench, table: TableId, *, drop_data: bool) -> RemovalPlan:
    """Return what a removal would do; nothing is changed.

    Raises:
        ConfigurationError: there is no such table, or it cannot be removed.
    """
    known = _known(bench, table)
    return _planned(bench, known, bench.context(known), drop_data=drop_data)


def remove_table(bench: Workbench, table: TableId, *, drop_data: bool) -> TableRemoval:
    """Remove a table, with ``drop_data`` everything that is kept of it too.

    Raises:
        ConfigurationError: there is no such table, or it cannot be removed; nothing was changed.
        LeaseHeldError: another writer holds the table.
    """
    known = _known(bench, table)
    with bench.leased(known) as context:
        if drop_data:
            settle_resets(context)
        plan = _planned(bench, known, context, drop_data=drop_data)
        if is_complete(context.mirror):
            # First: from now on nothing brings the table back by itself.
            context.mirror.set_properties(
                {REMOVED_PROPERTY: RemovalMark.DATA if drop_data else RemovalMark.REGISTRATION}
            )
            context.reached(Step.REMOVE_MARKED)
        if plan.file is not None:
            _remove_declaration(bench.config, table)
        context.state.unregister(table)
        context.reached(Step.REMOVE_UNREGISTERED)
        left: tuple[str, ...] = ()
        if drop_data:
            # Nobody publishes a version that nothing would know of.
            with publishing(context):
                left = tuple(_drop_data(context))
        context.state.forget_ledger(table)
    return TableRemoval(plan, left)


def _known(bench: Workbench, table: TableId) -> KnownTable:
    """Return a table that is declared or registered, or of which the lake still has something."""
    tables = known_tables(bench.config, bench.state)
    for known in tables:
        if known.table == table:
            return known
    forgotten = KnownTable(table, settings_for(bench.config, table, {}), active=False, declared=False)
    context = bench.context(forgotten)
    return forgotten if any(stored.exists() for _, stored in stored_tables(context)) else require_table(tables, table)


def stored_tables(context: TableContext) -> Iterator[tuple[str, IcebergTable]]:
    """Yield the Iceberg tables of a table with their roles; the mirror is last, because it has the mark."""
    yield "history", history_of(context.spark, context.table)
    yield "changelog", context.changelog
    yield "mirror", context.mirror


def _planned(bench: Workbench, known: KnownTable, context: TableContext, *, drop_data: bool) -> RemovalPlan:
    found = {role: (table, table.find_metadata()) for role, table in stored_tables(context)}
    mirror, changelog = found["mirror"][1], found["changelog"][1]
    _require_removable(context, found, drop_data=drop_data)
    file, heading = bench.config.file, heading_of(str(known.table))
    lines = None
    if known.declared:
        _without_declaration(bench.config, known.table)
        lines = declared_lines(read_text_exactly(_file(bench.config)), str(known.table), str(file), heading=heading)
    head = changelog.head() if changelog else None
    erased = erased_keys(changelog)
    return RemovalPlan(
        table=str(known.table),
        drop_data=drop_data,
        registered=known.registered,
        returns=is_landed(context.storage, known.table),
        file=str(file) if lines else None,
        first_line=lines.first if lines else None,
        lines=lines.lines if lines else (),
        tables=tuple(_stored(role, table, metadata) for role, (table, metadata) in found.items() if metadata),
        versions=stored_versions(mirror),
        ops=int(changelog.stamp_at(LOGGED_STAMP, head.id) or 0) if changelog and head else 0,
        erased_keys=len(erased.times) if erased else 0,
    )


def _file(config: Config) -> Path:
    if config.file is None:
        msg = "the table is declared in settings that come from no file"
        raise ConfigurationError(msg, hint="remove it from the settings that the lake is opened with")
    return config.file


def _require_removable(
    context: TableContext, found: Mapping[str, tuple[IcebergTable, TableMetadata | None]], *, drop_data: bool
) -> None:
    """Refuse a table that is being renamed, and data that nothing shows to be Lakeward's."""
    for table, metadata in found.values():
        if metadata is None:
            continue
        if names := renaming(metadata):
            msg = f"{names[0]} is being renamed to {names[1]}, and that is not finished"
            raise ConfigurationError(msg, hint=f"lakeward tables rename {names[0]} {names[1]}")
        if drop_data and not is_complete(table):
            msg = f"{table.identifier} has no snapshot that shows that Lakeward made it; nothing was removed"
            raise ConfigurationError(msg, hint="look at it, and drop it with another program if it is yours")
    if not drop_data:
        require_no_mark(context, *(metadata for _, metadata in found.values()))


def _stored(role: str, table: IcebergTable, metadata: TableMetadata) -> StoredTable:
    head = metadata.head(MAIN)
    summary = head.summary if head else {}
    return StoredTable(
        role=role,
        name=f"{table.namespace}.{table.name}",
        location=str(metadata.java.location()),
        rows=head.rows if head else 0,
        files=int(summary.get("total-data-files", 0)) + int(summary.get("total-delete-files", 0)),
        size=int(summary.get("total-files-size", 0)),
        snapshots=metadata.snapshot_count(),
        tags=tuple(tag for tag in sorted(metadata.tags()) if tag != EMPTY_TAG),
    )


def stored_versions(mirror: TableMetadata | None) -> tuple[StoredVersion, ...]:
    """Return the versions of a table that were published as files."""
    made = _folders(mirror)
    return tuple(StoredVersion(each.kind, each.version, each.location, each.rows, each.registered) for each in made)


def _folders(mirror: TableMetadata | None) -> list[Publication]:
    return [made for made in list_publications(mirror) if made.kind is not PublicationKind.TAG] if mirror else []


def _remove_declaration(config: Config, table: TableId) -> None:
    write_text_in_place(_file(config), *_without_declaration(config, table))


def _without_declaration(config: Config, table: TableId) -> tuple[str, str]:
    """Return the text of the configuration file, and what it will be without a table.

    Raises:
        ConfigurationError: the table cannot be removed from it.
    """
    file = _file(config)
    text = read_text_exactly(file)
    changed = without_table(text, str(table), str(file), heading=heading_of(str(table)))
    require_valid(changed, file)
    return text, changed


# --- data -----------------------------------------------------------------------------------------------------------


def _drop_data(context: TableContext) -> Iterator[str]:
    """Remove versions, then the Iceberg tables; yield what stays because it is not Lakeward's."""
    yield from _drop_versions(context)
    is_hadoop = catalog_kind(context.config) is CatalogKind.HADOOP
    for _, table in stored_tables(context):
        metadata = table.find_metadata()
        if metadata is None:
            continue
        location, own_id = str(metadata.java.location()), str(metadata.java.uuid())
        context.permission.require()
        empty_table(table)
        context.reached(Step.REMOVE_EMPTIED)
        store = open_filesystem(context.spark, context.config, location)
        if is_hadoop:
            _require_alone(table, store, location)
        context.permission.require()
        drop_table(table, removes_files=is_hadoop)
        context.reached(Step.REMOVE_DROPPED)
        yield from _remove_rest(store, location, own_id)


def _drop_versions(context: TableContext) -> list[str]:
    """Remove the folders of versions, and the pointers to current ones; return what stays in their places."""
    left: list[str] = []
    mirror = context.mirror.find_metadata()
    if mirror is None or not (made := _folders(mirror)):
        return left
    for version in filter(_is_current, made):
        withdraw_current(context, version, made)
    for version in made:
        left += _drop_version(context, version)
        context.reached(Step.REMOVE_VERSIONS)
    return left


def _drop_version(context: TableContext, version: Publication) -> list[str]:
    store = open_filesystem(context.spark, context.config, version.location)
    try:
        remove_versions(context, [version])
    except ConfigurationError as refused:
        # Something else is in its place now: it stays, and does not keep the rest from being removed.
        logger.warning("%s", refused.message, extra=event("removal.left", table=str(context.table)))
    return [f"{version.location}/{path}" for path in sorted(store.files(version.location))]


def _is_current(version: Publication) -> bool:
    return version.kind is PublicationKind.CURRENT


def _require_alone(table: IcebergTable, store: FileSystem, location: str) -> None:
    """Refuse to let a Hadoop catalog remove a folder that holds files of others: it removes all of it.

    Raises:
        ConfigurationError: there are such files; the table is empty by now.
    """
    paths = (f"{location}/{file.path}" for file in store.walk(location))
    others = [path for path in paths if not (is_iceberg_file(path, location) or is_catalog_file(path, location))]
    if others:
        msg = f"{table.identifier} is empty now, but its folder holds files that are not its own: {listed(others)}"
        hint = "move them elsewhere, and repeat the command: this catalog removes the folder with all its content"
        raise ConfigurationError(msg, hint=hint)


def _remove_rest(store: FileSystem, location: str, own_id: str) -> list[str]:
    """Remove what writers that died left in the folder of a dropped table; return the files that stay.

    Nothing is removed where the metadata of another table is in the folder.
    """
    rest = sorted(file.path for file in store.walk(location))
    own = [path for path in rest if is_iceberg_file(f"{location}/{path}", location)]
    tables = [path for path in own if is_table_metadata(f"{location}/{path}", location)]
    if any(own_id not in (store.read_text(f"{location}/{path}") or "") for path in tables):
        own = []
    store.remove(location, own)
    store.prune(location)
    return [f"{location}/{path}" for path in rest if path not in {*own}]
