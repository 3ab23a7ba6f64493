"""A folder that appears complete or not at all.

Where folders can be renamed, it is written beside its place under a hidden name and renamed into it. Where they
cannot, its files are written in place, and the manifest and then the mark ``_SUCCESS`` come last: readers take a
folder without the mark for unfinished. What is removed on the way is only what :mod:`lakeward.lake.ownership` proves
to be a writer's own.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakeward.errors import ConflictError, RefusedInputError
from lakeward.lake.ownership import (
    MANIFEST,
    STAGING,
    SUCCESS,
    Claim,
    claims,
    dead_claims,
    new_id,
    shown,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lakeward.lake.stores import Store

__all__ = ["MANIFEST", "SUCCESS", "appear", "not_as_written", "own_version", "require_absent"]
_SHOWN = 5


def own_version() -> str:
    """Give the version of the package for manifests; it is loaded, and for types it imports layers above this one."""
    return str(sys.modules["lakeward"].__version__)


def not_as_written(expected: Mapping[str, int], present: Mapping[str, int]) -> str | None:
    """Say which files that a manifest lists are missing or have another size; None where all are as written."""
    wrong = [path for path, size in sorted(expected.items()) if present.get(path) != size]
    if not wrong:
        return None
    shown = ", ".join(wrong[:_SHOWN]) + (", …" if len(wrong) > _SHOWN else "")
    return f"{len(wrong)} of {len(expected)} files are missing or not as they were written: {shown}"


def appear(store: Store, folder: str, write: Callable[[Claim], str], *, lease: str = "") -> None:
    """Let a folder appear: ``write`` fills the claim's folder by the claim's store and returns the manifest's text.

    Whatever fails, nothing is left that a reader would see. What a dead writer of the same folder left is removed;
    ``lease`` names what the caller holds a lease of: earlier writers under it are then known to be dead.

    Raises:
        RefusedInputError: the folder exists already, or holds files that were not written by this program.
        ConflictError: another process is writing it.
    """
    require_absent(store, folder, lease=lease)
    if store.can_rename:
        _by_renaming(store, folder, write, lease)
    else:
        _in_place(store, folder, write, lease)


def require_absent(store: Store, folder: str, *, lease: str = "") -> None:
    """Refuse a folder that is there; where folders cannot be renamed, what a dead writer left does not count.

    Raises:
        RefusedInputError: the folder exists already, or files of others lie in it.
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
    others = [path for path in present if not any(one.owns(path) or path == one.file for one in dead)]
    if others:
        raise _not_ours(folder, others)


def _exists(folder: str) -> RefusedInputError:
    msg = f"{folder} exists already and is not overwritten"
    return RefusedInputError(msg, hint="name another folder, or remove this one first")


def _not_ours(folder: str, others: list[str]) -> RefusedInputError:
    msg = f"{folder} is not empty, and nothing shows that Lakeward wrote what is there: {shown(others)}"
    return RefusedInputError(msg, hint="name another folder; nothing there was touched")


def _by_renaming(store: Store, folder: str, write: Callable[[Claim], str], lease: str) -> None:
    parent, _, name = folder.rpartition("/")
    remove_staging(store, parent, name, lease=lease)
    absent = _absent_parents(store, folder)
    with _claimed(store, staging_folder(folder), absent, lease) as claim:
        _fill(claim, write)
        require_absent(store, folder)
        store.move(claim.folder, folder)
        claim.end(folder)


def _in_place(store: Store, folder: str, write: Callable[[Claim], str], lease: str) -> None:
    for dead in dead_claims(store, folder, store.files(folder), lease=lease):
        dead.withdraw()
    with _claimed(store, folder, [], lease) as claim:
        # Another writer may have claimed it at the same moment: then neither goes on.
        others = [path for path in store.files(folder) if path != claim.file]
        if others:
            raise _not_ours(folder, others)
        _fill(claim, write)
        claim.end()


def _fill(claim: Claim, write: Callable[[Claim], str]) -> None:
    manifest = write(claim)
    if not claim.store.exists(f"{claim.folder}/{claim.file}"):
        msg = f"{claim.folder}: another process has removed what was written so far"
        raise ConflictError(msg, hint="try again when that one is done")
    claim.store.write_text(f"{claim.folder}/{MANIFEST}", manifest)
    claim.store.write_text(f"{claim.folder}/{SUCCESS}", "")


@contextmanager
def _claimed(store: Store, folder: str, parents: list[str], lease: str) -> Iterator[Claim]:
    """Claim a folder; when the block fails, remove what was written, and the folders above that were made for it."""
    claim = Claim.begin(store, folder, name=staging_id(folder), files=(MANIFEST, SUCCESS), lease=lease)
    try:
        yield claim
    except BaseException:
        claim.withdraw()
        for parent in parents:
            if store.exists(parent) and not store.files(parent) and not store.folders(parent):
                store.prune(parent)
        raise
    finally:
        claim.release()


def _absent_parents(store: Store, folder: str) -> list[str]:
    """Return the folders above a folder that are not there yet, the innermost first."""
    absent = []
    parent = folder.rpartition("/")[0]
    while parent.rpartition("/")[0] and not parent.endswith(":/") and not store.exists(parent):
        absent.append(parent)
        parent = parent.rpartition("/")[0]
    return absent


def staging_folder(folder: str) -> str:
    """Return a new hidden folder in which a folder is written before it takes its place."""
    parent, _, name = folder.rpartition("/")
    return f"{parent}/{STAGING}{name}@{new_id()}"


def staging_id(folder: str) -> str | None:
    """Return the id of the writer in the name of a hidden folder; None where the folder is no such."""
    name = folder.rpartition("/")[2]
    return name.rpartition("@")[2] if name.startswith(STAGING) else None


def remove_staging(store: Store, parent: str, name: str, *, lease: str = "") -> None:
    """Remove what dead writers of a folder left beside it; files of others stay where they are."""
    for one in store.folders(parent):
        if not one.startswith(f"{STAGING}{name}@"):
            continue
        staging = f"{parent}/{one}"
        for claim in claims(store, staging, store.files(staging)):
            is_dead = not claim.is_alive or (lease and claim.lease == lease)
            if claim.is_own_folder and is_dead:
                claim.withdraw()
