"""Log records contain their run, table and op; observers receive everything and affect nothing."""

import json
import logging
import sys
import threading

import pytest
from tests.unit.runner.reports import DONE, FAILED, IDLE, OP, RUN

from lakeward import logs
from lakeward.cli.process import set_up_logging
from lakeward.errors import RetriableError
from lakeward.runner.observers import RunLog, SilentObserver, fan_out


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def tell_everything(observer) -> None:
    observer.run_started("r1", ["sales.product", "sales.till"])
    with logs.bind(run="r1", table="sales.product"):
        observer.table_started("sales.product")
        observer.retry("sales.product", 1, 2.5, RetriableError("the store is busy"))
        observer.op_published("sales.product", OP)
        observer.table_finished(DONE)
    observer.table_finished(IDLE)
    observer.table_finished(FAILED)
    observer.run_finished(RUN)


def test_events_are_json_lines_with_their_ids(capsys):
    set_up_logging(debug=False, quiet=False)
    tell_everything(RunLog())
    found = lines(capsys)
    assert [line["event"] for line in found] == [
        "run.started", "retry", "op.published", "table.finished", "table.failed", "run.finished",
    ]  # fmt: skip
    started, retry, op, done, failed, finished = found
    assert (started["run"], started["tables"]) == ("r1", 2)
    assert (retry["level"], retry["run"], retry["table"], retry["delay"]) == ("warning", "r1", "sales.product", 2.5)
    assert (op["run"], op["table"], op["op"], op["rows"], op["quarantined"]) == ("r1", "sales.product", 3, 1500, 3)
    assert (done["outcome"], done["rows"]) == ("done", 1497)
    assert (failed["level"], failed["error"], failed["hint"]) == ("error", "3 bad rows", "repair the files")
    assert (finished["done"], finished["idle"], finished["locked"], finished["failed"]) == (1, 1, 1, 1)
    assert all(line["time"].endswith("Z") for line in found)


def test_events_for_people_are_one_line_each(capsys):
    set_up_logging(debug=False, quiet=False, log_format="text")
    tell_everything(RunLog())
    written = [line.split(" ", 1)[1] for line in capsys.readouterr().err.splitlines()]
    assert written == [
        "run r1: 2 tables",
        "warning: sales.product: attempt 1 failed, next in 2.5 s: the store is busy",
        "sales.product: op 3 (batch) published: 2 files, 1,500 rows (3 set aside), 500 rows/s, 3.0 s, append",
        "sales.product: done in 3.5 s",
        "error: sales.customer: failed after 0.5 s: 3 bad rows",
        "run r1 finished in 4.0 s: 1 done, 1 idle, 1 locked, 1 failed",
    ]


def test_quiet_leaves_warnings_and_errors_and_debug_shows_idle_tables(capsys):
    set_up_logging(debug=False, quiet=True)
    tell_everything(RunLog())
    assert [line["level"] for line in lines(capsys)] == ["warning", "error"]
    set_up_logging(debug=True, quiet=False)
    tell_everything(RunLog())
    assert {"table.started", "table.finished"} <= {line["event"] for line in lines(capsys)}


def test_the_format_follows_the_terminal_by_default(capsys, monkeypatch):
    logger = logging.getLogger("lakeward.test")
    for is_terminal, log_format, is_json in ((True, "auto", False), (False, "auto", True), (True, "json", True)):
        monkeypatch.setattr(sys.stderr, "isatty", lambda answer=is_terminal: answer, raising=False)
        set_up_logging(debug=False, quiet=False, log_format=log_format)
        logger.warning("odd: %s", 7)
        written = capsys.readouterr().err
        assert written.startswith("{") == is_json
        assert "odd: 7" in written


def test_threads_keep_their_ids_apart(capsys):
    logs.log_to_stderr("json")
    logger = logging.getLogger("lakeward.test")
    barrier = threading.Barrier(3)

    def work(table: str) -> None:
        with logs.bind(run="r1", table=table), logs.bind(op=1):
            barrier.wait()
            logger.warning("at work")
            barrier.wait()

    threads = [threading.Thread(target=work, args=(name,)) for name in ("a.a", "a.b", "a.c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    logger.warning("outside")
    found = lines(capsys)
    assert sorted(line["table"] for line in found[:3]) == ["a.a", "a.b", "a.c"]
    assert {(line["run"], line["op"]) for line in found[:3]} == {("r1", 1)}
    assert "table" not in found[3] and found[3]["logger"] == "lakeward.test"


def test_a_traceback_stays_in_its_line(capsys):
    logs.log_to_stderr("json")
    try:
        int("odd")
    except ValueError:
        logging.getLogger("lakeward.test").exception("it broke")
    [line] = lines(capsys)
    assert "ValueError: invalid literal" in line["traceback"]


class _Broken(SilentObserver):
    def run_finished(self, report) -> None:
        msg = "cannot listen"
        raise OSError(msg)


class _Noting(SilentObserver):
    def __init__(self) -> None:
        self.received: list[str] = []

    def __getattribute__(self, name: str):
        if name in ("run_started", "table_started", "op_published", "retry", "table_finished", "run_finished"):
            self.received.append(name)
        return super().__getattribute__(name)


def test_an_observer_that_fails_is_logged_and_affects_no_other(capsys):
    set_up_logging(debug=False, quiet=False)
    noting = _Noting()
    tell_everything(fan_out([_Broken(), noting]))
    assert noting.received == [
        "run_started", "table_started", "retry", "op_published", *["table_finished"] * 3, "run_finished",
    ]  # fmt: skip
    [line] = lines(capsys)
    assert (line["level"], line["message"]) == ("warning", "_Broken failed: OSError: cannot listen")
