"""A source in plain Python beside a scene: what has landed, what must come of it, and whether the books agree."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from lakeward.iceberg.attempt import BRANCH_PREFIX
from lakeward.iceberg.define import APPLIED_STAMP, changelog_of, mirror_of
from lakeward.model import TableId
from tests.spark.scene import TABLE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.spark.scene import Scene

Rows = list[tuple[Any, ...]]


class Source:
    """One table of headerless CSV files in the scene's schema, and the rows that they must fold to."""

    def __init__(self, scene: Scene, table: str = TABLE, *, keyless: bool = False) -> None:
        self.scene = scene
        self.table = table
        self.keyless = keyless
        self.folder = table.replace(".", "/")
        self._parts: dict[str, tuple[str, ...]] = {}
        self._changes: dict[str, tuple[str, ...]] = {}

    def load(self, name: str, *lines: str, mtime: float | None = None) -> Path:
        """Land a part of the current load."""
        self._parts[name] = lines
        return self.scene.land(name, *lines, folder=self.folder, mtime=mtime)

    def reload(self, name: str, *lines: str, mtime: float) -> Path:
        """Land the one part of a new load; change files named before it no longer count."""
        cut = f"{datetime.fromtimestamp(mtime, UTC):%Y%m%d}"
        self._parts = {}
        self._changes = {file: rows for file, rows in self._changes.items() if file >= cut}
        return self.load(name, *lines, mtime=mtime)

    def change(self, name: str, *lines: str) -> Path:
        """Land a change file."""
        self._changes[name] = lines
        return self.scene.land(name, *lines, folder=self.folder)

    def mean(self, name: str, *lines: str) -> None:
        """Let a landed change file mean other lines: those that are good, or repaired."""
        self._changes[name] = lines

    def empty(self) -> None:
        """Forget everything, as a truncate does."""
        self._parts, self._changes = {}, {}

    def rows(self) -> Rows:
        """Return what the mirror must hold, in the scene's order."""
        loaded = [_row(line) for name in sorted(self._parts) for line in self._parts[name]]
        changes = [line.split(",", 1) for name in sorted(self._changes) for line in self._changes[name]]
        if self.keyless:
            return sorted(loaded + [_row(rest) for _, rest in changes], key=repr)
        by_key = {row[0]: row for row in loaded}
        for operation, rest in changes:
            row = _row(rest)
            by_key.pop(row[0], None)
            if operation != "D":
                by_key[row[0]] = row
        return sorted(by_key.values(), key=repr)


def _row(line: str) -> tuple[Any, ...]:
    key, name, dept, price = line.split(",")
    return (int(key), name, dept, Decimal(price))


def check_books(scene: Scene, table: str = TABLE) -> None:
    """Require that nothing is logged twice, no op number used twice, no branch left, and the ledger right."""
    name, spark = TableId.parse(table), scene.lakeward.spark
    mirror, changelog = mirror_of(spark, name), changelog_of(spark, name)
    for iceberg_table in (mirror, changelog):
        assert [branch for branch in iceberg_table.branches() if branch.startswith(BRANCH_PREFIX)] == []
    columns = "_lw_kind, _lw_op, _lw_generation, _lw_file, _lw_row, _lw_step, _lw_detail"
    log = spark.sql(f"SELECT {columns} FROM {changelog.identifier}").collect()
    records = [json.loads(row[6]) for row in log if row[0] == "control" and row[3] is None]
    records.sort(key=lambda record: record["op"])
    ops = [record["op"] for record in records]
    assert ops == list(range(1, len(ops) + 1)), "an op number is missing or was used twice"
    assert mirror.stamp(APPLIED_STAMP) == str(ops[-1])
    undone = records[-1]["progress"]["undone"]
    standing = [row for row in log if not any(first <= row[1] <= last for first, last in undone)]
    # A bad row that was put back is logged as a change too, at its own place.
    places = Counter((row[0], *row[2:6]) for row in standing if row[0] in ("change", "bad"))
    assert {place: times for place, times in places.items() if times > 1} == {}, "a row was logged twice"
    _check_ledger(scene, name, [row for row in standing if row[0] == "file"])


def _check_ledger(scene: Scene, table: TableId, files: list[Any]) -> None:
    """Compare the state store's ledger with the changelog's file rows and with the files themselves."""
    last_op = {row[3]: row[1] for row in sorted(files, key=lambda row: row[1])}
    decided = ("consumed", "empty", "superseded", "fenced")
    consumed = {row[3]: row[2] for row in files if json.loads(row[6])["disposition"] in decided}
    landed = scene.landed(str(table).replace(".", "/"))
    assert landed <= set(consumed), "a file was lost"
    entries = scene.lakeward.state.lookup(table, sorted(last_op))
    assert {path: entry.op for path, entry in entries.items()} == last_op
    for path in landed:
        assert entries[path].identity == scene.lakeward.storage.identity(path)
