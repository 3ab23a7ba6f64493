"""Python's search for unused objects, less often while a task makes very many that live for a moment."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# By default all young objects are looked through after every 700 new ones; those of one page or batch are many more.
_YOUNG = 100_000


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Let garbage be looked for seldom in the block: a quarter of the time of a task went into that."""
    usual = gc.get_threshold()
    gc.set_threshold(_YOUNG, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)
