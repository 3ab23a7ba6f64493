"""Figures for Prometheus: what runs and statuses make of them, the file and the endpoint."""

import time
from dataclasses import replace
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.servers.process import free_ports
from tests.unit.runner.reports import DONE, FAILED, LOCKED, RUN

from lakeward.errors import ConfigurationError, RetriableError
from lakeward.iceberg.rewrite import Debt
from lakeward.mirror.op.report import RunReport
from lakeward.runner.freshness import Freshness, FreshnessVerdict
from lakeward.runner.metrics import FAMILIES, Metrics
from lakeward.runner.status import TableStatus

WAITS = Freshness(
    FreshnessVerdict.ON_TIME,
    90.0,
    "because",
    "1970-01-01T00:16:40+00:00",
    "commit",
    age_seconds=9.0,
    waiting_seconds=60,
)
STATUS = TableStatus(
    "sales.product", "pending", rows=103, files_pending=4, bytes_pending=400, oldest_pending_seconds=60.0,
    quarantined=3, debt=Debt(5, 2, 10, 0.1, 1000, 7), changelog_debt=Debt(9), freshness=WAITS,
)  # fmt: skip


def samples(text: str) -> dict[tuple[str, str], float]:
    families = text_string_to_metric_families(text)
    return {
        (sample.name, sample.labels.get("table", "")): sample.value for family in families for sample in family.samples
    }


def written(path: Path) -> dict[tuple[str, str], float]:
    return samples(path.read_text())


def test_a_run_and_a_status_become_metrics(tmp_path):
    file = tmp_path / "folder" / "lakeward.prom"
    metrics = Metrics(file=file, status=lambda names: [replace(STATUS, table=name) for name in names[:1]])
    metrics.retry("sales.product", 1, 0.5, RetriableError("busy"))
    before = time.time()
    metrics.run_finished(RUN)
    found = written(file)
    expected = {
        "pending_files": 4, "pending_bytes": 400, "rows": 103, "quarantined_rows": 3, "failed": 0,
        "debt_deleted_share": 0.1, "debt_data_files": 5, "debt_delete_files": 2, "debt_file_bytes": 1000,
        "debt_snapshots": 7, "debt_changelog_files": 9, "ops_total": 1, "op_seconds_total": 3, "retries_total": 1,
        "rows_applied_total": 1497, "rows_quarantined_total": 3, "failures_total": 0, "late": 0,
        "freshness_objective_seconds": 90, "newest_change_timestamp_seconds": 1000,
    }  # fmt: skip
    assert {name: found[f"lakeward_{name}", "sales.product"] for name in expected} == expected
    assert found["lakeward_failures_total", "sales.customer"] == found["lakeward_failed", "sales.customer"] == 1
    assert (found["lakeward_runs_total", ""], found["lakeward_run_seconds_total", ""]) == (1, 4)
    assert 60 <= found["lakeward_lag_seconds", "sales.product"] < 70
    assert found["lakeward_last_success_timestamp_seconds", "sales.till"] >= before
    assert ("lakeward_last_success_timestamp_seconds", "sales.customer") not in found
    assert ("lakeward_failed", LOCKED.table) not in found
    assert {name for name, _ in found} == {family.name for family in FAMILIES}


def test_counters_continue_from_the_file(tmp_path):
    file = tmp_path / "lakeward.prom"
    for _ in range(2):
        Metrics(file=file).run_finished(RUN)
    found = written(file)
    assert found["lakeward_runs_total", ""] == 2
    assert found["lakeward_rows_applied_total", "sales.product"] == 2 * 1497
    Metrics(file=file).run_finished(RunReport("r3", (replace(FAILED, table="sales.product"),)))
    after = written(file)
    success = ("lakeward_last_success_timestamp_seconds", "sales.product")
    assert after[success] == found[success]
    assert after["lakeward_failed", "sales.product"] == 1


@pytest.mark.parametrize("text", ["not { a metrics file", "# HELP node_load1 Load.\nnode_load1 0.5\n"])
def test_a_foreign_file_is_refused_and_stays(tmp_path, text):
    file = tmp_path / "lakeward.prom"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match="it is not replaced"):
        Metrics(file=file)
    assert file.read_text() == text
    file.write_text("")
    Metrics(file=file).run_finished(RUN)
    assert written(file)["lakeward_runs_total", ""] == 1


def test_lag_grows_between_runs_and_ends_when_no_file_waits(tmp_path, monkeypatch):
    metrics = Metrics()
    metrics.observe_status([STATUS])
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 100)
    metrics.write(tmp_path / "one.prom")
    assert written(tmp_path / "one.prom")["lakeward_lag_seconds", "sales.product"] >= 160
    metrics.observe_status([replace(STATUS, files_pending=0, oldest_pending_seconds=None)])
    metrics.write(tmp_path / "one.prom")
    assert written(tmp_path / "one.prom")["lakeward_lag_seconds", "sales.product"] == 0


def test_a_table_becomes_late_between_runs_while_a_file_waits(tmp_path, monkeypatch):
    metrics, file, late = Metrics(), tmp_path / "one.prom", ("lakeward_late", "sales.product")
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    metrics.observe_status([STATUS])
    for seconds, expected in ((30, 0), (31, 1)):
        monkeypatch.setattr(time, "time", lambda seconds=seconds: now + seconds)
        metrics.write(file)
        assert written(file)[late] == expected
    metrics.observe_status([replace(STATUS, freshness=replace(WAITS, waiting_seconds=None))])
    monkeypatch.setattr(time, "time", lambda: now + 1000)
    metrics.write(file)
    assert written(file)[late] == 0, "nothing waits"


def test_lateness_that_is_unknown_has_no_figure_and_without_an_objective_there_are_none(tmp_path):
    metrics, file, late = Metrics(), tmp_path / "one.prom", ("lakeward_late", "sales.product")
    metrics.observe_status([replace(STATUS, freshness=replace(WAITS, verdict=FreshnessVerdict.LATE))])
    metrics.write(file)
    assert written(file)[late] == 1
    unknown = Freshness(FreshnessVerdict.UNKNOWN, 90.0, "because")
    metrics.observe_status([replace(STATUS, freshness=unknown)])
    metrics.write(file)
    found = written(file)
    assert late not in found and ("lakeward_newest_change_timestamp_seconds", "sales.product") not in found
    assert found["lakeward_freshness_objective_seconds", "sales.product"] == 90
    metrics.observe_status([replace(STATUS, freshness=replace(unknown, waiting_seconds=91.0))])
    metrics.write(file)
    assert written(file)[late] == 1, "a file has waited too long since"
    metrics.observe_status([replace(STATUS, freshness=None)])
    metrics.write(file)
    assert not {name for name, _ in written(file)} & {"lakeward_late", "lakeward_freshness_objective_seconds"}


def test_the_file_is_written_even_if_tables_cannot_be_read(tmp_path):
    def broken(_names):
        msg = "no catalog"
        raise OSError(msg)

    metrics = Metrics(file=tmp_path / "lakeward.prom", status=broken)
    with pytest.raises(OSError, match="no catalog"):
        metrics.run_finished(RunReport("r1", (DONE,)))
    assert written(tmp_path / "lakeward.prom")["lakeward_runs_total", ""] == 1


def test_the_endpoint_answers_until_it_is_closed():
    [port] = free_ports(1)
    metrics = Metrics()
    metrics.run_finished(RUN)
    metrics.serve(port, "127.0.0.1")
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            found = samples(answer.read().decode())
        assert found["lakeward_rows_applied_total", "sales.product"] == 1497
        other = Metrics()
        with pytest.raises(ConfigurationError, match=f"cannot be served on 127.0.0.1:{port}"):
            other.serve(port, "127.0.0.1")
        other.close()
    finally:
        metrics.close()
    with pytest.raises(OSError, match="refused"):
        urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60)


def test_messages_that_cannot_be_read_are_counted(tmp_path):
    metrics = Metrics(file=tmp_path / "lakeward.prom")
    metrics.count_poison()
    metrics.count_poison()
    metrics.write(str(tmp_path / "lakeward.prom"))
    assert written(tmp_path / "lakeward.prom")["lakeward_poison_messages_total", ""] == 2
