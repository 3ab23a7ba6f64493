"""``status`` and ``runs``: what they show, repeatedly on request, and the texts of the log."""

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner
from tests.unit.runner.reports import DONE, FAILED, IDLE, record

from lakeward.cli import status as status_command
from lakeward.cli.main import cli
from lakeward.cli.options import with_number
from lakeward.iceberg.rewrite import Debt
from lakeward.lake import Lakeward
from lakeward.runner.freshness import Freshness, FreshnessVerdict
from lakeward.runner.metrics import Metrics
from lakeward.runner.status import TableStatus

ENDED = datetime(2024, 4, 5, 1, 2, 3, 456, tzinfo=UTC).isoformat()
WRONG = TableStatus(
    "sales.product", "failed", 1, 4, 1234, 10, 2, 3 << 20, 7200.0, ("sales/product/odd.txt",), 21, 5,
    "3 bad rows", "repair the files", "run 9", ENDED, "failed", 95.0, 1250.4, Debt(12, 3, 40, 0.25, 1000, 9), Debt(4),
    next_command="lakeward plan sales.product",
)  # fmt: skip
ACTIVATE = "lakeward tables set sales.new --primary-key COLUMN --activate"
FOUND = TableStatus("sales.new", "inactive", next_command=ACTIVATE)
KEYLESS = TableStatus("sales.log", "current", rows=6, rows_ignored=1234)
CURRENT = TableStatus("sales.till", "pending", rows=6, files_pending=1, oldest_pending_seconds=9000.0)


def test_status_shows_states_of_tables_and_pending_decisions(project, call, answers):
    answers("status", [WRONG, FOUND, CURRENT])
    result = call("status")
    assert result.exit_code == 0
    for words in (
        "failed", "1,234", "2 (3.0 MiB)", "2 h", "2024-04-05 01:02:03", "2 min", "1,250", "25% deleted, 15 files",
        "run 9", "sales.product: failed: 3 bad rows (try: repair the files)", "sales/product/odd.txt and 20 more",
        "sales.product: decide: lakeward plan sales.product",
        f"sales.new: decide: {ACTIVATE}", "3 tables (1 failed, 1 inactive, 1 pending), 1,240 rows",
        "3 files waiting (3.0 MiB, the oldest for 2 h), 5 set aside",
    ):  # fmt: skip
        assert words in result.stdout


def test_status_shows_rows_that_a_table_without_key_ignored(project, call, call_json, answers):
    answers("status", [KEYLESS, CURRENT])
    shown = call("status").stdout
    expected = "sales.log: 1,234 updates and deletes ignored (without_key: inserts) since its last load"
    assert expected in shown and "sales.till: 0" not in shown
    assert "0 set aside, 1,234 ignored" in shown
    document = call_json("status")
    assert [entry["rows_ignored"] for entry in (document["totals"], *document["tables"])] == [1234, 1234, 0]


def test_status_as_json_has_totals(project, call_json, answers):
    answers("status", [WRONG, CURRENT])
    document = call_json("status")
    assert document["tables"][0]["debt"]["deleted_share"] == 0.25
    assert document["tables"][0]["unknown_count"] == 21
    assert document["totals"] == {
        "tables": 2, "states": {"failed": 1, "pending": 1}, "rows": 1240, "files_pending": 3, "bytes_pending": 3 << 20,
        "oldest_pending_seconds": 9000.0, "quarantined": 5, "freshness": {}, "rows_ignored": 0,
    }  # fmt: skip


def fresh(verdict: FreshnessVerdict) -> TableStatus:
    return TableStatus(f"sales.{verdict.name.lower()}", "pending", freshness=Freshness(verdict, 300.0, "because"))


ON_TIME, LATE, UNKNOWN = (fresh(verdict) for verdict in FreshnessVerdict)


def test_late_tables_are_shown_with_the_reason(project, call, answers):
    answers("status", [ON_TIME, LATE, UNKNOWN, CURRENT])
    result = call("status")
    assert result.exit_code == 0, "to be late is a finding only on request"
    for words in (
        "freshness", "on time", "0 set aside, 1 late, 1 unknown", "sales.late: late: because",
        "sales.unknown: freshness unknown: because",
    ):  # fmt: skip
        assert words in result.stdout
    assert "sales.on_time: " not in result.stdout
    answers("status", [CURRENT])
    assert "freshness" not in call("status").stdout


@pytest.mark.parametrize(
    ("found", "code"), [([ON_TIME, CURRENT], 0), ([ON_TIME, LATE], 1), ([UNKNOWN], 1), ([CURRENT], 2), ([], 2)]
)
def test_fail_late_exits_with_1_unless_all_tables_with_an_objective_are_on_time(project, call, answers, found, code):
    answers("status", found)
    assert call("status", "--fail-late").exit_code == code


def test_fail_late_as_json_has_the_same_exit_code_and_the_whole_document(project, call, answers):
    answers("status", [LATE, CURRENT])
    result = call("status", "--fail-late", "--output", "json")
    document = json.loads(result.stdout)
    assert (result.exit_code, document["totals"]["freshness"]) == (1, {"late": 1})
    assert [entry["freshness"] and entry["freshness"]["verdict"] for entry in document["tables"]] == ["late", None]


def test_fail_late_needs_an_objective_and_an_end(project, call, answers):
    answers("status", [CURRENT])
    assert "lakeward tables set TABLE --set freshness=5m" in call("status", "--fail-late").stderr
    assert call("status", "--fail-late", "--watch").exit_code == 2


class _Enough:
    """Replaces the clock: lets the command look a few times and then presses Ctrl-C."""

    def __init__(self, times: int) -> None:
        self.left = times
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


@pytest.mark.parametrize(("arguments", "seconds"), [(["--watch"], 5), (["--watch", "0.5"], 0.5), (["--watch=2"], 2)])
def test_watching_repeats_until_ctrl_c(project, call, answers, monkeypatch, arguments, seconds):
    clock = _Enough(2)
    monkeypatch.setattr(status_command, "time", clock)
    calls = answers("status", [CURRENT])
    result = call("status", *arguments, "sales.till")
    assert result.exit_code == 130
    assert clock.slept == [seconds] * 2
    assert calls[0][0] == (("sales.till",),)
    assert result.stdout.count("1 table (1 pending)") == 2


def test_watching_as_json_is_a_line_each(project, answers, monkeypatch):
    monkeypatch.setattr(status_command, "time", _Enough(2))
    answers("status", [CURRENT])
    result = CliRunner().invoke(cli, ["status", "--watch", "--output", "json"], prog_name="lakeward")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["totals"]["tables"] for line in lines] == [1, 1]


def test_watching_is_drawn_in_place_on_a_terminal(project, call, answers, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(status_command, "time", _Enough(2))
    answers("status", [CURRENT])
    result = call("status", "--watch")
    assert result.exit_code == 130
    # The cursor goes up before the second drawing.
    assert "\x1b[1A" in result.stdout
    assert "1 table (1 pending)" in result.stdout


def test_watching_ends_when_its_reader_is_gone(project):
    script = """
import sys
from lakeward import Lakeward
from lakeward.cli import main
Lakeward.status = lambda self, names: []
sys.argv = ["lakeward", "status", "--watch", "0.1"]
main.main()
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(300) == 0
        assert process.stderr.read() == b""


def test_only_a_number_belongs_to_an_option_that_needs_none():
    assert with_number(["--watch", "a.b"], "--watch", "5") == ["--watch=5", "a.b"]
    assert with_number(["--watch", "7", "a.b"], "--watch", "5") == ["--watch", "7", "a.b"]
    assert with_number(["a.b", "--watch"], "--watch", "5") == ["a.b", "--watch=5"]
    assert with_number(["--watch", "nan"], "--watch", "5") == ["--watch=5", "nan"]


@pytest.fixture
def history(project):
    """Two recorded runs."""
    with Lakeward.open(project / "lakeward.yaml") as lake:
        for number in (1, 2):
            for report in (DONE, IDLE, FAILED):
                record(lake.state, f"r{number}", report, at=datetime(2024, 4, 5, tzinfo=UTC) + timedelta(hours=number))


def test_runs_are_listed_newest_first(history, call, call_json):
    result = call("runs")
    rows = [line.split() for line in result.stdout.splitlines() if line.startswith("r")][1:]
    assert rows == [
        ["r2", "2024-04-05", "02:00:00", "3.5", "s", "3", "1", "1", "0", "1", "2", "1,500", "3"],
        ["r1", "2024-04-05", "01:00:00", "3.5", "s", "3", "1", "1", "0", "1", "2", "1,500", "3"],
    ]
    assert "2 runs" in result.stdout
    assert [run["run_id"] for run in call_json("runs", "--limit", "1")["runs"]] == ["r2"]
    assert call_json("runs", "--table", "sales.till")["runs"][0]["idle"] == 1


def test_one_run_is_shown_table_by_table(history, call, call_json):
    result = call("runs", "r1")
    assert result.exit_code == 0
    line = next(line for line in result.stdout.splitlines() if line.startswith("sales.product"))
    assert line.split() == [
        "sales.product", "done", "3", "batch", "2", "1,500", "1,497", "3", "append", "3.0", "s", "500", "7", "8",
    ]  # fmt: skip
    assert "sales.customer: failed: 3 bad rows" in result.stdout
    assert "sales.customer: try: repair the files" in result.stdout
    document = call_json("runs", "r1", "--table", "sales.product")
    assert (document["run_id"], document["reports"][0]["rows_applied"]) == ("r1", 1497)


def test_an_unknown_run_is_refused_and_an_empty_history_is_not(project, call):
    result = call("runs", "r9")
    assert (result.exit_code, "the history has no run r9" in result.stderr) == (2, True)
    empty = call("runs")
    assert (empty.exit_code, "note: the history has no runs" in empty.stderr) == (0, True)


def test_with_log_format_json_every_message_is_a_line_of_json(project, call):
    result = call("runs", "r9", "--log-format", "json")
    [line] = [json.loads(line) for line in result.stderr.splitlines()]
    assert (line["level"], line["event"], line["hint"]) == ("error", "error", "lakeward runs")
    result = call("runs", "--log-format", "json")
    [line] = [json.loads(line) for line in result.stderr.splitlines()]
    assert (line["level"], line["event"]) == ("info", "note")


class _Watcher:
    """Watches nothing."""

    def once(self) -> None:
        """Return no report."""


@pytest.mark.parametrize(("arguments", "port"), [([], 9001), (["--metrics-port", "9002"], 9002)])
def test_watch_answers_prometheus_on_the_port_that_is_set(project, call, answers, monkeypatch, arguments, port):
    (project / "lakeward.yaml").write_text("metrics: {port: 9001, address: 127.0.0.1}")
    answers("watch", _Watcher())
    served: list[tuple[int, str]] = []
    monkeypatch.setattr(Metrics, "serve", lambda self, port, address: served.append((port, address)))
    result = call("watch", "--once", *arguments)
    assert result.exit_code == 0, result.stderr
    assert served == [(port, "127.0.0.1")]
