"""Many tables with twenty files each: one run takes all in, exactly, and the next finds nothing to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward.config import parse_config
from lakeward.lake import Lakeward
from lakeward.mirror.op.report import Outcome
from lakeward.session.sessions import session_for

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FILES = 20


def _land(folder: Path, table: int) -> dict[int, str]:
    """Write the changes of one table; give its rows."""
    folder.mkdir(parents=True)
    rows = {}
    for number in range(FILES):
        changed, text = number // 2, f"{table}-{number}"
        (folder / f"20240101-0000{number:02}000.csv").write_text(f"I,{number},new\nU,{changed},{text}\n")
        rows[number] = "new"
        rows[changed] = text
    return rows


@pytest.mark.parametrize("tables", [40, pytest.param(300, marks=pytest.mark.soak)])
def test_many_tables_of_twenty_files(tmp_path: Path, spark: SparkSession, tables: int) -> None:
    # The same names in two schemas: nothing of one may reach the other.
    names = [f"s{number % 2}.t{number // 2:03}" for number in range(tables)]
    truth = {name: _land(tmp_path / "landing" / name.replace(".", "/"), number) for number, name in enumerate(names)}
    settings = {"schema": "id int, name string", "primary_key": "id"}
    config = parse_config({"tables": dict.fromkeys(names, settings)}, base=tmp_path)
    with Lakeward(config, spark=session_for(spark, config)) as lake:
        report = lake.run()
        assert {table.outcome for table in report.tables} == {Outcome.DONE}, [
            failed.message for failed in report.failed
        ]
        assert sum(op.files for table in report.tables for op in table.ops) == tables * FILES
        for name in (names[0], names[1], names[2], names[tables // 2 + 1], names[-1]):
            rows = lake.sql(f"SELECT id, name FROM {name}").collect()
            assert {row.id: row.name for row in rows} == truth[name] and len(rows) == FILES
        assert {table.mirror_rows for table in report.tables} == {FILES}
        assert {table.outcome for table in lake.run().tables} == {Outcome.IDLE}
