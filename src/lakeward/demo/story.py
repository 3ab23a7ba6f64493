"""The run of the demo: load the sample shop, change it, and check its mirrors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lakeward.arguments import PATH, instance, takes
from lakeward.demo.project import TABLES, land_changes
from lakeward.errors import DataError
from lakeward.lake import Lakeward

if TYPE_CHECKING:
    from lakeward.mirror.op.report import RunReport

_LAKE = instance("a Lakeward", Lakeward)
_SAMPLES = (
    ("product 1001", "SELECT name || ', ' || price FROM sampledb.product WHERE id = 1001"),
    ("product 1002", "SELECT name || ', ' || price FROM sampledb.product WHERE id = 1002"),
    ("store 1009", "SELECT city FROM sampledb.store WHERE id = 1009"),
    ("person 7", "SELECT FullName || ', ' || City FROM people.persons WHERE PersonID = 7"),
    ("person 10", "SELECT FullName || ', ' || City FROM people.persons WHERE PersonID = 10"),
    ("person 130", "SELECT FullName || ', ' || City FROM people.persons WHERE PersonID = 130"),
)


@dataclass(frozen=True)
class TableCheck:
    """A table's rows before and after the changes, against what they must be."""

    table: str
    before: int
    after: int
    expected: int
    ok: bool
    changes: str


@dataclass(frozen=True)
class SampleRow:
    """A row that changed, as it was and as it is."""

    row: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class DemoReport:
    """What the demo did: the runs of load and changes, the check of every table, and some rows."""

    loaded: RunReport
    changed: RunReport
    tables: tuple[TableCheck, ...]
    rows: tuple[SampleRow, ...]

    @property
    def ok(self) -> bool:
        """Whether every table has the rows that it must have."""
        return all(check.ok for check in self.tables)


@takes(lake=_LAKE, folder=PATH)
def play_demo(lake: Lakeward, folder: str | Path) -> DemoReport:
    """Load the demo that :func:`write_demo` wrote to a folder, change it, and check the mirrors.

    Raises:
        DataError: a table failed.
    """
    loaded = _run(lake)
    rows, samples = _counts(lake), _samples(lake)
    land_changes(Path(folder))
    changed = _run(lake)
    rows_after, samples_after = _counts(lake), _samples(lake)
    checks = tuple(
        TableCheck(
            table.name,
            rows[table.name],
            rows_after[table.name],
            table.changed,
            rows[table.name] == table.loaded and rows_after[table.name] == table.changed,
            table.story,
        )
        for table in TABLES
    )
    return DemoReport(
        loaded, changed, checks, tuple(SampleRow(row, samples[row], samples_after[row]) for row, _ in _SAMPLES)
    )


def _run(lake: Lakeward) -> RunReport:
    """Run all tables; the first that fails ends the demo."""
    report = lake.run()
    for failed in report.failed:
        raise DataError(failed.message or f"{failed.table} failed", hint=failed.hint)
    return report


def _counts(lake: Lakeward) -> dict[str, int]:
    return {table.name: lake.sql(f"SELECT count(*) FROM {table.name}").collect()[0][0] for table in TABLES}


def _samples(lake: Lakeward) -> dict[str, str | None]:
    return {row: next((found[0] for found in lake.sql(query).collect()), None) for row, query in _SAMPLES}
