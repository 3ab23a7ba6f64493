"""The lake that the jobs of a DMS walkthrough deployment write, by their published recipe and with its defects.

``load_initial`` and ``load_incremental`` follow the Spark code of the two jobs: the first adds ``Op = 'I'`` to the
load's rows and replaces the lake, the second rewrites every file of the lake that holds a changed key and then removes
it. Rows keep their column ``Op``; the last change of a key wins by file name and row number.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
Row = dict[str, Any]


class FormerSystem:
    """One table of the deployment: its folder in the landing zone, its lake, and its item's progress."""

    def __init__(
        self, landing: Path, lake: Path, schema: pa.Schema, *, keys: tuple[str, ...], partition: tuple[str, ...] = ()
    ) -> None:
        self.landing, self.lake, self.schema = landing, lake, schema
        self.keys, self.partition = keys, partition
        self.last_file = "0.parquet"
        # Whether the job fails to remove the files whose rows it has written anew.
        self.removal_fails = False
        self._number = itertools.count()
        self._clock = itertools.count(1_700_000_000, 10)
        landing.mkdir(parents=True, exist_ok=True)

    def land(self, name: str, rows: list[Row], *, changes: bool = True) -> Path:
        """Write a file as DMS does: changes with ``Op`` first, at the next moment."""
        fields = [pa.field("Op", pa.string()), *self.schema] if changes else [*self.schema]
        path = self.landing / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows, pa.schema(fields)), path)
        moment = next(self._clock)
        os.utime(path, (moment, moment))
        return path

    def load_initial(self) -> None:
        """Replace the lake by the load files."""
        rows = [row for path in sorted(self.landing.glob("LOAD*.parquet")) for row in pq.read_table(path).to_pylist()]
        for path in self.lake.rglob("*.parquet"):
            path.unlink()
        self._write([{"Op": "I", **row} for row in rows])

    def load_incremental(self) -> None:
        """Apply the change files that sort after the newest one so far."""
        names = sorted(path.relative_to(self.landing).as_posix() for path in self.landing.rglob("2*.parquet"))
        new = [name for name in names if name.startswith("2") and name > self.last_file]
        if not new:
            return
        changes = [row for name in new for row in pq.read_table(self.landing / name, partitioning=None).to_pylist()]
        last = {self._key(row): row for row in changes}
        impacted = {path: rows for path, rows in self.files().items() if any(self._key(row) in last for row in rows)}
        kept = [row for rows in impacted.values() for row in rows if self._key(row) not in last]
        self._write([*[row for row in last.values() if row["Op"] != "D"], *kept])
        for path in impacted if not self.removal_fails else ():
            path.unlink()
        self.last_file = new[-1]

    def files(self) -> dict[Path, list[Row]]:
        """The rows of every file of the lake, as its folders and columns hold them."""
        return {path: self._read(path) for path in sorted(self.lake.rglob("*.parquet"))}

    def rows(self) -> list[Row]:
        """All rows of the lake."""
        return [row for rows in self.files().values() for row in rows]

    def _read(self, path: Path) -> list[Row]:
        folders = path.relative_to(self.lake).parts[:-1]
        values = {name: unquote(value) for name, _, value in (folder.partition("=") for folder in folders)}
        known = {name: None if value == NO_VALUE else self._inferred(name, value) for name, value in values.items()}
        return [{**row, **known} for row in pq.read_table(path, partitioning=None).to_pylist()]

    def _inferred(self, name: str, value: str) -> str:
        """A folder's value as Spark infers it: where all values of a column are numbers, 007 becomes 7."""
        folders = [part for path in self.lake.rglob("*.parquet") for part in path.relative_to(self.lake).parts[:-1]]
        values = {folder.partition("=")[2] for folder in folders if folder.startswith(f"{name}=")} - {NO_VALUE}
        return str(int(value)) if all(found.isdigit() for found in values) else value

    def _write(self, rows: list[Row]) -> None:
        groups: dict[tuple[str, ...], list[Row]] = {}
        for row in rows:
            folder = tuple(f"{name}={_folder(row[name])}" for name in self.partition)
            groups.setdefault(folder, []).append(row)
        fields = [pa.field("Op", pa.string()), *(field for field in self.schema if field.name not in self.partition)]
        for folder, group in groups.items():
            path = self.lake.joinpath(*folder, f"part-{next(self._number):05}-c000.snappy.parquet")
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.Table.from_pylist(group, pa.schema(fields)), path)
            moment = next(self._clock)
            os.utime(path, (moment, moment))
        (self.lake / "_SUCCESS").touch()

    def _key(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.keys)


def _folder(value: Any) -> str:
    """A value as the name of a folder has it: NULL and the empty text are the same."""
    return quote(str(value), safe=" -_.,;@") if value not in (None, "") else NO_VALUE


def oracle(load: list[Row], changes: list[Row], keys: tuple[str, ...]) -> dict[tuple[Any, ...], Row]:
    """The rows by key after a load and changes in order."""
    rows = {tuple(row[name] for name in keys): dict(row) for row in load}
    for change in changes:
        key = tuple(change[name] for name in keys)
        if change["Op"] == "D":
            rows.pop(key, None)
        else:
            rows[key] = {name: value for name, value in change.items() if name != "Op"}
    return rows
