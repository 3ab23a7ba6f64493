"""`make bench-cassandra`: export and import against the Spark connector and a plain loop with the driver.

CPU-seconds of the client: this process, its Spark and all their children, without the server.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import uuid
from collections import deque
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from cassandra.query import BatchStatement, BatchType

from benchmarks.cpu import cost
from lakeward.cassandra.apply import ApplyRequest, apply_change_set
from lakeward.cassandra.connection import connected
from lakeward.cassandra.cql import TableName
from lakeward.cassandra.diff import diff_exports
from lakeward.cassandra.export import ExportRequest, export_table
from lakeward.cassandra.imports import ImportRequest, import_snapshot
from lakeward.config import parse_config
from lakeward.demo.cassandra.server import LocalCassandra
from lakeward.session.sessions import open_session, table_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cassandra.cluster import Session
    from pyspark.sql import SparkSession

    from lakeward.cassandra.connection import ClusterAddress
    from lakeward.config import Config

KEYSPACE = "bench"
SOURCE, COPY, PEER = (TableName(KEYSPACE, name) for name in ("orders", "copy", "peer"))
_COLUMNS = (
    "account uuid, seq int, name text, amount decimal, price double, paid boolean, made timestamp, note text, "
    "PRIMARY KEY (account, seq)"
)
_NAMES = ("account", "seq", "name", "amount", "price", "paid", "made", "note")
_PER_PARTITION = 10
# Spark compiles what it runs often: one round is not enough for it, nor for the connector's.
_WARM_UPS, _TIMES = 3, 3
_GOALS = {
    "plain_over_connector": "≤ 1", "set_over_connector": "≤ 1.5", "import_over_connector": "≤ 2.5",
    "import_over_apply": "≥ 20",
}  # fmt: skip


@dataclass
class Stage:
    """The server and the Spark that all measurements share; folders are never used twice."""

    address: ClusterAddress
    config: Config
    spark: SparkSession
    folder: Path
    without: tuple[int, ...]
    _used: int = field(default=0)

    def new_folder(self) -> str:
        self._used += 1
        return str(self.folder / f"exports-{self._used}")

    def median(self, work: Callable[[], object], prepare: Callable[[], object] | None = None) -> float:
        """Return the median of some rounds after those to warm up; preparing does not count."""
        spent = []
        for _ in range(_WARM_UPS + _TIMES):
            if prepare is not None:
                prepare()
            spent.append(cost(work, self.without))
        return statistics.median(spent[_WARM_UPS:])


def main() -> int:
    """Measure, print and write as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cassandra", description=__doc__)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--json", type=Path, default=Path(".cache/bench-cassandra.json"))
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="lakeward-bench-"))
    try:
        results = _run(folder, options.rows)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(results, indent=2))
    print("goals:", ", ".join(f"{name} {goal}" for name, goal in _GOALS.items()))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return 0


def _run(folder: Path, rows: int) -> dict[str, Any]:
    spark_conf = {"spark.driver.memory": "3g", "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "4"}
    config = parse_config({"spark": {"master": "local[2]", "conf": spark_conf}}, base=folder)
    with LocalCassandra(folder / "server") as server, connected(server.address) as session:
        _make(session, rows)
        spark = table_session(open_session(config))
        stage = Stage(server.address, config, spark, folder, server.process_ids)
        exports = _exports(stage, session)
        imports = _imports(stage, session, rows)
        _require_equal(session)
        return {"rows": rows, **exports, **imports}


def _make(session: Session, rows: int) -> None:
    replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    session.execute(f"CREATE KEYSPACE {KEYSPACE} WITH replication = {replication}")
    for name in (SOURCE, COPY, PEER):
        session.execute(f"CREATE TABLE {name.cql} ({_COLUMNS})")
    marks = ", ".join("?" * len(_NAMES))
    insert = session.prepare(f"INSERT INTO {SOURCE.cql} ({', '.join(_NAMES)}) VALUES ({marks})")
    under_way: deque[Any] = deque()
    for account in range(rows // _PER_PARTITION):
        batch = BatchStatement(BatchType.UNLOGGED)
        for row in _rows(account):
            batch.add(insert, row)
        under_way.append(session.execute_async(batch))
        if len(under_way) > 64:
            under_way.popleft().result()
    for one in under_way:
        one.result()


def _rows(account: int) -> Iterator[tuple[Any, ...]]:
    name = uuid.uuid5(uuid.NAMESPACE_OID, str(account))
    for seq in range(_PER_PARTITION):
        number = account * _PER_PARTITION + seq
        amount = Decimal(number).scaleb(-24) + number
        made = 1_700_000_000_000 + number
        yield name, seq, f"customer {number}", amount, number / 7, seq % 2 == 0, made, f"note {number % 997}"


def _exports(stage: Stage, session: Session) -> dict[str, Any]:
    def ours(layout: str) -> float:
        return stage.median(lambda: _export(stage, layout, stage.new_folder()))

    loop = stage.median(lambda: _plain_loop(session, stage.folder / "loop.parquet"))
    plain, as_set, connector = ours("plain"), ours("set"), _connector(stage, "export", SOURCE)
    return {
        "export_loop_cpu": round(loop, 2),
        "export_plain_cpu": round(plain, 2),
        "export_set_cpu": round(as_set, 2),
        "export_connector_cpu": round(connector, 2),
        "plain_over_connector": round(plain / connector, 2),
        "set_over_connector": round(as_set / connector, 2),
    }


def _export(stage: Stage, layout: str, to: str) -> str:
    request = ExportRequest(SOURCE, to, layout=layout)
    return export_table(stage.spark, stage.config, stage.address, request).folder


def _plain_loop(session: Session, file: Path) -> None:
    """Do what a short script would: page through the table and write one file, decimals as text."""
    types = [pa.string(), pa.int32(), pa.string(), pa.string(), pa.float64(), pa.bool_(), pa.int64(), pa.string()]
    schema = pa.schema(list(zip(_NAMES, types, strict=True)))
    answer = session.execute(f"SELECT {', '.join(_NAMES)} FROM {SOURCE.cql}")
    with pq.ParquetWriter(file, schema) as writer:
        while True:
            # The last page may be empty.
            if answer.current_rows:
                columns = list(zip(*answer.current_rows, strict=True))
                columns[0], columns[3] = tuple(map(str, columns[0])), tuple(map(str, columns[3]))
                arrays = [pa.array(*one) for one in zip(columns, types, strict=True)]
                writer.write_batch(pa.record_batch(arrays, schema))
            if not answer.has_more_pages:
                return
            answer.fetch_next_page()


def _imports(stage: Stage, session: Session, rows: int) -> dict[str, Any]:
    past = _export(stage, "set", stage.new_folder())
    request = ImportRequest(past, COPY, force=True)

    def empty() -> None:
        session.execute(f"TRUNCATE {COPY.cql}")

    ours = stage.median(lambda: import_snapshot(stage.spark, stage.config, stage.address, request), empty)
    connector = _connector(stage, "import", PEER)
    _change(session, rows // 100)
    current = _export(stage, "set", stage.new_folder())
    made = diff_exports(stage.spark, stage.config, past, current, to=stage.new_folder())
    changes = ApplyRequest(str(made.change_set), COPY, force=True)
    applied = stage.median(lambda: apply_change_set(stage.spark, stage.config, stage.address, changes))
    return {
        "import_cpu": round(ours, 2),
        "import_connector_cpu": round(connector, 2),
        "import_over_connector": round(ours / connector, 2),
        "apply_one_percent_cpu": round(applied, 2),
        "import_over_apply": round(ours / applied, 1),
    }


def _change(session: Session, rows: int) -> None:
    """Change one row in a hundred, in partitions all over the ring."""
    update = session.prepare(f"UPDATE {SOURCE.cql} SET name = ?, note = ? WHERE account = ? AND seq = 3")
    for account in range(rows):
        key = uuid.uuid5(uuid.NAMESPACE_OID, str(account * (100 // _PER_PARTITION)))
        session.execute(update, (f"changed {account}", None, key))


def _connector(stage: Stage, what: str, table: TableName) -> float:
    """Let the connector do it in a process of its own; what it exported is what it imports."""
    settings = stage.address.settings
    command = [
        sys.executable, "-m", "benchmarks.cassandra_peer", what, "--host", settings.hosts[0], "--port",
        str(settings.port), "--table", str(table), "--folder", str(stage.folder / "connector"), "--times", str(_TIMES),
        "--warm-ups", str(_WARM_UPS),
    ]  # fmt: skip
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return float(json.loads(done.stdout)["cpu"])


def _require_equal(session: Session) -> None:
    """Void the measurement unless source and copy hold the same cells."""
    found = []
    for name in (SOURCE, COPY):
        answer = session.execute(f"SELECT {', '.join(_NAMES)} FROM {name.cql}")
        found.append(hash(frozenset(answer)))
    if found[0] != found[1]:
        msg = f"{SOURCE} and {COPY} differ: the measurement is void"
        raise AssertionError(msg)


if __name__ == "__main__":
    sys.exit(main())
