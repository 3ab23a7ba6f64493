"""What ops of each kind do: one module per kind, and the table that finds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.pipeline.kinds.batch import Batch
from lakeward.pipeline.kinds.erase import Erase
from lakeward.pipeline.kinds.load import Load
from lakeward.pipeline.kinds.repair import Repair
from lakeward.pipeline.kinds.retry import Retry
from lakeward.pipeline.kinds.truncate import Truncate
from lakeward.pipeline.kinds.undo import Undo
from lakeward.pipeline.kinds.void import Void

if TYPE_CHECKING:
    from lakeward.model import OpKind
    from lakeward.pipeline.kinds.base import Kind

KINDS: dict[OpKind, Kind] = {
    kind.name: kind for kind in (Load(), Batch(), Truncate(), Retry(), Void(), Undo(), Repair(), Erase())
}


def kind_of(name: OpKind) -> Kind:
    """Return what ops of a kind do."""
    return KINDS[name]
