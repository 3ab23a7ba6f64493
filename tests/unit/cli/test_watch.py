"""``lakeward watch`` as far as it goes without Spark: what it refuses, and how options reach the watcher."""

import json

import pytest

from lakeward.errors import RetriableError
from lakeward.mirror.op.report import OpReport, Outcome, RowCounts, RunReport, TableReport
from lakeward.runner.watch.queue import QueuePoller
from lakeward.runner.watch.triggers import Cron, Every, FolderWatcher

OP = OpReport(1, "load", 1, 2, 10, RowCounts(rows=3, bad=1), 3, 0, "load", "first load")
REPORT = RunReport(
    "r1",
    (
        TableReport("a.done", Outcome.DONE, (OP,), seconds=1.5),
        TableReport("a.idle", Outcome.IDLE),
        TableReport("a.late", Outcome.WAITING, message="load parts arrived 1 s ago"),
        TableReport("a.bad", Outcome.FAILED, message="a.bad: a row does not fit", hint="mend it", exit_code=3),
    ),
    2.0,
)


@pytest.fixture
def watchers(monkeypatch):
    """Catch watchers instead of running them; each is notified of one run."""
    caught = []

    def finish(self):
        caught.append(self)
        for observer in self._observers:
            observer.run_finished(REPORT)
        return REPORT

    monkeypatch.setattr("lakeward.runner.watch.watcher.Watcher.run", finish)
    monkeypatch.setattr("lakeward.runner.watch.watcher.Watcher.once", finish)
    return caught


def test_a_local_folder_is_watched_directly(project, call, watchers):
    assert call("watch").exit_code == 0
    [watcher] = watchers
    assert [type(trigger) for trigger in watcher._triggers] == [FolderWatcher]
    assert [timer.reason for timer in watcher._timers] == ["full look"]
    assert watcher._inbox._buffer.settle == 0.3


def test_a_schedule_replaces_watching(project, call, watchers):
    call("watch", "--every", "10m", "--cron", "0 * * * *", "--timezone", "Europe/Berlin", "--rescan", "0")
    [watcher] = watchers
    assert watcher._triggers == [] and [type(timer) for timer in watcher._timers] == [Every, Cron]
    assert watcher._timers[0]._seconds == 600


def test_options_override_settings_of_the_file(project, call, watchers, monkeypatch):
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    (project / "lakeward.yaml").write_text(
        "landing: s3://bucket/landing\n"
        "watch: {queue: 'https://sqs.eu-west-1.amazonaws.com/1/q', settle: 2s, rescan: 1h, prefix: sales/}\n"
    )
    call("watch", "--settle", "1", "--suffix", ".csv", "--suffix", ".parquet")
    [watcher] = watchers
    [poller] = watcher._triggers
    assert isinstance(poller, QueuePoller)
    assert (poller._accepts.prefixes, poller._accepts.suffixes) == (("sales/",), (".csv", ".parquet"))
    assert watcher._inbox._buffer.settle == 1 and watcher._timers[0]._seconds == 3600


def test_text_has_a_line_per_table_that_did_something(project, call, watchers):
    result = call("watch")
    lines = [line.split("  ", 1)[1] for line in result.stdout.splitlines()]
    assert lines[0] == "a.done  done  1 op  2 files  3 rows  1 row set aside  1.5 s"
    assert lines[1].startswith("a.late  waiting") and lines[1].endswith("load parts arrived 1 s ago")
    assert len(lines) == 3
    assert "a row does not fit" in result.stderr and "mend it" in result.stderr


def test_json_has_a_line_per_run(project, call, watchers):
    [line] = call("watch", "--output", "json").stdout.splitlines()
    assert json.loads(line) == json.loads(json.dumps(REPORT.to_dict()))


def test_once_returns_the_exit_code_of_its_run(project, call, watchers):
    assert call("watch", "--once").exit_code == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no.table"], "no table no.table"),
        (["--every", "soon"], "'soon' is not a span of time"),
        (["--cron", "hourly"], "not a cron expression"),
        (["--queue", "https://sqs.eu-west-1.amazonaws.com/1/q"], "reports objects in S3, but landing is"),
    ],
)
def test_landings_that_cannot_be_watched_are_refused(project, call, arguments, message):
    result = call("watch", *arguments)
    assert result.exit_code == 2 and message in result.stderr


def test_s3_needs_a_queue_that_reports_objects(project, call):
    (project / "lakeward.yaml").write_text("landing: s3://bucket/landing\n")
    result = call("watch")
    assert result.exit_code == 2
    assert "--queue URL" in result.stderr and "--every 10m" in result.stderr


def test_a_wrong_setting_is_reported_with_its_key(project, call):
    (project / "lakeward.yaml").write_text("watch: {every: soon, ques: x}\n")
    result = call("watch")
    assert "watch.every" in result.stderr and "did you mean 'queue'" in result.stderr


def test_the_end_of_spark_ends_the_command(project, call, monkeypatch):
    def end(self):
        raise RetriableError("the Spark application has ended")  # noqa: EM101

    monkeypatch.setattr("lakeward.runner.watch.watcher.Watcher.run", end)
    assert call("watch").exit_code == 3
