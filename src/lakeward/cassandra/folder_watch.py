"""Waits until a whole export lands in a folder that another job writes to."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import watchfiles

from lakeward.cassandra.export_folders import SNAPSHOTS
from lakeward.lake.stores import LocalStore, local_path

if TYPE_CHECKING:
    from pathlib import Path

    from lakeward.cassandra.export_folders import ExportFolder

# How often a folder is looked at where nothing tells of changes, and where the operating system does.
REMOTE_POLL, LOCAL_POLL = 30.0, 5.0
# Files of one export come together.
_GROUP_MS, _QUIET_MS = 300, 100


def wait_for_export(folder: ExportFolder, after: str, poll: float | None = None) -> None:
    """Wait until a folder has a whole export that is later than one, or any where that is nothing.

    Raises:
        RetriableError: the storage does not answer.
    """
    while not folder.exports(after).exports:
        if isinstance(folder.store, LocalStore):
            _wait_for_change(local_path(f"{folder.folder}/{SNAPSHOTS}"), poll or LOCAL_POLL)
        else:
            time.sleep(poll or REMOTE_POLL)


def _wait_for_change(path: Path, seconds: float) -> None:
    """Wait for a change below a folder, or for some time: a change before the watch stands is not told of."""
    if not path.is_dir():
        time.sleep(min(seconds, 1.0))
        return
    changes = watchfiles.watch(
        path, watch_filter=None, debounce=_GROUP_MS, step=_QUIET_MS, rust_timeout=int(seconds * 1000),
        yield_on_timeout=True, raise_interrupt=True, ignore_permission_denied=True,
    )  # fmt: skip
    next(changes, None)
