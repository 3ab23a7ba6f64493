"""How much one run may take in, over all its tables."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward.model import LandingFile


class RunBudget:
    """Files and bytes that a run may still take; tables that run at one time share it."""

    def __init__(self, *, files: int | None = None, size: int | None = None) -> None:
        """Start with so many files and bytes; None sets no limit."""
        self._files = files
        self._bytes = size
        self._lock = threading.Lock()

    def admit(self, files: Sequence[LandingFile], *, whole: bool = False) -> tuple[LandingFile, ...]:
        """Take the first files that fit and give them: all or none of a ``whole``, which may go over the limit.

        A single file larger than all that is left passes while anything is left: otherwise it would wait forever.
        """
        with self._lock:
            admitted: list[LandingFile] = []
            for file in files:
                if not (whole and admitted) and self._is_spent():
                    break
                admitted.append(file)
                self._spend(file.identity.size)
            return tuple(admitted)

    def _is_spent(self) -> bool:
        return any(left is not None and left <= 0 for left in (self._files, self._bytes))

    def _spend(self, size: int) -> None:
        if self._files is not None:
            self._files -= 1
        if self._bytes is not None:
            self._bytes -= size
