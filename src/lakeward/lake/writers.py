"""Who writes: the process on its machine, and whether it still lives."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Self

import psutil

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Writer:
    """A process that writes, and when it was last heard of."""

    host: str
    pid: int
    process_started: float
    heard: datetime

    @classmethod
    def here(cls) -> Self:
        """Return this process, heard of now."""
        return cls(socket.gethostname(), os.getpid(), psutil.Process().create_time(), datetime.now(UTC))

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """Read what :meth:`to_document` made.

        Raises:
            ValueError: the document describes no writer.
        """
        try:
            host, pid = str(document["host"]), int(document["pid"])
            heard = datetime.fromisoformat(document["heard"])
            if heard.tzinfo is None:
                heard = heard.replace(tzinfo=UTC)
            return cls(host, pid, float(document["process_started"]), heard)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            msg = f"not the description of a writer: {error!r}"
            raise ValueError(msg) from error

    def to_document(self) -> dict[str, Any]:
        """Return the writer as JSON has it."""
        return {
            "host": self.host,
            "pid": self.pid,
            "process_started": self.process_started,
            "heard": self.heard.isoformat(),
        }

    def is_alive(self, silent: timedelta) -> bool:
        """Whether the process lives; one on another machine is taken for dead when it was ``silent`` for so long."""
        if self.host != socket.gethostname():
            return datetime.now(UTC) - self.heard < silent
        try:
            # Numbers of processes are used again; the time of their start tells two of them apart.
            return bool(psutil.Process(self.pid).create_time() == self.process_started)
        except (psutil.NoSuchProcess, ValueError, OverflowError):
            return False
