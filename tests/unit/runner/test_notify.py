"""Notifications: once per row of failures and once when it ends, to a real HTTP server and through SNS to SQS."""

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tests.servers.moto import CREDENTIALS, REGION, moto_client
from tests.unit.runner.reports import DONE, FAILED, NOW, record

from lakeward.config.services import NotifySettings
from lakeward.errors import ConfigurationError
from lakeward.mirror.op.report import Outcome, RunReport, TableReport
from lakeward.runner.notify import Notice, Notifier, Webhook, open_channels
from lakeward.state.memory import MemoryStateStore

NOTICE = Notice("failure", "lakeward: a.b failed", "r1", "2024-04-05T01:02:03+00:00", ())


@dataclass
class Hook:
    """A server that keeps what is posted and answers with the configured statuses in turn, then 200."""

    url: str = ""
    bodies: list[dict] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    requests: int = 0
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Length": "0"})
    trickles: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)


@pytest.fixture
def hook() -> Iterator[Hook]:
    received = Hook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = received.statuses.pop(0) if received.statuses else 200
            received.requests += 1
            if status == 200:
                assert self.headers["Content-Type"] == "application/json"
                received.bodies.append(json.loads(body))
            self.send_response(status)
            for name, value in received.headers.items():
                self.send_header(name, value)
            self.end_headers()
            while received.trickles.is_set() and not received.done.wait(0.05):
                self.wfile.write(b"x")

        def log_message(self, *_: object) -> None:
            """Be quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    received.url = f"http://127.0.0.1:{server.server_port}/secret-path"
    yield received
    received.done.set()
    server.shutdown()
    server.server_close()
    thread.join()


class Runs:
    """Runs of a few tables, reported to a notifier as the runner reports them."""

    def __init__(self, hook: Hook, **settings: object) -> None:
        self.state = MemoryStateStore()
        self.number = 0
        on = NotifySettings.model_validate({"webhook": hook.url, **settings}).on
        self.notifier = Notifier(self.state, [Webhook(hook.url, delays=(0, 0))], on=on)

    def run(self, *reports: TableReport) -> None:
        self.number += 1
        run_id, at = f"r{self.number}", NOW + timedelta(minutes=self.number)
        self.notifier.run_started(run_id, [report.table for report in reports])
        for report in reports:
            if report.outcome is not Outcome.LOCKED:
                record(self.state, run_id, report, at=at)
        self.notifier.run_finished(RunReport(run_id, reports))


def test_one_message_is_sent_when_a_table_fails_and_one_when_it_recovers(hook):
    runs = Runs(hook)
    well = replace(FAILED, outcome=Outcome.IDLE, message=None, hint=None, error_kind=None)
    for report in (well, FAILED, FAILED, replace(FAILED, outcome=Outcome.LOCKED), FAILED, well, well, FAILED):
        runs.run(report, DONE)
    assert [(body["event"], body["run_id"]) for body in hook.bodies] == [
        ("failure", "r2"), ("recovery", "r6"), ("failure", "r8"),
    ]  # fmt: skip
    failure, recovery, again = hook.bodies
    assert failure["text"] == "lakeward: sales.customer failed: 3 bad rows"
    assert failure["tables"] == [
        {
            "table": "sales.customer", "error": "3 bad rows", "hint": "repair the files", "error_kind": "data",
            "since": "2024-04-05T01:04:03+00:00",
        }
    ]  # fmt: skip
    assert recovery["text"] == "lakeward: sales.customer recovered"
    assert recovery["tables"][0]["since"] == "2024-04-05T01:04:03+00:00"
    assert again["tables"][0]["since"] == "2024-04-05T01:10:03+00:00"


def test_of_overlapping_runs_the_newest_is_reported_last(hook):
    runs = Runs(hook)
    well = replace(FAILED, outcome=Outcome.IDLE, message=None, hint=None, error_kind=None)
    notifier, long, short = runs.notifier, RunReport("long", (FAILED, DONE)), RunReport("short", (well,))
    notifier.run_started("long", [FAILED.table, DONE.table])
    record(runs.state, "long", FAILED, at=NOW)
    notifier.run_started("short", [FAILED.table])
    record(runs.state, "short", well, at=NOW + timedelta(minutes=1))
    notifier.run_finished(short)
    notifier.run_finished(long)
    assert hook.bodies == [], "it failed and recovered before a message was sent"
    runs.run(FAILED)
    notifier.run_started("long", [FAILED.table])
    notifier.run_started("short", [FAILED.table])
    record(runs.state, "short", well, at=NOW + timedelta(minutes=3))
    notifier.run_finished(short)
    notifier.run_finished(replace(long, tables=(FAILED,)))
    assert [(body["event"], body["run_id"]) for body in hook.bodies] == [("failure", "r1"), ("recovery", "short")]


def test_tables_that_fail_together_are_one_message(hook):
    runs = Runs(hook)
    runs.run(*[replace(FAILED, table=f"sales.t{number:03}") for number in range(120)])
    [body] = hook.bodies
    assert (len(body["tables"]), body["more"]) == (100, 20)
    assert body["text"].startswith("lakeward: 120 tables failed: sales.t000, sales.t001")


def test_only_configured_events_are_sent(hook):
    runs = Runs(hook, on="failure")
    runs.run(FAILED)
    runs.run(replace(FAILED, outcome=Outcome.DONE))
    assert [body["event"] for body in hook.bodies] == ["failure"]


def test_a_busy_server_is_retried_and_a_refusal_is_not(hook):
    hook.statuses = [503, 429]
    Webhook(hook.url, delays=(0, 0)).send(NOTICE)
    assert (len(hook.bodies), hook.requests) == (1, 3)
    hook.statuses = [404]
    with pytest.raises(OSError, match="404"):
        Webhook(hook.url, delays=(0, 0)).send(NOTICE)
    assert hook.requests == 4


def test_a_message_that_cannot_be_delivered_is_a_warning_without_the_address(hook, caplog):
    hook.statuses = [500] * 3
    runs = Runs(hook)
    runs.run(FAILED)
    assert "failure of 1 tables could not be sent to the webhook at 127.0.0.1: HTTP Error 500" in caplog.text
    assert "secret-path" not in caplog.text
    assert hook.requests == 3


def test_the_webhook_may_come_from_the_environment(hook, monkeypatch):
    settings = NotifySettings(webhook="env:TEAM_HOOK")
    with pytest.raises(ConfigurationError, match="'TEAM_HOOK', which is not set"):
        open_channels(settings)
    monkeypatch.setenv("TEAM_HOOK", hook.url)
    [channel] = open_channels(settings)
    channel.send(NOTICE)
    assert hook.bodies[0]["text"] == NOTICE.text
    assert "secret-path" not in repr(NotifySettings(webhook=hook.url))


def test_sns_reaches_a_queue(moto_endpoint, monkeypatch):
    sns, sqs = moto_client("sns", moto_endpoint), moto_client("sqs", moto_endpoint)
    try:
        topic = sns.create_topic(Name="notify-test")["TopicArn"]
        queue = sqs.create_queue(QueueName="notify-test")["QueueUrl"]
        arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
        for name, value in CREDENTIALS.items():
            monkeypatch.setenv(name.upper(), value)
        monkeypatch.setenv("AWS_ENDPOINT_URL", moto_endpoint)
        assert REGION in topic
        [channel] = open_channels(NotifySettings(sns=topic))
        channel.send(replace(NOTICE, text="lakeward: a.b failed: ünlesbar " + "x" * 200))
        [message] = sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=5)["Messages"]
        envelope = json.loads(message["Body"])
        assert envelope["Subject"].startswith("lakeward: a.b failed: ?nlesbar")
        assert json.loads(envelope["Message"])["run_id"] == "r1"
    finally:
        sns.close()
        sqs.close()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "has no receiver"),
        ({"webhook": "ftp://x"}, "expected https://… or env:NAME"),
        ({"webhook": "https://x/se cret"}, "contains a space"),
        ({"webhook": "https://x/se\ncret"}, "contains a space, a control"),
        ({"webhook": "https:///secret"}, "has no host"),
        ({"webhook": "https://x:secret/"}, "has no host, or an invalid port"),
        ({"webhook": "https://me:secret@x/"}, "contains a login"),
        ({"sns": "topic"}, "not the ARN of a topic"),
        ({"webhook": "https://x", "on": ["success"]}, "'failure' or 'recovery'"),
    ],
)
def test_settings_that_cannot_work_are_refused(given, words):
    with pytest.raises(ValueError, match=words) as refused:
        NotifySettings.model_validate(given)
    assert "cret" not in str(refused.value)


def test_a_webhook_of_the_environment_that_is_no_url_is_refused_without_repeating_it(monkeypatch):
    monkeypatch.setenv("TEAM_HOOK", "https://x/se cret")
    with pytest.raises(ConfigurationError, match="notify: webhook: contains a space") as refused:
        open_channels(NotifySettings(webhook="env:TEAM_HOOK"))
    assert "cret" not in str(refused.value)


def test_a_redirect_is_a_failure_and_is_not_followed(hook):
    hook.statuses, hook.headers = [302], {"Location": f"{hook.url}/other", "Content-Length": "0"}
    with pytest.raises(OSError, match="302"):
        Webhook(hook.url, delays=(0, 0)).send(NOTICE)
    assert (hook.requests, hook.bodies) == (1, [])


def test_an_endless_answer_is_not_read(hook):
    hook.headers = {"Content-Length": str(1 << 40)}
    hook.trickles.set()
    Webhook(hook.url, timeout=60, delays=()).send(NOTICE)
    assert len(hook.bodies) == 1


def test_a_server_that_answers_byte_by_byte_has_no_more_time_than_others():
    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection, contextlib.suppress(OSError):
                while not done.wait(0.05):
                    connection.sendall(b"x")

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with pytest.raises(TimeoutError, match="no answer within"):
                Webhook(f"http://127.0.0.1:{server.getsockname()[1]}/", timeout=0.5, delays=()).send(NOTICE)
        finally:
            done.set()
            thread.join()
