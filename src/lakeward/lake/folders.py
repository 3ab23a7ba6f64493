"""A folder that appears complete or not at all.

Where folders can be renamed, it is written beside its place under a hidden name and renamed into it. Where they
cannot, its files are written in place, and the manifest and then the mark ``_SUCCESS`` come last: readers take a
folder without the mark for unfinished.
"""

from __future__ import annotations

import socket
import sys
import uuid
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import psutil

from lakeward.errors import RefusedInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lakeward.lake.stores import Store

MANIFEST = "_manifest.json"
SUCCESS = "_SUCCESS"
STAGING = ".staging-"
_SHOWN = 5
# The writer on another machine may be at work still; no folder takes longer than this.
_OTHERS_LIMIT = timedelta(days=1)
_STAMP = "%Y%m%dT%H%M%SZ"


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


def appear(store: Store, folder: str, write: Callable[[str], str]) -> None:
    """Let a folder appear: ``write`` fills the folder it is given and returns the manifest's text.

    Whatever fails, nothing is left that a reader would see. What a dead writer of the same folder left is removed.

    Raises:
        RefusedInputError: the folder exists already.
    """
    require_absent(store, folder)
    if store.can_rename:
        _by_renaming(store, folder, write)
    else:
        _in_place(store, folder, write)


def require_absent(store: Store, folder: str) -> None:
    """Refuse a folder that is there; where folders cannot be renamed, an unfinished one is none.

    Raises:
        RefusedInputError: the folder exists already.
    """
    taken = store.exists(folder) if store.can_rename else store.exists(f"{folder}/{SUCCESS}")
    if taken:
        msg = f"{folder} exists already and is not overwritten"
        raise RefusedInputError(msg, hint="name another folder, or remove this one first")


def _by_renaming(store: Store, folder: str, write: Callable[[str], str]) -> None:
    parent, _, name = folder.rpartition("/")
    _remove_leftovers(store, parent, name)
    staging = f"{parent}/{STAGING}{name}@{_writer()}"
    with _taken_back(store, staging, _absent_parents(store, folder)):
        _fill(store, staging, write)
        require_absent(store, folder)
        store.move(staging, folder)


def _in_place(store: Store, folder: str, write: Callable[[str], str]) -> None:
    # No mark was there: what lies here is a dead writer's.
    store.delete(folder)
    with _taken_back(store, folder, []):
        _fill(store, folder, write)


def _fill(store: Store, folder: str, write: Callable[[str], str]) -> None:
    manifest = write(folder)
    store.write_text(f"{folder}/{MANIFEST}", manifest)
    store.write_text(f"{folder}/{SUCCESS}", "")


@contextmanager
def _taken_back(store: Store, written: str, parents: list[str]) -> Iterator[None]:
    """Remove what was written when the block fails, and the folders above it that were made for it."""
    try:
        yield
    except BaseException:
        store.delete(written)
        for parent in parents:
            if store.exists(parent) and not store.files(parent) and not store.folders(parent):
                store.delete(parent)
        raise


def _absent_parents(store: Store, folder: str) -> list[str]:
    """Give the folders above a folder that are not there yet, the innermost first."""
    absent = []
    parent = folder.rpartition("/")[0]
    while parent.rpartition("/")[0] and not parent.endswith(":/") and not store.exists(parent):
        absent.append(parent)
        parent = parent.rpartition("/")[0]
    return absent


def _writer() -> str:
    """Name this writer: when it began, on which machine, in which process."""
    return f"{datetime.now(UTC).strftime(_STAMP)}@{socket.gethostname()}@{psutil.Process().pid}@{uuid.uuid4().hex[:8]}"


def _remove_leftovers(store: Store, parent: str, name: str) -> None:
    for one in store.folders(parent):
        if one.startswith(f"{STAGING}{name}@") and _is_dead(one):
            store.delete(f"{parent}/{one}")


def _is_dead(staging: str) -> bool:
    """Tell whether a writer is gone: its process on this machine, or its time on another."""
    try:
        began, machine, process, _ = staging.split("@")[-4:]
        if machine == socket.gethostname():
            return not psutil.pid_exists(int(process))
        return datetime.now(UTC) - datetime.strptime(began, _STAMP).replace(tzinfo=UTC) > _OTHERS_LIMIT
    except ValueError:
        # A name that no writer gives: leave it to whoever made it.
        return False
