"""Java programs that only tests and benchmarks need, fetched once per machine."""

from __future__ import annotations

import shutil
from pathlib import Path

from lakeward.session.jars import cache_folder, fetch, work_folder


def fetched_once(coordinate: str) -> Path:
    """Return the folder of an artifact and its dependencies, fetched at the first call."""
    cache = cache_folder()
    folder = cache / coordinate.replace(":", "-")
    if not folder.exists():
        with work_folder(cache) as work:
            complete = work / "complete"
            complete.mkdir()
            for jar in fetch([coordinate], work):
                shutil.move(jar, complete)
            # Another process may have finished first.
            if not folder.exists():
                complete.rename(folder)
    return folder
