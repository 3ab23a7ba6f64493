"""One handler per kind of op, most in a separate module, and the table that finds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.mirror.kinds.batch import Batch, Repair, Retry
from lakeward.mirror.kinds.erase import Erase
from lakeward.mirror.kinds.load import Load
from lakeward.mirror.kinds.undo import Reset, Undo
from lakeward.mirror.kinds.void import Truncate, Void

if TYPE_CHECKING:
    from lakeward.mirror.kinds.base import OpHandler
    from lakeward.model import OpKind

HANDLERS: dict[OpKind, OpHandler] = {
    handler.kind: handler
    for handler in (Load(), Batch(), Truncate(), Retry(), Void(), Undo(), Reset(), Repair(), Erase())
}


def handler_of(kind: OpKind) -> OpHandler:
    """Return the handler for ops of a kind."""
    return HANDLERS[kind]
