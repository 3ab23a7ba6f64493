"""What rounds run, that they overlap, and what comes again, on a lake that only takes notes."""

import logging
import threading
import time

import pytest
from tests.unit.runner.trigger_helpers import TIMEOUT, FakeClock, FakeLake, FakeReceipt, known

from lakeward.errors import ConfigurationError, RetriableError
from lakeward.mirror.op.report import Outcome
from lakeward.runner.watch.inbox import Inbox
from lakeward.runner.watch.requests import RunRequest
from lakeward.runner.watch.triggers import Every
from lakeward.runner.watch.watcher import Watcher

START = RunRequest("start", everything=True)


def landed(*folders, receipt=None):
    return RunRequest("landed", folders=frozenset(folders), receipt=receipt)


def await_true(condition):
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


class Stage:
    """A watcher with its clock and its inbox at hand."""

    def __init__(self, *tables, names=(), timers=(), **config):
        self.clock = FakeClock()
        self.inbox = Inbox(0.3, self.clock)
        self.lake = FakeLake(*tables, **config)
        self.reports = []
        self.watcher = Watcher(self.lake, self.inbox, names=names, timers=timers, observers=[self], clock=self.clock)

    def run_finished(self, report):
        self.reports.append(report)

    def request(self, *requests):
        """Advance the clock until requests are due, and let the watcher act on them."""
        for request in requests:
            self.inbox.put_later(request, 0.0, object())
        self.watcher.step()

    def begin(self, *requests):
        """Advance the clock until requests are due, and wait until their run begins."""
        before = len(self.lake.runs)
        self.request(*requests)
        await_true(lambda: len(self.lake.runs) > before)

    def round(self, *requests):
        """Advance the clock until requests are due, and wait until all their runs end."""
        self.request(*requests)
        self.end()

    def end(self):
        while self.watcher.is_running:
            self.watcher.step()

    def step_until(self, condition):
        """Go on while runs are in flight, until something is so."""
        deadline = time.monotonic() + TIMEOUT
        while not condition():
            assert time.monotonic() < deadline and self.watcher.is_running
            self.inbox.wake()
            self.watcher.step()

    def land(self, *folders, receipt=None):
        self.round(landed(*folders, receipt=receipt))

    def later(self, seconds):
        """Let time pass and return what is due then."""
        self.clock.now += seconds
        return self.inbox.take(0.0)


def test_only_the_tables_whose_files_landed_are_run():
    stage = Stage(known("a.one"), known("a.two"), known("a.three", active=False))
    stage.land("a/one")
    stage.land("a/three")
    stage.round(START)
    assert stage.lake.runs == [["a.one"], ["a.one", "a.two"]]
    assert len(stage.reports) == 2


def test_named_tables_alone_are_watched():
    stage = Stage(known("a.one"), known("a.two"), names=["a.two"])
    stage.land("a/one", "a/two")
    stage.round(START)
    assert stage.lake.runs == [["a.two"], ["a.two"]]


def test_a_new_table_is_registered_and_reported(caplog):
    stage = Stage(known("a.one"))
    stage.lake.found = [known("b.new", active=False)]
    stage.land("b/new")
    assert stage.lake.discoveries == 1 and stage.lake.runs == []
    assert "lakeward tables set b.new --primary-key COLUMN --activate" in caplog.text


def test_folders_that_no_table_reads_are_inspected_once_per_full_listing():
    stage = Stage(known("a.one"))
    for _ in range(3):
        stage.land("excluded/table")
    assert stage.lake.discoveries == 1
    stage.round(START)
    stage.land("excluded/table")
    assert stage.lake.discoveries == 3


def test_a_message_is_ended_only_when_all_its_tables_are_up_to_date():
    stage = Stage(known("a.one"), known("a.two"))
    stage.lake.answer("a.one", Outcome.DONE)
    done, failed, both = FakeReceipt(), FakeReceipt(), FakeReceipt()
    stage.lake.answer("a.two", Outcome.FAILED, error_kind="data")
    both_folders = landed("a/one", "a/two", receipt=both)
    stage.round(landed("a/one", receipt=done), landed("a/two", receipt=failed), both_folders)
    assert (done.end, failed.end, both.end) == ("done", "failed", "failed")
    assert stage.lake.runs == [["a.one", "a.two"]]
    assert stage.later(600) == (), "bad data is not tried again by itself"


def test_a_message_for_no_active_table_is_ended():
    stage, receipt = Stage(known("a.one", active=False)), FakeReceipt()
    stage.land("a/one", receipt=receipt)
    assert receipt.end == "done"


@pytest.mark.parametrize("outcome", [Outcome.WAITING, Outcome.LOCKED])
def test_a_table_that_waits_runs_again_and_its_message_is_held(outcome):
    stage, receipt = Stage(known("a.one", load_settle=60)), FakeReceipt()
    stage.lake.answer("a.one", outcome)
    stage.land("a/one", receipt=receipt)
    assert receipt.end is None
    again = stage.later(1)
    assert [request.tables for request in again] == [{"a.one"}]
    stage.lake.answer("a.one", Outcome.DONE)
    stage.round(*again)
    assert receipt.end == "done" and stage.later(600) == ()


def test_a_temporary_failure_is_retried_after_growing_pauses():
    stage = Stage(known("a.one"))
    stage.lake.answer("a.one", Outcome.FAILED, error_kind="retriable")
    requests, waits = [START], []
    for _ in range(11):
        stage.round(*requests)
        waited = 0
        while not (requests := stage.later(1)):
            waited += 1
        waits.append(waited + 1)
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    stage.lake.answer("a.one", Outcome.DONE)
    stage.round(*requests)
    stage.lake.answer("a.one", Outcome.FAILED, error_kind="retriable")
    stage.land("a/one")
    assert stage.later(1), "success starts the waits anew"


def test_a_load_that_settles_is_checked_within_a_quarter_of_its_time():
    stage = Stage(known("a.one", load_settle=20))
    stage.lake.answer("a.one", Outcome.WAITING)
    requests = [START]
    for _ in range(5):
        stage.round(*requests)
        stage.clock.now += 5
        requests = stage.inbox.take(0.0)
        assert requests


def test_an_outage_keeps_requests_and_is_reported_once(caplog):
    caplog.set_level(logging.INFO)
    stage, receipt = Stage(known("a.one")), FakeReceipt()
    stage.lake.error = RetriableError("the state store does not answer")
    stage.land("a/one", receipt=receipt)
    for seconds in (1, 2, 4):
        stage.round(*stage.later(seconds))
    assert caplog.text.count("does not answer") == 1 and receipt.end is None
    stage.lake.error = None
    stage.round(*stage.later(8))
    assert receipt.end == "done" and stage.lake.runs == [["a.one"]]
    assert "works again" in caplog.text


def test_an_empty_landing_folder_is_waited_for():
    stage = Stage(known("a.one"))
    stage.lake.error = ConfigurationError("landing is missing or empty")
    stage.round(START)
    stage.lake.error = None
    stage.round(*stage.later(1))
    assert stage.lake.runs == [["a.one"]]


def test_without_spark_watching_ends():
    stage = Stage(known("a.one"))
    stage.lake.alive = False
    stage.lake.answer("a.one", Outcome.FAILED, error_kind="bug")
    with pytest.raises(RetriableError, match="Spark application has ended"):
        stage.land("a/one")
    stage.lake.error = ConnectionRefusedError("py4j")
    with pytest.raises(RetriableError, match="Spark application has ended"):
        stage.land("a/one")


def test_a_timer_runs_everything_once_however_many_ticks_were_missed():
    clock = FakeClock()
    stage = Stage(known("a.one"), timers=[Every(600, clock, reason="every 600 s")])
    clock.now += 600 * 7
    stage.watcher.step()
    stage.end()
    assert stage.lake.runs == [["a.one"]]


def test_a_slow_table_does_not_delay_another_nor_the_others_of_its_round():
    stage = Stage(known("a.slow"), known("a.two"), known("a.three"))
    gate = stage.lake.hold("a.slow")
    stage.begin(START)
    for number in range(2, 5):
        stage.request(landed("a/two"))
        stage.step_until(lambda number=number: len(stage.reports) == number - 1)
        assert stage.lake.runs[1:] == [["a.two"]] * (number - 1), "the round of the start goes on"
    gate.set()
    stage.end()
    assert sorted(table.table for table in stage.reports[-1].tables) == ["a.slow", "a.three", "a.two"]


def test_requests_for_a_running_table_are_delivered_when_its_run_has_ended():
    stage, receipt = Stage(known("a.slow"), known("a.two")), FakeReceipt()
    gate = stage.lake.hold("a.slow")
    stage.begin(landed("a/slow"))
    for _ in range(3):
        stage.request(landed("a/slow"))
    stage.request(landed("a/slow", "a/two", receipt=receipt))
    stage.step_until(lambda: len(stage.reports) == 1)
    assert stage.lake.runs == [["a.slow"], ["a.two"]], "what is free is run, the rest is kept"
    assert receipt.end is None, "the run of a.slow may have listed before the message came"
    del stage.lake.gates["a.slow"]
    gate.set()
    stage.end()
    assert stage.lake.runs == [["a.slow"], ["a.two"], ["a.slow"]] and receipt.end == "done"


def test_a_message_is_released_as_soon_as_one_of_its_tables_failed():
    stage, receipt = Stage(known("a.slow"), known("a.two")), FakeReceipt()
    stage.lake.answer("a.two", Outcome.FAILED, error_kind="data")
    gate = stage.lake.hold("a.slow")
    stage.request(landed("a/slow", "a/two", receipt=receipt))
    stage.step_until(lambda: receipt.end == "failed")
    gate.set()
    stage.end()
    assert receipt.end == "failed"


def test_no_round_begins_while_the_allowed_number_of_tables_is_running():
    tables = [known(f"a.t{number}") for number in range(6)]
    stage = Stage(*tables, parallel=3)
    gates = [stage.lake.hold(f"a.t{number}") for number in range(6)]
    for number in range(3):
        stage.begin(landed(f"a/t{number}"))
    for number in range(3, 6):
        stage.request(landed(f"a/t{number}"))
    assert stage.lake.runs == [["a.t0"], ["a.t1"], ["a.t2"]]
    gates[1].set()
    stage.step_until(lambda: len(stage.lake.runs) == 4)
    assert stage.lake.runs[3] == ["a.t3", "a.t4", "a.t5"], "what waited is one round"
    for gate in gates:
        gate.set()
    stage.end()
    assert len(stage.reports) == 4


def test_temporary_errors_are_retried_by_the_watcher_and_not_within_a_run():
    stage = Stage(known("a.one"))
    stage.land("a/one")
    assert stage.lake.attempts == [0]


def test_an_outage_of_one_round_leaves_the_others_alone():
    stage, receipt = Stage(known("a.slow"), known("a.two")), FakeReceipt()
    gate = stage.lake.hold("a.slow")
    stage.begin(landed("a/slow"))
    stage.lake.error = RetriableError("landing does not answer")
    stage.request(landed("a/two", receipt=receipt))
    stage.step_until(lambda: stage.watcher._outages == 1)
    stage.lake.error = None
    gate.set()
    stage.end()
    assert receipt.end is None
    stage.round(*stage.later(1))
    assert stage.lake.runs == [["a.slow"], ["a.two"]] and receipt.end == "done"


def test_the_message_of_a_table_without_further_tries_is_deleted():
    stage, receipt = Stage(known("a.one"), known("a.two")), FakeReceipt()
    stage.lake.answer("a.one", Outcome.WAITING)
    stage.land("a/one", receipt=receipt)
    assert receipt.end is None
    stage.lake.known = [known("a.one", active=False), known("a.two")]
    stage.land("a/two")
    assert receipt.end == "done" and stage.lake.runs == [["a.one"], ["a.two"]]


def test_a_bug_in_one_run_is_reported_and_retried_and_the_others_continue(caplog):
    stage, receipt = Stage(known("a.slow"), known("a.two")), FakeReceipt()
    gate = stage.lake.hold("a.slow")
    stage.begin(landed("a/slow"))
    stage.lake.error = ZeroDivisionError("a bug")
    stage.request(landed("a/two", receipt=receipt))
    stage.step_until(lambda: stage.watcher._outages == 1)
    assert "nothing was run: ZeroDivisionError: a bug; trying again" in caplog.text
    stage.lake.error = None
    gate.set()
    stage.end()
    stage.round(*stage.later(1))
    assert stage.lake.runs == [["a.slow"], ["a.two"]] and receipt.end == "done"


def test_an_observer_that_fails_does_not_end_the_watch(caplog):
    stage = Stage(known("a.one"))

    class Failing:
        def run_finished(self, report):
            raise ZeroDivisionError

    stage.watcher._observers = (Failing(), *stage.watcher._observers)
    stage.land("a/one")
    stage.land("a/one")
    assert stage.lake.runs == [["a.one"], ["a.one"]] and "Failing failed: ZeroDivisionError" in caplog.text


def test_an_exception_that_ends_a_process_ends_the_watch_and_the_other_runs():
    class Crash(BaseException):
        pass

    stage = Stage(known("a.slow"), known("a.two"))
    stage.lake.hold("a.slow")
    failures = []

    def watch():
        try:
            stage.watcher.run()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=watch)
    thread.start()
    await_true(lambda: stage.lake.runs)
    await_true(lambda: "a.two" not in stage.watcher._pending._running)
    stage.lake.error = Crash("a bug")
    stage.inbox.put_later(landed("a/two"), 0.0, "two")
    thread.join(TIMEOUT)
    assert not thread.is_alive() and [str(failure) for failure in failures] == ["a bug"]
    assert not stage.watcher.is_running and stage.reports == []


class Recorder:
    """A trigger that records its calls and then ends the watch."""

    def __init__(self, inbox, receipt=None):
        self.calls, self._inbox, self._receipt = [], inbox, receipt

    def start(self):
        self.calls.append("start")

    def drain(self):
        self.calls.append("drain")
        self._inbox.put(RunRequest("m", folders=frozenset(["a/one"]), receipt=self._receipt))

    def stop(self):
        self.calls.append("stop")


def test_once_processes_what_waits_in_the_queue_and_ends():
    stage, receipt = Stage(known("a.one")), FakeReceipt()
    trigger = Recorder(stage.inbox, receipt)
    report = Watcher(stage.lake, stage.inbox, triggers=[trigger]).once()
    assert report is not None and report.exit_code == 0
    assert (trigger.calls, receipt.end, stage.lake.runs) == (["drain", "stop"], "done", [["a.one"]])


class Receiver(Recorder):
    """A trigger with a message for two tables, whose watch ends once one of them is done."""

    def __init__(self, stage, receipts):
        super().__init__(stage.inbox)
        self._stage, self._receipts = stage, receipts

    def start(self):
        super().start()
        for table, receipt in self._receipts.items():
            self._inbox.put_later(landed(table.replace(".", "/"), receipt=receipt), 0.0, table)

    def stop(self):
        self.calls.append(("stop", self._stage.watcher.is_running))


@pytest.mark.parametrize("by_interrupt", [True, False])
def test_the_end_of_watching_ends_every_run_and_keeps_unfinished_messages(by_interrupt, monkeypatch):
    stage = Stage(known("a.one"), known("a.slow"))
    stage.lake.hold("a.slow")
    receipts = {"a.one": FakeReceipt(), "a.slow": FakeReceipt()}
    trigger = Receiver(stage, receipts)
    watcher = stage.watcher = Watcher(stage.lake, stage.inbox, triggers=[trigger])
    step = watcher.step

    def end():
        if receipts["a.one"].end is None:
            step()
        elif by_interrupt:
            raise KeyboardInterrupt
        else:
            watcher.stop()

    monkeypatch.setattr(watcher, "step", end)
    if by_interrupt:
        with pytest.raises(KeyboardInterrupt):
            watcher.run()
    else:
        watcher.run()
    assert trigger.calls == ["start", ("stop", False)], "messages are given back when the runs have ended"
    assert (receipts["a.one"].end, receipts["a.slow"].end) == ("done", None)


def test_triggers_are_stopped_whatever_ends_the_watch():
    stage = Stage(known("a.one"))
    stage.lake.error = KeyboardInterrupt()
    trigger = Recorder(stage.inbox)
    with pytest.raises(KeyboardInterrupt):
        Watcher(stage.lake, stage.inbox, triggers=[trigger]).run()
    assert trigger.calls == ["start", "stop"]


def step(stage):
    """Let the watcher act once, although nothing may be due."""
    stage.inbox.wake()
    stage.watcher.step()
    stage.end()


def test_tables_whose_snapshots_become_due_are_run_although_nothing_landed():
    plan = {"snapshots": {"every": "hour", "to": "out", "settle": "10m"}}
    stage = Stage(
        known("a.one", **plan), known("a.two"), known("a.three", **plan), known("a.off", active=False, **plan)
    )
    stage.round(START)
    stage.clock.now = 3600.0 * 400 + 599
    step(stage)  # earlier hours became due meanwhile
    stage.lake.runs.clear()
    assert stage.watcher._snapshots.wait() == pytest.approx(1)
    step(stage)
    stage.clock.now += 1
    assert (stage.lake.runs, stage.watcher._snapshots.wait()) == ([], 0)
    step(stage)
    assert stage.lake.runs == [["a.one", "a.three"]]
    assert stage.watcher._snapshots.wait() == pytest.approx(3600)
    stage.lake.known = [known("a.two")]
    stage.round(START)
    assert stage.watcher._snapshots.wait() is None


def test_a_wall_clock_set_back_does_not_stop_snapshots():
    stage = Stage(known("a.one", snapshots={"every": "hour", "to": "out"}))
    stage.round(START)
    stage.clock.now = 3600.0 * 100 + 60
    step(stage)
    assert stage.watcher._snapshots.wait() == pytest.approx(3540)
