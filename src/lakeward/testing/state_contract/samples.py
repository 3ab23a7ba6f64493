"""Values that the contract's tests put into a store."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import psutil

from lakeward.model import (
    Disposition,
    FileClass,
    FileIdentity,
    Generation,
    LedgerEntry,
    OrderBy,
    Place,
    Progress,
    TableId,
)
from lakeward.state.base import LeaseOwner, TableRun
from lakeward.state.leases import current_owner

PRODUCT = TableId("sales", "product")
CUSTOMER = TableId("sales", "customer")
ELSEWHERE = LeaseOwner("elsewhere.example", 4711, 1.5, "run-elsewhere")
PROGRESS = Progress(
    op=7,
    generations=(Generation(1), Generation(2, "20240405003052555000", OrderBy.TIMESTAMP)),
    last_place=Place("2024-04-05 00:30:52.555", "20240405003052555000", "sales/product/ä.csv", 3, 1),
)
NOON = datetime(2024, 4, 5, 12, 0, tzinfo=UTC)


def make_entry(
    path: str, *, op: int = 1, generation: int = 1, file_class: FileClass = FileClass.CHANGES
) -> LedgerEntry:
    """A ledger entry that differs from others in every field that is given."""
    return LedgerEntry(
        path=path,
        identity=FileIdentity(size=2**40, mtime_us=1_712_277_052_555_001, etag=None if op % 2 else f"etag-{op}"),
        content_hash=f"hash of {path} in {op}",
        rows=op,
        disposition=Disposition.CONSUMED,
        generation=generation,
        op=op,
        file_class=file_class,
        time="" if file_class is FileClass.LOAD else "20240405003052555000",
    )


def make_run(run_id: str, *, table: TableId = PRODUCT, started_at: datetime = NOON) -> TableRun:
    """A run of a minute."""
    report = {"files": 3, "note": "größer", "nested": {"list": [1, None, 2.5]}}
    return TableRun(run_id, table, started_at, started_at + timedelta(minutes=1), "done", report)


def dead_owner() -> LeaseOwner:
    """An owner on this host whose process has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert not psutil.pid_exists(process.pid)
    return replace(current_owner("run-dead"), pid=process.pid)
