"""What a job that wrote a table says at its end."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class WriteStatus(StrEnum):
    """How a job ended."""

    DONE = "done"
    NOTHING_TO_DO = "nothing to do"
    DRY_RUN = "dry run"
    REJECTED = "rejected rows"


@dataclass(frozen=True)
class WriteReport:
    """What was written, or would be: rows by what happened to them, write units, and how long it took.

    ``skipped_expired`` are rows of which every cell had expired. ``rejected`` are in files below ``dead_letters``.
    ``seconds`` of a dry run is about how long the job would take at its limits, or without any. ``resumed`` tells how
    many units an earlier attempt had done; their rows do not count again. ``warnings`` are sentences for people.
    """

    into: str
    status: WriteStatus
    upserted: int = 0
    deleted: int = 0
    skipped_expired: int = 0
    rejected: int = 0
    dead_letters: str | None = None
    units: float = 0.0
    seconds: float = 0.0
    timestamp: int | None = None
    resumed: int = 0
    warnings: tuple[str, ...] = ()

    def to_document(self) -> dict[str, Any]:
        """Give it as JSON has it."""
        return {**asdict(self), "status": str(self.status), "warnings": list(self.warnings)}
