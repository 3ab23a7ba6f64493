"""What ops of each kind do: one module per kind, and the table that finds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.mirror.kinds.batch import Batch, Retry
from lakeward.mirror.kinds.erase import Erase
from lakeward.mirror.kinds.load import Load
from lakeward.mirror.kinds.repair import Repair
from lakeward.mirror.kinds.undo import Undo
from lakeward.mirror.kinds.void import Truncate, Void

if TYPE_CHECKING:
    from lakeward.mirror.kinds.base import Kind
    from lakeward.model import OpKind

KINDS: dict[OpKind, Kind] = {
    kind.name: kind for kind in (Load(), Batch(), Truncate(), Retry(), Void(), Undo(), Repair(), Erase())
}


def kind_of(name: OpKind) -> Kind:
    """Return what ops of a kind do."""
    return KINDS[name]
