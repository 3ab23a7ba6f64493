"""The queue poller on a real queue: S3 events by S3 itself, SNS and EventBridge, and everything else that may come."""

import json
import queue
import time
import uuid
from contextlib import contextmanager

import pytest

from lakeward.errors import ConfigurationError, RetriableError
from lakeward.runner.watch.queue import Queue, QueuePoller
from lakeward.runner.watch.requests import PathFilter
from tests.servers.moto import CREDENTIALS, REGION, moto_client

ACCOUNT = "123456789012"
# Only reached when the code under test hangs.
PATIENCE = 300


class Aws:
    """Clients of the server, and a queue that lasts for one test."""

    def __init__(self, endpoint):
        self.sqs, self.s3 = moto_client("sqs", endpoint), moto_client("s3", endpoint)
        self.sns, self.events = moto_client("sns", endpoint), moto_client("events", endpoint)
        self.name = f"q{uuid.uuid4().hex[:12]}"
        self.url = self.sqs.create_queue(QueueName=self.name)["QueueUrl"]
        self.arn = f"arn:aws:sqs:{REGION}:{ACCOUNT}:{self.name}"

    def bucket(self, **configuration):
        self.s3.create_bucket(Bucket=self.name, CreateBucketConfiguration={"LocationConstraint": REGION})
        self.s3.put_bucket_notification_configuration(Bucket=self.name, NotificationConfiguration=configuration)
        return self.name

    def send(self, *bodies):
        for body in bodies:
            self.sqs.send_message(QueueUrl=self.url, MessageBody=body if isinstance(body, str) else json.dumps(body))

    def count(self):
        """Messages that wait and messages in work."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=names)["Attributes"]
        return tuple(int(found[name]) for name in names)

    def settles_at(self, *expected):
        deadline = time.monotonic() + PATIENCE
        while (found := self.count()) != expected and time.monotonic() < deadline:
            time.sleep(0.05)
        return found == expected

    def close(self):
        for client in (self.sqs, self.s3, self.sns, self.events):
            client.close()


@pytest.fixture
def aws(moto_endpoint, monkeypatch):
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name.upper(), value)
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    found = Aws(moto_endpoint)
    yield found
    found.close()


@contextmanager
def polling(aws, landing=None, *, accepts=None, hold=30):
    asks = queue.Queue()
    source = Queue(aws.url, hold_seconds=hold, wait_seconds=1)
    poller = QueuePoller(source, landing or f"s3://{aws.name}/landing", asks.put, accepts)
    poller.start()
    try:
        yield asks
    finally:
        poller.stop()


def record(key, bucket):
    names = {"bucket": {"name": bucket}, "object": {"key": key}}
    return {"Records": [{"eventSource": "aws:s3", "eventName": "ObjectCreated:Put", "s3": names}]}


def test_events_of_s3_itself(aws):
    bucket = aws.bucket(QueueConfigurations=[{"QueueArn": aws.arn, "Events": ["s3:ObjectCreated:*"]}])
    with polling(aws) as asks:
        aws.s3.put_object(Bucket=bucket, Key="landing/sales/my product+ä/1.csv", Body=b"x")
        ask = asks.get(timeout=PATIENCE)
        assert ask.folders == {"sales/my product+ä"}
        assert aws.settles_at(0, 1), "in work, and the test event is gone"
        ask.receipt.done()
        assert aws.settles_at(0, 0)


@pytest.mark.parametrize("raw", ["true", "false"])
def test_events_by_sns(aws, raw):
    topic = aws.sns.create_topic(Name=aws.name)["TopicArn"]
    delivery = {"RawMessageDelivery": raw}
    aws.sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=aws.arn, Attributes=delivery)
    aws.sns.publish(TopicArn=topic, Message=json.dumps(record("landing/sales/product/1.csv", aws.name)))
    with polling(aws) as asks:
        assert asks.get(timeout=PATIENCE).folders == {"sales/product"}


def test_events_by_event_bridge(aws):
    bucket = aws.bucket(EventBridgeConfiguration={})
    pattern = json.dumps({"source": ["aws.s3"], "detail": {"bucket": {"name": [bucket]}}})
    aws.events.put_rule(Name=aws.name, EventPattern=pattern)
    aws.events.put_targets(Rule=aws.name, Targets=[{"Id": "queue", "Arn": aws.arn}])
    with polling(aws) as asks:
        aws.s3.put_object(Bucket=bucket, Key="landing/sales/product/a+b.csv", Body=b"x")
        assert asks.get(timeout=PATIENCE).folders == {"sales/product"}


def test_messages_about_other_files_are_logged_and_deleted(aws, caplog):
    caplog.set_level("INFO")
    elsewhere = record("landing/sales/product/1.csv", "another-bucket")
    outside, hidden = record("other/sales/product/1.csv", aws.name), record("landing/sales/_x/1.csv", aws.name)
    aws.send("no json", "{}", {"Event": "s3:TestEvent"}, elsewhere, outside, hidden)
    aws.send(record("landing/sales/product/1.json", aws.name))
    with polling(aws, accepts=PathFilter(suffixes=(".csv",))) as asks:
        assert aws.settles_at(0, 0)
        assert asks.empty()
    assert caplog.text.count("not an S3 event notification") == 2
    assert f"first s3://another-bucket/{elsewhere['Records'][0]['s3']['object']['key']}" in caplog.text


def test_a_failed_message_is_redelivered_and_goes_to_the_dead_letter_queue(aws):
    dead = aws.sqs.create_queue(QueueName=f"{aws.name}-dead")["QueueUrl"]
    policy = {"deadLetterTargetArn": f"{aws.arn}-dead", "maxReceiveCount": 2}
    aws.sqs.set_queue_attributes(QueueUrl=aws.url, Attributes={"RedrivePolicy": json.dumps(policy)})
    aws.send(record("landing/sales/product/1.csv", aws.name))
    with polling(aws, hold=3) as asks:
        for _ in range(2):
            asks.get(timeout=PATIENCE).receipt.failed()
        deadline = time.monotonic() + PATIENCE
        while not (found := aws.sqs.receive_message(QueueUrl=dead).get("Messages")) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert found and asks.empty()


def test_a_message_in_progress_stays_invisible_and_is_released_at_the_end(aws):
    aws.send(record("landing/sales/product/1.csv", aws.name))
    # Long enough for a starved machine to prolong it in time.
    with polling(aws, hold=6) as asks:
        asks.get(timeout=PATIENCE)
        time.sleep(7)
        assert aws.count() == (0, 1) and asks.empty(), "its time was prolonged"
    assert aws.count() == (1, 0)


def test_a_message_received_again_while_in_progress_is_requested_once(aws):
    asks = queue.Queue()
    source = Queue(aws.url, wait_seconds=1)
    poller = QueuePoller(source, f"s3://{aws.name}/landing", asks.put)
    body = json.dumps(record("landing/sales/product/1.csv", aws.name))
    for handle in ("old", "new"):
        poller._accept({"MessageId": "m", "ReceiptHandle": handle, "Body": body})
    ask = asks.get_nowait()
    assert asks.empty() and ask.receipt.handle == "new"
    source.close()


def test_draining_processes_what_waits_and_no_more(aws):
    aws.send(*[record(f"landing/sales/t{number}/1.csv", aws.name) for number in range(23)])
    asks = queue.Queue()
    poller = QueuePoller(Queue(aws.url, wait_seconds=1), f"s3://{aws.name}/landing", asks.put)
    poller.drain()
    assert asks.qsize() == 23
    while not asks.empty():
        asks.get().receipt.done()
    poller.stop()
    assert aws.count() == (0, 0)


def test_a_queue_that_does_not_exist_is_refused(aws):
    missing = Queue(aws.url + "-missing", wait_seconds=1)
    with pytest.raises(ConfigurationError, match="-missing"):
        QueuePoller(missing, "s3://b", print).start()
    missing.close()


@pytest.mark.parametrize("url", ["", "my-queue", "arn:aws:sqs:eu-west-1:1:q", "https://sqs.eu-west-1.amazonaws.com"])
def test_a_text_that_is_not_a_queue_url_is_refused(url):
    with pytest.raises(ConfigurationError, match="not the URL of a queue"):
        Queue(url)


def test_a_service_out_of_reach_may_return(aws, monkeypatch):
    nowhere = Queue("http://127.0.0.1:9/1/q", wait_seconds=1)
    with pytest.raises(RetriableError, match=r"127\.0\.0\.1:9"):
        nowhere.receive()
    nowhere.close()


def test_missing_credentials_are_reported(monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    source = Queue("https://sqs.eu-west-1.amazonaws.com/1/q")
    assert source._client.meta.region_name == "eu-west-1"
    with pytest.raises(ConfigurationError, match="credentials"):
        source.receive()
    source.close()
    with pytest.raises(ConfigurationError, match="region"):
        Queue("http://127.0.0.1:9/1/q")


def test_without_boto3_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "boto3", None)
    with pytest.raises(ConfigurationError) as missing:
        Queue("https://sqs.eu-west-1.amazonaws.com/1/q")
    assert missing.value.hint == "pip install 'lakeward[aws]'"


def test_an_outage_of_the_service_is_logged_and_waited_for(aws, caplog, monkeypatch):
    monkeypatch.setattr("lakeward.runner.watch.queue._OUTAGE_FIRST", 0.05)
    source = Queue(aws.url, wait_seconds=1)
    receive, failures = source.receive, iter(range(2))

    def failing(**options):
        if next(failures, None) is not None:
            raise RetriableError("queue: no answer")  # noqa: EM101
        return receive(**options)

    monkeypatch.setattr(source, "receive", failing)
    asks = queue.Queue()
    poller = QueuePoller(source, f"s3://{aws.name}/landing", asks.put)
    poller.start()
    aws.send(record("landing/sales/product/1.csv", aws.name))
    assert asks.get(timeout=PATIENCE).folders == {"sales/product"}
    poller.stop()
    assert caplog.text.count("queue: no answer; trying again") == 2
