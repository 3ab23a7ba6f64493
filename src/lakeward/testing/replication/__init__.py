"""A source table replicated by AWS DMS into a local landing folder, driven by a list of steps."""

from __future__ import annotations

from lakeward.testing.replication.model import LoadRun, Replication, ReplicationOptions
from lakeward.testing.replication.steps import (
    Deliver,
    Expire,
    Flush,
    HoldBack,
    Load,
    Pause,
    Recopy,
    Reload,
    Restart,
    ResumeLoad,
    Run,
    Step,
    Touch,
    TruncateSource,
    Write,
    slowly,
)

__all__ = [
    "Deliver", "Expire", "Flush", "HoldBack", "Load", "LoadRun", "Pause", "Recopy", "Reload", "Replication",
    "ReplicationOptions", "Restart", "ResumeLoad", "Run", "Step", "Touch", "TruncateSource", "Write", "slowly",
]  # fmt: skip
