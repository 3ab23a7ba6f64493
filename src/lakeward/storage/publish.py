"""Publishing a folder: it appears complete or not at all, and replaces a former one only when it is complete.

Where folders can be renamed, a folder is written under a hidden name beside its place and then renamed. Where they
cannot, its files are written in place, and the manifest and then the mark ``_SUCCESS`` are written last: readers take a
folder without the mark for unfinished.

Only files that :mod:`lakeward.storage.claims` proves to be a writer's own are removed. A publication that fails removes
what it wrote. What a killed process left is finished or removed by the next one, if :meth:`Claim.is_dead`: by
:func:`publish_folder` for the same folder, by :func:`tidy` for all under a lease.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from lakeward.errors import ConflictError, RefusedInputError
from lakeward.storage.claims import (
    GONE,
    MANIFEST,
    SET_ASIDE,
    STAGING,
    SUCCESS,
    Claim,
    claims,
    dead_claims,
    foreign_files,
    is_listed,
    listed_files,
    new_id,
    remove_listed,
    require_no_spark_job,
    shown,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lakeward.storage.filesystem import FileSystem

T = TypeVar("T")
_SHOWN = 5


class PublishHooks(Generic[T]):
    """Methods that are called in this order while a folder is published; ``T`` describes what was written.

    In place, :meth:`staged` and :meth:`set_aside` do not happen, and the manifest is written after :meth:`record`.
    """

    def written(self) -> None:
        """All files but the manifest are written."""

    def staged(self) -> None:
        """The folder is complete, under a hidden name."""

    def record(self, content: T) -> None:
        """Record the folder before it becomes visible; an error removes it."""

    def set_aside(self) -> None:
        """The former folder has left its place."""

    def moved(self) -> None:
        """The folder is in its place."""


def not_as_written(expected: Mapping[str, int], present: Mapping[str, int]) -> str | None:
    """Return which of the files in a manifest are missing or have another size; None where all are as written."""
    wrong = [path for path, size in sorted(expected.items()) if present.get(path) != size]
    if not wrong:
        return None
    some = ", ".join(wrong[:_SHOWN]) + (", …" if len(wrong) > _SHOWN else "")
    return f"{len(wrong)} of {len(expected)} files are missing or not as they were written: {some}"


def publish_folder(store: FileSystem, folder: str, write: Callable[[Claim], tuple[T, str]], *, lease: str = "") -> T:
    """Publish a new folder, and return the content that ``write`` returned with the text of the manifest.

    ``write`` fills the claim's folder by the claim's store. If anything fails, nothing is left that a reader would see.
    What a dead writer of the same folder left is removed; ``lease`` names the lease that the caller holds: earlier
    writers under it are then known to be dead.

    Raises:
        RefusedInputError: the folder exists already, or holds files that were not written by this program.
        ConflictError: another process is writing it.
    """
    require_absent(store, folder, lease=lease)
    publication = _FolderPublication(store, folder, write, PublishHooks(), lease, replace=False)
    return publication.by_renaming() if store.can_rename else publication.in_place()


def replace_folder(
    store: FileSystem, folder: str, write: Callable[[Claim], tuple[T, str]], hooks: PublishHooks[T], *, lease: str
) -> T:
    """Publish a folder as :func:`publish_folder` does, replacing a former one if there is one.

    The caller holds the lease, has called :func:`tidy`, and has proven that the former folder is its own. A crash at
    any point leaves the former folder or the new one; files of others in it stay there.

    Raises:
        RefusedInputError: another Spark job writes into the folder.
        ConflictError: another process has removed what was written.
    """
    publication = _FolderPublication(store, folder, write, hooks, lease, replace=True)
    return publication.by_renaming() if store.can_rename else publication.in_place()


def require_absent(store: FileSystem, folder: str, *, lease: str = "") -> None:
    """Refuse a folder that exists; where folders cannot be renamed, what a dead writer left is ignored.

    Raises:
        RefusedInputError: the folder exists already, or has files of others in it.
        ConflictError: another process is writing it.
    """
    if store.can_rename:
        if store.exists(folder):
            raise _exists(folder)
        return
    present = store.files(folder)
    if SUCCESS in present:
        raise _exists(folder)
    dead = dead_claims(store, folder, present, lease=lease)
    others = [path for path in present if not any(claim.owns(path) or path == claim.file for claim in dead)]
    if others:
        raise _not_ours(folder, others)


def _exists(folder: str) -> RefusedInputError:
    msg = f"{folder} exists already and is not overwritten"
    return RefusedInputError(msg, hint="name another folder, or remove this one first")


def _not_ours(folder: str, others: list[str]) -> RefusedInputError:
    msg = f"{folder} is not empty, and nothing shows that Lakeward wrote what is there: {shown(others)}"
    return RefusedInputError(msg, hint="name another folder; nothing there was touched")


@dataclass(frozen=True)
class _FolderPublication(Generic[T]):
    """The publication of one folder, by renaming or in place."""

    store: FileSystem
    folder: str
    write: Callable[[Claim], tuple[T, str]]
    hooks: PublishHooks[T]
    lease: str
    replace: bool

    def by_renaming(self) -> T:
        store, (parent, _, name) = self.store, self.folder.rpartition("/")
        if not self.replace:
            _take_back_staging(store, parent, name, self.lease)
        absent = _absent_parents(store, self.folder)
        staging = f"{parent}/{STAGING}{name}@{new_id()}"
        files = (MANIFEST, SUCCESS)
        claim = Claim.begin(store, staging, name=staging.rpartition("@")[2], files=files, lease=self.lease)
        aside = f"{parent}/{SET_ASIDE}{name}@{claim.id}"
        with self._claimed(claim, aside, absent):
            content, manifest = self._filled(claim)
            self._seal(claim, manifest)
            self.hooks.staged()
            self.hooks.record(content)
            self._set_former_aside(aside)
            store.move(staging, self.folder)
        self.hooks.moved()
        claim.end(self.folder)
        if self.replace:
            _remove_set_aside(store, aside, self.folder)
        return content

    def in_place(self) -> T:
        claim = Claim.begin(self.store, self.folder, files=self._named_beforehand(), lease=self.lease)
        with self._claimed(claim):
            if not self.replace:
                # Another writer may have claimed it at the same moment: then both stop.
                others = [path for path in self.store.files(self.folder) if path != claim.file]
                if others:
                    raise _not_ours(self.folder, others)
            content, manifest = self._filled(claim)
            self.hooks.record(content)
            self._seal(claim, manifest)
        self.hooks.moved()
        if self.replace:
            claim.withdraw(keep={MANIFEST, SUCCESS, *(listed_files(manifest) or ())})
        else:
            claim.end()
        return content

    def _named_beforehand(self) -> set[str]:
        """Return the files that the claim lists: those of the former folder too, whose manifest will be replaced."""
        if not self.replace:
            for dead in dead_claims(self.store, self.folder, self.store.files(self.folder), lease=self.lease):
                dead.withdraw()
            return {MANIFEST, SUCCESS}
        present = self.store.files(self.folder)
        require_no_spark_job(self.folder, present)
        listed = listed_files(self.store.read_text(f"{self.folder}/{MANIFEST}")) or {}
        former = {path for path, size in present.items() if is_listed(path, size, listed)}
        return former | ({MANIFEST, SUCCESS} - present.keys())

    def _filled(self, claim: Claim) -> tuple[T, str]:
        content, manifest = self.write(claim)
        if not claim.store.exists(f"{claim.folder}/{claim.file}"):
            msg = f"{claim.folder}: another process has removed what was written so far"
            raise ConflictError(msg, hint="try again when that one is done")
        self.hooks.written()
        return content, manifest

    def _seal(self, claim: Claim, manifest: str) -> None:
        claim.store.write_text(f"{claim.folder}/{MANIFEST}", manifest)
        claim.store.write_text(f"{claim.folder}/{SUCCESS}", "")

    def _set_former_aside(self, aside: str) -> None:
        if not self.replace:
            require_absent(self.store, self.folder)
        elif self.store.exists(self.folder):
            self.store.move(self.folder, aside)
            self.hooks.set_aside()

    @contextmanager
    def _claimed(self, claim: Claim, aside: str = "", parents: list[str] | None = None) -> Iterator[None]:
        """Return a context for the work under a claim; when it fails, the former state is restored."""
        try:
            yield
        except BaseException:
            self.take_back(claim, aside, parents or [])
            raise
        finally:
            claim.release()

    def take_back(self, claim: Claim, aside: str, parents: list[str]) -> None:
        """Restore a former folder that was set aside, and remove what was written and the folders made for it."""
        if aside and self.store.exists(aside) and not self.store.exists(self.folder):
            self.store.move(aside, self.folder)
        _withdraw_unfinished(claim)
        for parent in parents:
            if self.store.exists(parent) and not self.store.files(parent) and not self.store.folders(parent):
                self.store.prune(parent)


def _absent_parents(store: FileSystem, folder: str) -> list[str]:
    """Return the folders above a folder that do not exist yet, the innermost first."""
    absent = []
    parent = folder.rpartition("/")[0]
    while parent.rpartition("/")[0] and not parent.endswith(":/") and not store.exists(parent):
        absent.append(parent)
        parent = parent.rpartition("/")[0]
    return absent


def tidy(store: FileSystem, folder: str, *, lease: str) -> None:
    """Finish or remove what dead writers left of a folder, and of all folders beside it.

    The caller holds the lease under which all of them are published.
    """
    if not store.can_rename:
        for claim in claims(store, folder, store.files(folder)):
            if claim.is_dead(lease):
                _withdraw_unfinished(claim)
        return
    parent = folder.rpartition("/")[0]
    names = store.folders(parent)
    for aside in (name for name in names if name.startswith(SET_ASIDE)):
        _finish_replacement(store, parent, aside, names)
    for claim in claims(store, folder, store.files(folder)):
        if claim.is_dead(lease):
            # Its folder was renamed to this one, and the process ended before it removed the claim.
            claim.end()
    _take_back_staging(store, parent, "", lease)
    for name in names:
        if name.startswith(GONE):
            remove_listed(store, f"{parent}/{name}", store.read_text(f"{parent}/{name}/{MANIFEST}"))


def _take_back_staging(store: FileSystem, parent: str, name: str, lease: str) -> None:
    """Remove what dead writers left beside a folder; without a name, what they left for any folder."""
    begin = f"{STAGING}{name}@" if name else STAGING
    for hidden in store.folders(parent):
        if not hidden.startswith(begin):
            continue
        staging = f"{parent}/{hidden}"
        for claim in claims(store, staging, store.files(staging)):
            if claim.is_own_folder and claim.is_dead(lease):
                claim.withdraw()


def _withdraw_unfinished(claim: Claim) -> None:
    """Remove what was written under a claim, except the files of a complete folder."""
    store, folder = claim.store, claim.folder
    listed = None
    if not claim.is_own_folder and store.exists(f"{folder}/{SUCCESS}"):
        listed = listed_files(store.read_text(f"{folder}/{MANIFEST}"))
    claim.withdraw(keep=() if listed is None else {MANIFEST, SUCCESS, *listed})


def _finish_replacement(store: FileSystem, parent: str, aside: str, names: list[str]) -> None:
    """Finish an interrupted replacement: move the new folder to its place or, if it is incomplete, the former one."""
    name, _, attempt = aside.removeprefix(SET_ASIDE).rpartition("@")
    staged = f"{STAGING}{name}@{attempt}"
    if listed_files(store.read_text(f"{parent}/{aside}/{MANIFEST}")) is None:
        return
    if name in names:
        _remove_set_aside(store, f"{parent}/{aside}", f"{parent}/{name}")
    elif staged in names and _is_complete(store, f"{parent}/{staged}"):
        store.move(f"{parent}/{staged}", f"{parent}/{name}")
        names.remove(staged)
        _remove_set_aside(store, f"{parent}/{aside}", f"{parent}/{name}")
    else:
        store.move(f"{parent}/{aside}", f"{parent}/{name}")


def _is_complete(store: FileSystem, folder: str) -> bool:
    return listed_files(store.read_text(f"{folder}/{MANIFEST}")) is not None and store.exists(f"{folder}/{SUCCESS}")


def _remove_set_aside(store: FileSystem, aside: str, folder: str) -> None:
    """Remove a replaced folder that was set aside; files of others are moved back to the folder."""
    manifest = store.read_text(f"{aside}/{MANIFEST}")
    for path in foreign_files(store, aside, manifest):
        if not store.exists(f"{folder}/{path}"):
            store.move(f"{aside}/{path}", f"{folder}/{path}")
    remove_listed(store, aside, manifest)
    store.prune(aside)


def remove_published(store: FileSystem, folder: str) -> list[str]:
    """Remove a published folder, for readers in one step; files of others in it stay and are returned."""
    parent, _, name = folder.rpartition("/")
    manifest, gone = store.read_text(f"{folder}/{MANIFEST}"), folder
    if store.can_rename and not foreign_files(store, folder, manifest):
        gone = f"{parent}/{GONE}{name}@{new_id()}"
        store.move(folder, gone)
    left = remove_listed(store, gone, manifest)
    if not left and store.can_rename:
        store.prune(gone)
    return left
