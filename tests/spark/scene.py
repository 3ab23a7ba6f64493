"""A small pipeline in a folder of its own: land files, run, look at the mirror."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakeward.config import parse_config
from lakeward.lake import Lakeward
from lakeward.mirror.op.context import RunOptions
from lakeward.mirror.op.report import Outcome, RunReport, TableReport
from lakeward.session.sessions import session_for

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

TABLE = "sales.product"
SCHEMA = "id int, name string, dept string, price decimal(10,2)"


class Scene:
    """One lake with (by default) one table ``sales.product`` fed by headerless CSV."""

    def __init__(self, folder: Path, spark: SparkSession) -> None:
        self.folder = folder
        self.landing = folder / "landing"
        self._root = spark
        # Tests set the times of files as a replication tool does, and do not wait for reloads to settle.
        defaults = {"landing_times": "trusted", "reload_settle": 0}
        self._settings: dict[str, Any] = {
            "defaults": defaults, "tables": {TABLE: {"schema": SCHEMA, "primary_key": "id"}},
        }  # fmt: skip
        self.on_step: Callable[[str, str], None] | None = None
        self._open: Lakeward | None = None
        # What the user of every run decides.
        self.choices: dict[str, Any] = {}

    def configure(self, tables: dict[str, Any] | None = None, **settings: Any) -> Scene:
        """Set tables and further configuration; takes effect at the next use."""
        if tables is not None:
            self._settings["tables"] = tables
        self._settings.update(settings)
        self.close()
        return self

    def table(self, **settings: Any) -> Scene:
        """Change settings of the one table."""
        return self.configure({TABLE: {"schema": SCHEMA, "primary_key": "id", **settings}})

    @property
    def lakeward(self) -> Lakeward:
        if self._open is None:
            config = parse_config({"state": "sqlite:///state.db", **self._settings}, base=self.folder)
            self._open = Lakeward(config, spark=session_for(self._root, config), on_step=self._step)
        return self._open

    def _step(self, table: str, step: str) -> None:
        if self.on_step:
            self.on_step(table, step)

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def forget_state(self) -> None:
        """Delete the state store, as an operator may between any two runs."""
        self.close()
        for file in self.folder.glob("state.db*"):
            file.unlink()

    def land(self, name: str, *lines: str, folder: str | None = None, mtime: float | None = None) -> Path:
        """Write a CSV file of records."""
        text = "".join(line + "\n" for line in lines)
        return self.land_bytes(name, text.encode(), folder=folder, mtime=mtime)

    def land_bytes(self, name: str, data: bytes, *, folder: str | None = None, mtime: float | None = None) -> Path:
        path = self.landing / (folder if folder is not None else TABLE.replace(".", "/")) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        if mtime is not None:
            os.utime(path, (mtime, mtime))
        return path

    def land_parquet(
        self,
        name: str,
        columns: dict[str, Sequence[Any] | pa.Array],
        *,
        folder: str | None = None,
        mtime: float | None = None,
    ) -> Path:
        path = self.land_bytes(name, b"", folder=folder)
        pq.write_table(pa.table(columns), path)
        if mtime is not None:
            os.utime(path, (mtime, mtime))
        return path

    def landed(self, folder: str) -> set[str]:
        """Paths of the CSV files directly in a folder of landing."""
        return {path.relative_to(self.landing).as_posix() for path in (self.landing / folder).glob("*.csv")}

    def remove_folder(self, folder: str) -> None:
        """Take a folder out of landing with all that it holds."""
        shutil.rmtree(self.landing / folder)

    def try_run(self, *tables: str, **options: Any) -> RunReport:
        """Run and give whatever came out."""
        return self.lakeward.run(tables, options=RunOptions(**{**self.choices, **options}))

    def run(self, *tables: str, **options: Any) -> TableReport:
        """Run and require that the tables came through; give the first one's report."""
        report = self.try_run(*tables, **options)
        for table in report.tables:
            assert table.outcome in (Outcome.DONE, Outcome.IDLE), table.message
        return report.tables[0]

    def refused(self, **options: Any) -> TableReport:
        """Run and require that the one table failed."""
        report = self.try_run(**options).tables[0]
        assert report.outcome is Outcome.FAILED, report
        return report

    def rows(self, table: str = TABLE) -> list[tuple[Any, ...]]:
        """Rows of the mirror as tuples, in order of their text."""
        found = self.lakeward.sql(f"SELECT * FROM {table}").collect()
        return sorted((tuple(row) for row in found), key=repr)

    def by_key(self, table: str = TABLE, key: str = "id") -> dict[Any, dict[str, Any]]:
        """Rows of the mirror by key; a key found twice is an error."""
        rows = [row.asDict() for row in self.lakeward.sql(f"SELECT * FROM {table}").collect()]
        found = {row[key]: row for row in rows}
        assert len(found) == len(rows), f"a key is in the mirror more than once: {rows}"
        return found

    def names(self) -> dict[int, str | None]:
        """Key to name, for tests that need no more."""
        return {key: row["name"] for key, row in self.by_key().items()}
