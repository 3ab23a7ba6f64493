"""An import whose whole process is killed half way, and finished by the next one: exactly, and only the rest of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakeward.cassandra.budget import RateLimits
from lakeward.cassandra.connection import ClusterAddress
from lakeward.cassandra.cql import TableName
from lakeward.cassandra.imports import ImportRequest, import_snapshot
from lakeward.cassandra.ledger import Ledger
from lakeward.cassandra.write_plan import WriteStatus
from lakeward.config import Config, parse_config
from lakeward.config.services import ClusterSettings
from lakeward.session.sessions import table_session
from tests.cassandra.hand_made import export, schema_of
from tests.spark.fixtures import SPARK_SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.servers.cassandra import CassandraServer

# Slow enough to be killed before the end, however late the test learns of the first unit.
ROWS, UNITS, ROWS_PER_SECOND = 4_000, 8, 400
PATIENCE_SECONDS = 600


@pytest.mark.slow
def test_a_killed_import_goes_on_where_it_was(
    spark: SparkSession, cassandra_server: CassandraServer, keyspace: str, tmp_path: Path
) -> None:
    session, into = cassandra_server.session(), TableName(keyspace, "orders")
    rows = [(number // 5, number % 5, f"name {number}", [number, number]) for number in range(ROWS)]
    schema = schema_of("k bigint pk, c int ck, name text, numbers list<int>")
    folder = export(table_session(spark), tmp_path, schema, "2026-11-15T10:30", rows)
    ledger = Ledger(session, into)
    ledger.create()
    settings = cassandra_server.address.settings
    command = [sys.executable, "-m", __name__, folder, str(into), settings.hosts[0], str(settings.port)]
    began = datetime.now(UTC)
    process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True)
    try:
        done = _units_done(ledger, process)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert 0 < done < UNITS
    assert ledger.last() is None
    job = ledger.under_way()
    assert job is not None
    assert job.identity["location"] == folder

    request = ImportRequest(folder, into)
    written = import_snapshot(table_session(spark), Config(base=tmp_path), cassandra_server.address, request)
    assert written.status is WriteStatus.DONE
    assert 0 < written.resumed < UNITS
    assert 0 < written.upserted < ROWS, "units that were done are not written again"
    found = {(k, c): (name, numbers) for k, c, name, numbers in session.execute(f"SELECT * FROM {into.cql}")}
    assert found == {(k, c): (name, numbers) for k, c, name, numbers in rows}
    state = ledger.last()
    assert state is not None
    assert state.at > began
    assert ledger.under_way() is None


def _units_done(ledger: Ledger, process: subprocess.Popen[str]) -> int:
    """Wait until some units are recorded, and give how many."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        assert process.poll() is None, process.communicate()[1]
        job = ledger.under_way()
        if job is not None and (done := ledger.done(job)):
            return len(done)
        time.sleep(0.05)
    msg = "no unit was done in time"
    raise AssertionError(msg)


def _import_slowly(folder: str, into: str, host: str, port: str) -> None:
    from lakeward.session.sessions import build_session

    config = parse_config({"spark": SPARK_SETTINGS}, base=Path(folder).parent)
    address = ClusterAddress("local", ClusterSettings(hosts=(host,), port=int(port)))
    request = ImportRequest(
        folder, TableName(*into.split(".")), create_table=True, limits=RateLimits(rows_per_second=ROWS_PER_SECOND)
    )
    import_snapshot(table_session(build_session(config, app_name="killed")), config, address, request)


if __name__ == "__main__":
    _import_slowly(*sys.argv[1:])
