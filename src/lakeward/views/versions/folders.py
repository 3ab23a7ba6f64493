"""The folders of a table's versions: where they are, who may publish them, and which may be replaced or removed.

Publishing a folder as a whole, and cleaning up after a publisher that died, is in :mod:`lakeward.storage.publish`. A
version is recorded before it becomes visible: whatever a crash leaves, every place that holds rows is known.
"""

from __future__ import annotations

import logging
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.errors import ConfigurationError, DataError, LeaseHeldError
from lakeward.logs import event
from lakeward.mirror.op.steps import Step
from lakeward.model import TableId
from lakeward.state.leases import HeldLease, current_owner
from lakeward.storage.claims import GONE, MANIFEST, SET_ASIDE, STAGING, SUCCESS, listed_files, shown
from lakeward.storage.filesystem import open_filesystem
from lakeward.storage.publish import PublishHooks, not_as_written, remove_published, replace_folder
from lakeward.storage.publish import tidy as tidy_folders
from lakeward.views.versions.layouts import read_files
from lakeward.views.versions.manifest import Manifest, read_manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from lakeward.config import Config
    from lakeward.mirror.op.context import TableContext
    from lakeward.storage.claims import Claim
    from lakeward.storage.filesystem import FileSystem


logger = logging.getLogger(__name__)
VERSION_PREFIX = "version="
# How long to wait for another command that publishes the same table.
_WAIT_SECONDS = 60.0


@dataclass(frozen=True)
class VersionPlace:
    """The place of one version of a table on a file system."""

    store: FileSystem
    root: str
    version: str

    @property
    def name(self) -> str:
        """The folder's own name."""
        return f"{VERSION_PREFIX}{self.version}"

    @property
    def folder(self) -> str:
        """The folder that readers see."""
        return f"{self.root}/{self.name}"

    @property
    def table(self) -> str:
        """The name of the table."""
        return self.root.rpartition("/")[2]

    def manifest(self) -> Manifest | None:
        """Return the manifest of the version, None where there is no complete one."""
        return complete_manifest(self.store, self.folder)


def table_root(to: str, table: TableId) -> str:
    """Return the folder of a table's versions below the folder of all tables."""
    return f"{to.rstrip('/')}/{table}"


def place_of(store: FileSystem, location: str) -> VersionPlace:
    """Return the place of a version by its folder."""
    root, _, name = location.rpartition("/")
    return VersionPlace(store, root, name.removeprefix(VERSION_PREFIX))


def complete_manifest(store: FileSystem, folder: str) -> Manifest | None:
    """Return a folder's manifest, None where it is missing or damaged or the version is not finished."""
    text = store.read_text(f"{folder}/{MANIFEST}")
    if text is None or not store.exists(f"{folder}/{SUCCESS}"):
        return None
    try:
        return read_manifest(text, folder)
    except DataError:
        return None


@contextmanager
def publishing(context: TableContext) -> Iterator[HeldLease]:
    """Hold the lease for publishing a table. Runs continue meanwhile: files are written from pinned snapshots.

    Under this lease, unfinished folders are those of a dead writer. A caller that also writes to the mirror takes the
    table's own lease, always before this one.

    Raises:
        LeaseHeldError: another command is publishing the table and did not finish in time.
    """
    owner, seconds = current_owner(f"publish-{uuid.uuid4().hex[:8]}"), context.config.lease_seconds
    name = TableId(context.table.schema, f"{context.table.name} (publishing)")
    lease = HeldLease(context.state, name, owner, seconds=seconds, wait=_WAIT_SECONDS)
    try:
        lease.__enter__()
    except LeaseHeldError as error:
        msg = f"{context.table}: another command publishes it: {error.message}"
        raise LeaseHeldError(msg, hint="try again when that one is done") from error
    try:
        yield lease
    finally:
        lease.__exit__(None, None, None)


def tidy(place: VersionPlace) -> None:
    """Finish or undo what a dead publisher left in a table's folder; the caller holds the publishing lease."""
    tidy_folders(place.store, place.folder, lease=place.table)


def unfinished_folders(place: VersionPlace) -> list[str]:
    """Return the hidden folders beside a version that hold files: what publishers left, or are writing now."""
    if not place.store.can_rename:
        return []
    hidden = [name for name in place.store.folders(place.root) if name.startswith((STAGING, SET_ASIDE, GONE))]
    return [f"{place.root}/{name}" for name in hidden if place.store.files(f"{place.root}/{name}")]


def table_uuid(context: TableContext) -> str:
    """Return the permanent id of the mirror: tables of two lakes may have one name."""
    return str(context.mirror.load().uuid())


def require_free(place: VersionPlace, *, replace: bool) -> None:
    """Refuse a version that exists already, unless it is to be replaced.

    Raises:
        ConfigurationError: it exists.
    """
    store, folder = place.store, place.folder
    # Object stores may still list a folder that lost its last file.
    is_taken = store.exists(folder) if store.can_rename else bool(store.files(folder))
    if is_taken and not replace:
        msg = f"{place.folder} exists already; a version is overwritten only on request"
        raise ConfigurationError(msg, hint="the same command with --replace")


def require_own(place: VersionPlace, mirror_uuid: str) -> None:
    """Refuse to replace or remove anything but a version of this table that Lakeward wrote.

    Raises:
        ConfigurationError: the folder holds files without such a manifest.
    """
    store, folder = place.store, place.folder
    text, present = store.read_text(f"{folder}/{MANIFEST}"), store.files(folder)
    if text is None and not present:
        return
    hint = "inspect it, and move it elsewhere or remove it by hand; nothing there was touched"
    if listed_files(text) is None:
        msg = f"{folder} has no readable {MANIFEST}: nothing shows that Lakeward wrote what is there: {shown(present)}"
        raise ConfigurationError(msg, hint=hint)
    found = read_manifest(text or "", folder)
    # The folder keeps the name that the table had when it was made: what does not change is the mirror's id.
    if (found.version, found.lineage.mirror_uuid) != (place.version, mirror_uuid):
        of = f"version {found.version} of {found.table}, made from the table {found.lineage.mirror_uuid}"
        msg = f"{folder} holds {of}; expected version {place.version} of {place.table}, made from {mirror_uuid}"
        raise ConfigurationError(msg, hint=hint)


class _VersionHooks(PublishHooks[Manifest]):
    """Hooks that report the steps of a version's publication, and record it."""

    def __init__(self, context: TableContext, record: Callable[[Manifest], None]) -> None:
        self._context, self._record = context, record

    def written(self) -> None:
        self._context.reached(Step.PUBLISH_WRITTEN)

    def staged(self) -> None:
        self._context.reached(Step.PUBLISH_STAGED)

    def record(self, content: Manifest) -> None:
        self._record(content)
        self._context.reached(Step.PUBLISH_RECORDED)

    def set_aside(self) -> None:
        self._context.reached(Step.PUBLISH_ASIDE)

    def moved(self) -> None:
        self._context.reached(Step.PUBLISH_MOVED)


def put_in_place(
    context: TableContext,
    place: VersionPlace,
    mirror_uuid: str,
    write: Callable[[Claim], Manifest],
    record: Callable[[Manifest], None],
) -> Manifest:
    """Write a version, record it and move it into place; ``write`` fills the claim's folder by the claim's store.

    A crash at any point leaves the former version or the new one; :func:`tidy` cleans up the rest.

    Raises:
        ConfigurationError: its place holds something other than a version of this table.
    """
    require_own(place, mirror_uuid)

    def described(claim: Claim) -> tuple[Manifest, str]:
        manifest = write(claim)
        return manifest, manifest.to_json()

    return replace_folder(place.store, place.folder, described, _VersionHooks(context, record), lease=place.table)


def remove_folder(place: VersionPlace, mirror_uuid: str) -> None:
    """Remove a version, except for foreign files in its folder; readers lose it immediately.

    Raises:
        ConfigurationError: the folder holds something other than a version of this table.
    """
    require_own(place, mirror_uuid)
    if place.store.exists(place.folder) and (left := remove_published(place.store, place.folder)):
        text = "%s was dropped; files there that it does not list were left: %s"
        logger.warning(text, place.folder, shown(left), extra=event("snapshot.left"))


# Reading a published version: exactly its files, or an error with the reason.


@dataclass(frozen=True)
class FoundVersion:
    """A complete version: its folder, its manifest and its file system."""

    store: FileSystem
    folder: str
    manifest: Manifest

    def read(self, spark: SparkSession) -> DataFrame:
        """Return its rows in the table's column order."""
        found = self.manifest
        return read_files(spark, self.store, self.folder, sorted(found.files), found.columns, found.shape)


def read_version(spark: SparkSession, config: Config, location: str) -> DataFrame:
    """Read the version in a folder.

    Raises:
        DataError: there is no complete version, or more than one below the folder.
    """
    return find_version(open_filesystem(spark, config, location), location).read(spark)


def find_version(store: FileSystem, location: str) -> FoundVersion:
    """Find the version in a folder and check its files against its manifest.

    Raises:
        DataError: the folder holds no version or several, or files are missing or have another size.
    """
    folder = _readable(store, location.rstrip("/"))
    text = store.read_text(f"{folder}/{MANIFEST}")
    if text is None:
        raise _no_version(store, location, folder)
    manifest = read_manifest(text, folder)
    present = store.files(folder)
    if SUCCESS not in present:
        msg = f"{folder} has no {SUCCESS}: it was not finished"
        raise DataError(msg, hint="lakeward snapshot create … --replace")
    if wrong := not_as_written(manifest.files, present):
        msg = f"{folder}: {wrong}"
        raise DataError(msg, hint=f"lakeward snapshot refresh {manifest.table} --version {manifest.version}")
    return FoundVersion(store, folder, manifest)


def _readable(store: FileSystem, folder: str) -> str:
    """Return the folder, or the former version that an interrupted replacement has set aside."""
    parent, _, name = folder.rpartition("/")
    if not name.startswith(VERSION_PREFIX) or not store.can_rename or store.exists(folder):
        return folder
    aside = [sibling for sibling in store.folders(parent) if sibling.startswith(f"{SET_ASIDE}{name}@")]
    return f"{parent}/{aside[0]}" if aside else folder


def _no_version(store: FileSystem, location: str, folder: str) -> DataError:
    """Return the error for a folder that is not a version; reading several versions as one would mix them."""
    below = [child for child in store.folders(folder) if not child.startswith((".", "_"))]
    versions = [child for child in below if child.startswith(VERSION_PREFIX)] or [
        f"{child}/{inner}" for child in below for inner in store.folders(f"{folder}/{child}") if VERSION_PREFIX in inner
    ]
    if versions:
        msg = f"{location} is not one version but holds {len(versions)}: {', '.join(versions[:20])}"
        return DataError(msg, hint=f"read {folder}/{versions[-1]}")
    if store.exists(folder):
        msg = f"{location} has no {MANIFEST}: it is not a version, only a part of one, or was not finished"
        return DataError(msg, hint="lakeward snapshot list")
    return DataError(f"there is nothing at {location}", hint="lakeward snapshot list")
