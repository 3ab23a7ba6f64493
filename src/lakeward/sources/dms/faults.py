"""What is wrong with which rows of a block; the first fault found is the one a row is refused for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lakeward.sources.dms.cells import any_true
from lakeward.sources.dms.records import BadRow

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.sources.dms.blocks import Block
    from lakeward.sources.dms.cells import Mask

    Show = Callable[[int], str | None]


class Faults:
    """Collects faults by row."""

    def __init__(self, size: int) -> None:
        self._kind = np.full(size, -1, dtype=np.int32)
        self._kinds: list[tuple[str, str | None, Show]] = []

    def add(self, mask: Mask | None, reason: str, column: str | None, shown: Show) -> None:
        """Note a fault of the rows marked, unless they have one already."""
        if mask is None or not any_true(mask):
            return
        self._kind[mask & (self._kind < 0)] = len(self._kinds)
        self._kinds.append((reason, column, shown))

    @property
    def mask(self) -> Mask | None:
        """The rows with a fault, None when there are none."""
        return self._kind >= 0 if self._kinds else None

    def bad_rows(self, block: Block) -> list[BadRow]:
        """Give the rows with a fault, told apart by what is wrong with them."""
        if not self._kinds:
            return []
        bad = []
        for index in np.flatnonzero(self._kind >= 0).tolist():
            reason, column, shown = self._kinds[self._kind[index]]
            bad.append(BadRow(int(block.rows[index]), reason, column, shown(index), block.raw(index)))
        return bad
