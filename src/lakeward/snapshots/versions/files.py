"""Version folders: they appear complete or not at all, and take each other's place only when the new one is whole.

Where folders can be renamed, a version is written beside its place and renamed into it. Where they cannot, its files
are written in place, and the manifest, written last, says which of them count. A version's record comes before it is
seen: whatever a crash leaves, no place that holds rows is unknown. Files of others in such a folder stay there: what
is removed is what :mod:`lakeward.lake.ownership` proves to be this program's.
"""

from __future__ import annotations

import logging
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.errors import ConfigurationError, DataError, LeaseHeldError
from lakeward.lake.folders import staging_folder, staging_id
from lakeward.lake.ownership import (
    GONE,
    SET_ASIDE,
    STAGING,
    Claim,
    claims,
    foreign_files,
    is_listed,
    listed_files,
    remove_listed,
    require_no_spark_job,
    shown,
)
from lakeward.logs import event
from lakeward.model import TableId
from lakeward.pipeline.steps import Step
from lakeward.snapshots.versions.manifest import MANIFEST, SUCCESS, read_manifest
from lakeward.state.leases import HeldLease, current_owner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakeward.lake.stores import Store
    from lakeward.pipeline.context import TableContext
    from lakeward.snapshots.versions.manifest import Manifest

logger = logging.getLogger(__name__)
VERSION_PREFIX = "version="
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

    @property
    def table(self) -> str:
        """The name of the table."""
        return self.root.rpartition("/")[2]

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
        _take_back(store, place.folder, place.table)
        return
    names = store.folders(root)
    for aside in (one for one in names if one.startswith(SET_ASIDE)):
        _finish_replacement(store, root, aside, names)
    for claim in claims(store, place.folder, store.files(place.folder)):
        # Its folder has become this one, and nobody was left to say that the work is done.
        claim.end()
    for name in names:
        if name.startswith(STAGING):
            _take_back(store, f"{root}/{name}", place.table)
        elif name.startswith(GONE):
            remove_listed(store, f"{root}/{name}", store.read_text(f"{root}/{name}/{MANIFEST}"))


def _take_back(store: Store, folder: str, table: str) -> None:
    """Remove what a dead publisher of a table wrote into a folder, but for what a complete manifest lists there."""
    manifest = complete_manifest(store, folder) if not folder.rpartition("/")[2].startswith(STAGING) else None
    keep = {MANIFEST, SUCCESS, *manifest.files} if manifest else set()
    for claim in claims(store, folder, store.files(folder)):
        # Who held the lease of this table is gone, or would not be asked here.
        if claim.lease == table or not claim.is_alive:
            claim.withdraw(keep=keep)


def _finish_replacement(store: Store, root: str, aside: str, names: list[str]) -> None:
    """Let the new version take the place that it was about to take, or the former one go back to it."""
    name, _, attempt = aside.removeprefix(SET_ASIDE).rpartition("@")
    staged = f"{STAGING}{name}@{attempt}"
    if listed_files(store.read_text(f"{root}/{aside}/{MANIFEST}")) is None:
        return
    if name in names:
        _let_go(store, f"{root}/{aside}", f"{root}/{name}")
    elif staged in names and complete_manifest(store, f"{root}/{staged}") is not None:
        store.move(f"{root}/{staged}", f"{root}/{name}")
        names.remove(staged)
        _let_go(store, f"{root}/{aside}", f"{root}/{name}")
    else:
        store.move(f"{root}/{aside}", f"{root}/{name}")


def _let_go(store: Store, aside: str, folder: str) -> None:
    """Remove a replaced version that was set aside; files of others go back to the folder in which they were put."""
    manifest = store.read_text(f"{aside}/{MANIFEST}")
    for path in foreign_files(store, aside, manifest):
        if not store.exists(f"{folder}/{path}"):
            store.move(f"{aside}/{path}", f"{folder}/{path}")
    remove_listed(store, aside, manifest)
    store.prune(aside)


def require_free(place: Place, *, replace: bool) -> None:
    """Refuse a version that is there already, unless it shall be replaced."""
    store, folder = place.store, place.folder
    # Stores without folders may list one that lost its last file.
    is_taken = store.exists(folder) if store.can_rename else bool(store.files(folder))
    if is_taken and not replace:
        msg = f"{place.folder} exists already; a version is never overwritten unasked"
        raise ConfigurationError(msg, hint="the same command with --replace")


def require_own(place: Place, mirror_uuid: str) -> None:
    """Refuse to replace or remove what is not a version of this table that this program wrote.

    Raises:
        ConfigurationError: files are there without a manifest of it.
    """
    store, folder = place.store, place.folder
    text, present = store.read_text(f"{folder}/{MANIFEST}"), store.files(folder)
    if text is None and not present:
        return
    hint = "look at it, and move it elsewhere or remove it by hand; nothing there was touched"
    if listed_files(text) is None:
        msg = f"{folder} has no readable {MANIFEST}: nothing shows that Lakeward wrote what is there: {shown(present)}"
        raise ConfigurationError(msg, hint=hint)
    found = read_manifest(text or "", folder)
    if (found.table, found.version, found.lineage.mirror_uuid) != (place.table, place.version, mirror_uuid):
        of = f"version {found.version} of {found.table}, made from the table {found.lineage.mirror_uuid}"
        msg = f"{folder} holds {of}; expected version {place.version} of {place.table}, made from {mirror_uuid}"
        raise ConfigurationError(msg, hint=hint)


def put_in_place(
    context: TableContext,
    place: Place,
    mirror_uuid: str,
    write: Callable[[Claim], Manifest],
    record: Callable[[Manifest], None],
) -> Manifest:
    """Write a version, record it and let it take its place; ``write`` fills the claim's folder by the claim's store.

    A crash at any point leaves the former version or the new one; :func:`tidy` does the rest.

    Raises:
        ConfigurationError: what is in its place is no version of this table.
    """
    require_own(place, mirror_uuid)
    way = _by_renaming if place.store.can_rename else _by_manifest
    try:
        return way(context, place, write, record)
    except DataError:
        # It is refused and may never be tried again: files of a whole table would lie there for ever.
        tidy(place)
        raise


def _by_renaming(
    context: TableContext, place: Place, write: Callable[[Claim], Manifest], record: Callable[[Manifest], None]
) -> Manifest:
    store, staging = place.store, staging_folder(place.folder)
    files = (MANIFEST, SUCCESS)
    with _claimed(Claim.begin(store, staging, name=staging_id(staging), files=files, lease=place.table)) as claim:
        manifest = write(claim)
        context.reached(Step.PUBLISH_WRITTEN)
        store.write_text(f"{staging}/{MANIFEST}", manifest.to_json())
        store.write_text(f"{staging}/{SUCCESS}", "")
        context.reached(Step.PUBLISH_STAGED)
        record(manifest)
        context.reached(Step.PUBLISH_RECORDED)
        aside = f"{place.root}/{SET_ASIDE}{place.name}@{claim.id}"
        if store.exists(place.folder):
            store.move(place.folder, aside)
            context.reached(Step.PUBLISH_ASIDE)
        store.move(staging, place.folder)
        context.reached(Step.PUBLISH_MOVED)
        claim.end(place.folder)
        _let_go(store, aside, place.folder)
    return manifest


def _by_manifest(
    context: TableContext, place: Place, write: Callable[[Claim], Manifest], record: Callable[[Manifest], None]
) -> Manifest:
    store, folder = place.store, place.folder
    present, listed = store.files(folder), listed_files(store.read_text(f"{folder}/{MANIFEST}")) or {}
    require_no_spark_job(folder, present)
    # Named by the claim, as its own manifest will be gone when they are removed.
    former = {path for path, size in present.items() if is_listed(path, size, listed)}
    former |= {MANIFEST, SUCCESS} - present.keys()
    with _claimed(Claim.begin(store, folder, files=former, lease=place.table)) as claim:
        manifest = write(claim)
        context.reached(Step.PUBLISH_WRITTEN)
        record(manifest)
        context.reached(Step.PUBLISH_RECORDED)
        store.write_text(f"{folder}/{MANIFEST}", manifest.to_json())
        store.write_text(f"{folder}/{SUCCESS}", "")
        context.reached(Step.PUBLISH_MOVED)
        claim.withdraw(keep={MANIFEST, SUCCESS, *manifest.files})
    return manifest


@contextmanager
def _claimed(claim: Claim) -> Iterator[Claim]:
    """Be at work on a claim; what a failure leaves is the next publisher's to tidy."""
    try:
        yield claim
    finally:
        claim.release()


def remove_folder(place: Place, mirror_uuid: str) -> None:
    """Remove a version, but for files of others in its folder: it is gone for readers at once.

    Raises:
        ConfigurationError: what is there is no version of this table.
    """
    store = place.store
    require_own(place, mirror_uuid)
    if not store.exists(place.folder):
        return
    manifest, gone = store.read_text(f"{place.folder}/{MANIFEST}"), place.folder
    if store.can_rename and not foreign_files(store, place.folder, manifest):
        gone = f"{place.root}/{GONE}{place.name}@{uuid.uuid4().hex[:12]}"
        store.move(place.folder, gone)
    if left := remove_listed(store, gone, manifest):
        told = "%s was dropped; files there that it does not list were left: %s"
        logger.warning(told, gone, shown(left), extra=event("snapshot.left"))
    elif store.can_rename:
        store.prune(gone)
