"""A source table replicated by AWS DMS into a local landing folder, driven by a list of steps."""

from __future__ import annotations

from lakeward.testing.replication.model import LoadRun, Replication, ReplicationOptions
from lakeward.testing.replication.steps import (
    Deliver,
    Expire,
    Flush,
    FullLoad,
    HoldBack,
    Pause,
    Recopy,
    Reload,
    Restart,
    ResumeLoad,
    ResumeTask,
    RunLakeward,
    Step,
    Touch,
    TruncateSource,
    Write,
    slowly,
)

__all__ = [
    "Deliver", "Expire", "Flush", "FullLoad", "HoldBack", "LoadRun", "Pause", "Recopy", "Reload", "Replication",
    "ReplicationOptions", "Restart", "ResumeLoad", "ResumeTask", "RunLakeward", "Step", "Touch", "TruncateSource",
    "Write", "slowly",
]  # fmt: skip
