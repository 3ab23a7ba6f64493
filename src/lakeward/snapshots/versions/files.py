"""Version folders: they appear complete or not at all, and take each other's place only when the new one is whole.

Where folders can be renamed, a version is written beside its place and renamed into it. Where they cannot, its files
are written in place, and the manifest, written last, says which of them count. A version's record comes before it is
seen: whatever a crash leaves, no place that holds rows is unknown.
"""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.errors import ConfigurationError, DataError, LeaseHeldError
from lakeward.model import TableId
from lakeward.snapshots.versions.manifest import MANIFEST, SUCCESS, read_manifest
from lakeward.state.leases import HeldLease, current_owner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakeward.lake.stores import Store
    from lakeward.pipeline.context import TableContext
    from lakeward.snapshots.versions.manifest import Manifest

VERSION_PREFIX = "version="
# Lies in a folder that cannot be renamed while it is written: what is there is a writer's of Lakeward.
WRITING = "_writing"
STAGING, SET_ASIDE, GONE = ".staging-", ".replaced-", ".dropped-"
# Another command that publishes the same table is waited for this long.
_PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Place:
    """The place of one version of a table on a file system."""

    store: Store
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

    def manifest(self) -> Manifest | None:
        """Give the manifest of what is there, None where nothing complete is."""
        return complete_manifest(self.store, self.folder)


def table_root(to: str, table: TableId) -> str:
    """Give the folder of a table's versions below the folder that was named."""
    return f"{to.rstrip('/')}/{table}"


def place_of(store: Store, location: str) -> Place:
    """Give the place of a version by its folder."""
    root, _, name = location.rpartition("/")
    return Place(store, root, name.removeprefix(VERSION_PREFIX))


def complete_manifest(store: Store, folder: str) -> Manifest | None:
    """Give a folder's manifest, None where it is missing or damaged or the version was not finished."""
    text = store.read_text(f"{folder}/{MANIFEST}")
    if text is None or not store.exists(f"{folder}/{SUCCESS}"):
        return None
    try:
        return read_manifest(text, folder)
    except DataError:
        return None


@contextmanager
def publishing(context: TableContext) -> Iterator[HeldLease]:
    """Keep other publishers of the table out; runs go on meanwhile: files are written from pinned snapshots.

    What lies half done under a table's folders is then a dead writer's. The table's own lease is taken by those who
    write to the mirror, and always before this one.

    Raises:
        LeaseHeldError: another command has been publishing the table for as long as this one was willing to wait.
    """
    owner, seconds = current_owner(f"publish-{uuid.uuid4().hex[:8]}"), context.config.lease_seconds
    name = TableId(context.table.schema, f"{context.table.name} (publishing)")
    lease = HeldLease(context.state, name, owner, seconds=seconds, wait=_PATIENCE_SECONDS)
    try:
        lease.__enter__()
    except LeaseHeldError as error:
        msg = f"{context.table}: another command publishes it: {error.message}"
        raise LeaseHeldError(msg, hint="try again when that one is done") from error
    try:
        yield lease
    finally:
        lease.__exit__(None, None, None)


def tidy(place: Place) -> None:
    """Finish or take back what a dead publisher left in a table's folder; the caller holds the publishing lease."""
    store, root = place.store, place.root
    if not store.can_rename:
        _remove_unlisted(place)
        return
    names = store.folders(root)
    for aside in (one for one in names if one.startswith(SET_ASIDE)):
        _finish_replacement(store, root, aside, names)
    for name in names:
        if name.startswith((STAGING, GONE)):
            store.delete(f"{root}/{name}")


def _finish_replacement(store: Store, root: str, aside: str, names: list[str]) -> None:
    """Let the new version take the place that it was about to take, or the former one go back to it."""
    name, _, attempt = aside.removeprefix(SET_ASIDE).rpartition("@")
    staged = f"{STAGING}{name}@{attempt}"
    if name in names:
        store.delete(f"{root}/{aside}")
    elif staged in names and complete_manifest(store, f"{root}/{staged}") is not None:
        store.move(f"{root}/{staged}", f"{root}/{name}")
        names.remove(staged)
        store.delete(f"{root}/{aside}")
    else:
        store.move(f"{root}/{aside}", f"{root}/{name}")


def _remove_unlisted(place: Place) -> None:
    """Remove files of a version that its manifest does not list: a dead writer's, or the former version's.

    A folder without a complete manifest and without a writer's mark is somebody else's, or a version that was damaged.
    """
    manifest, present = place.manifest(), place.store.files(place.folder)
    if manifest is None and WRITING not in present:
        return
    kept = {MANIFEST, SUCCESS, *manifest.files} if manifest else set()
    # The mark goes last: this may be interrupted, too.
    for path in sorted(present.keys() - kept, key=lambda path: path == WRITING):
        place.store.delete(f"{place.folder}/{path}")


def require_free(place: Place, *, replace: bool) -> None:
    """Refuse a version that is there already, unless it shall be replaced."""
    if not replace and place.store.exists(place.folder):
        msg = f"{place.folder} exists already; a version is never overwritten unasked"
        raise ConfigurationError(msg, hint="the same command with --replace")


def put_in_place(
    context: TableContext,
    place: Place,
    write: Callable[[str], Manifest],
    record: Callable[[Manifest], None],
) -> Manifest:
    """Write a version, record it and let it take its place; ``write`` fills the folder it is given.

    A crash at any point leaves the former version or the new one; :func:`tidy` does the rest.
    """
    way = _by_renaming if place.store.can_rename else _by_manifest
    try:
        return way(context, place, write, record)
    except DataError:
        # It is refused and may never be tried again: files of a whole table would lie there for ever.
        tidy(place)
        raise


def _by_renaming(
    context: TableContext, place: Place, write: Callable[[str], Manifest], record: Callable[[Manifest], None]
) -> Manifest:
    store, attempt = place.store, uuid.uuid4().hex[:12]
    staging = f"{place.root}/{STAGING}{place.name}@{attempt}"
    manifest = write(staging)
    context.reached("publish.written")
    store.write_text(f"{staging}/{MANIFEST}", manifest.to_json())
    store.write_text(f"{staging}/{SUCCESS}", "")
    context.reached("publish.staged")
    record(manifest)
    context.reached("publish.recorded")
    aside = f"{place.root}/{SET_ASIDE}{place.name}@{attempt}"
    if store.exists(place.folder):
        store.move(place.folder, aside)
        context.reached("publish.aside")
    store.move(staging, place.folder)
    context.reached("publish.moved")
    store.delete(aside)
    return manifest


def _by_manifest(
    context: TableContext, place: Place, write: Callable[[str], Manifest], record: Callable[[Manifest], None]
) -> Manifest:
    store = place.store
    former = store.files(place.folder)
    store.write_text(f"{place.folder}/{WRITING}", "")
    manifest = write(place.folder)
    context.reached("publish.written")
    record(manifest)
    context.reached("publish.recorded")
    store.write_text(f"{place.folder}/{MANIFEST}", manifest.to_json())
    store.write_text(f"{place.folder}/{SUCCESS}", "")
    context.reached("publish.moved")
    for path in former.keys() - manifest.files.keys() - {MANIFEST, SUCCESS}:
        store.delete(f"{place.folder}/{path}")
    store.delete(f"{place.folder}/{WRITING}")
    return manifest


def data_files(store: Store, folder: str) -> dict[str, int]:
    """Give the data files of a folder with their sizes; hidden ones and Spark's own leavings are none."""
    return {path: size for path, size in store.files(folder).items() if not _is_hidden(path)}


def _is_hidden(path: str) -> bool:
    """Tell names that readers pass over; the folders of a column whose name begins so are no such."""
    return any(part.startswith((".", "_")) and "=" not in part for part in path.split("/"))


def remove_folder(place: Place) -> None:
    """Remove a version: it is gone for readers at once, or its manifest goes first."""
    store = place.store
    if store.can_rename and store.exists(place.folder):
        gone = f"{place.root}/{GONE}{place.name}@{uuid.uuid4().hex[:12]}"
        store.move(place.folder, gone)
        store.delete(gone)
        return
    store.delete(f"{place.folder}/{SUCCESS}")
    store.delete(f"{place.folder}/{MANIFEST}")
    store.delete(place.folder)
