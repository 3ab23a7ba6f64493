"""What triggers say: that a run is wanted, of which tables or because of which folders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Receipt(Protocol):
    """A message that must not be lost: ended once its tables are up to date, else left to come again."""

    def done(self) -> None:
        """Everything the message speaks of is committed."""
        ...

    def failed(self) -> None:
        """It is not; let the message come again."""
        ...


@dataclass(frozen=True)
class Ask:
    """A wish for a run.

    ``folders`` are landing folders in which files landed, ``trees`` folders that appeared as a whole, so that
    anything may be below them. ``tables`` are names, ``everything`` means all of them. Which files landed does not
    matter: a run lists for itself, which makes repeated and disordered notices harmless.
    """

    reason: str
    folders: frozenset[str] = frozenset()
    trees: frozenset[str] = frozenset()
    tables: frozenset[str] = frozenset()
    everything: bool = False
    receipt: Receipt | None = None
