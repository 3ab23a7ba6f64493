"""S3 events in all their wrappings, and messages that are none."""

import json

import pytest

from lakeward.runner.watch.notices import S3Object, path_under, read_s3_notice


def record(key: str, bucket: str = "lake", name: str = "ObjectCreated:Put") -> dict:
    return {"eventSource": "aws:s3", "eventName": name, "s3": {"bucket": {"name": bucket}, "object": {"key": key}}}


def bare(*keys: str) -> dict:
    return {"Records": [record(key) for key in keys]}


BRIDGE = {
    "source": "aws.s3",
    "detail-type": "Object Created",
    "detail": {"bucket": {"name": "lake"}, "object": {"key": "a b+c.csv"}},
}
SNS = {"Type": "Notification", "TopicArn": "arn:aws:sns:eu-west-1:1:t", "Message": json.dumps(bare("a/b.csv"))}
OBJECT = S3Object("lake", "a/b.csv")
WRAPPINGS = {
    "bare": bare("a/b.csv"),
    "sns in a queue": SNS,
    "sns to lambda": {"Records": [{"EventSource": "aws:sns", "Sns": {"Message": json.dumps(bare("a/b.csv"))}}]},
    "sqs to lambda": {"Records": [{"eventSource": "aws:sqs", "body": json.dumps(bare("a/b.csv"))}]},
    "sns in sqs to lambda": {"Records": [{"eventSource": "aws:sqs", "body": json.dumps(SNS)}]},
}


@pytest.mark.parametrize("event", WRAPPINGS.values(), ids=WRAPPINGS.keys())
def test_every_wrapping_is_opened(event):
    assert read_s3_notice(json.dumps(event)).created == (OBJECT,)
    assert read_s3_notice(event).created == (OBJECT,)


def test_keys_are_decoded_where_they_are_encoded():
    keys = read_s3_notice(bare("a/b+c%2Bd%25/%C3%A4.csv")).created
    assert keys == (S3Object("lake", "a/b c+d%/ä.csv"),)
    assert read_s3_notice(BRIDGE).created == (S3Object("lake", "a b+c.csv"),)


def test_several_records_and_repeats():
    notice = read_s3_notice(bare("a/1.csv", "a/2.csv", "a/1.csv"))
    assert [entry.key for entry in notice.created] == ["a/1.csv", "a/2.csv"]


def test_notices_without_created_objects_are_counted():
    test_event = {"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "lake"}
    assert read_s3_notice(json.dumps(test_event)).others == 1
    removed = {"Records": [record("a", name="ObjectRemoved:Delete"), record("b", name="s3:ObjectCreated:Copy")]}
    notice = read_s3_notice(removed)
    assert notice.others == 1 and [entry.key for entry in notice.created] == ["b"]
    assert read_s3_notice({**BRIDGE, "detail-type": "Object Deleted"}).others == 1
    assert read_s3_notice({"Records": []}).created == ()


@pytest.mark.parametrize(
    "body",
    [
        "", "no json", "[]", "1", "null", "{}", '{"Records": [1]}', '{"Records": [{"s3": {}}]}',
        '{"Records": [{"eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": 1}, "object": {"key": 2}}}]}',
        '{"source": "aws.s3", "detail": {}}', '{"TopicArn": "t", "Message": "no json"}',
        '{"source": "aws.s3", "detail": {"bucket": {"name": 1}, "object": {"key": 2}}}',
        "[" * 100_000, '{"Records": [' * 50_000, '{"a":' * 100_000, "1" * 10_000,
        json.dumps(bare("a\ud800.csv")), json.dumps({"Records": [{"Sns": {"Message": "[" * 100_000}}]}),
    ],
)  # fmt: skip
def test_messages_that_are_not_events_are_reported_and_not_raised(body):
    notice = read_s3_notice(body)
    assert notice.created == () and len(notice.problems) == 1
    assert notice.problems[0].startswith("not an S3 event notification")


def test_one_bad_record_leaves_the_others():
    event = {"Records": [{"body": "no json"}, {"body": json.dumps(bare("a/b.csv"))}, 7]}
    notice = read_s3_notice(event)
    assert notice.created == (OBJECT,) and len(notice.problems) == 2


def test_endless_nesting_is_not_an_event():
    event: dict = bare("a/b.csv")
    for _ in range(20):
        event = {"TopicArn": "t", "Message": json.dumps(event)}
    assert read_s3_notice(event).created == ()


def test_paths_under_landing():
    assert path_under("s3://lake", OBJECT) == "a/b.csv"
    assert path_under("s3a://lake/a/", OBJECT) == "b.csv"
    assert path_under("s3://other", OBJECT) is None
    assert path_under("s3://lake/aa", OBJECT) is None


def test_an_event_nested_too_deeply_to_be_shown_is_reported():
    deep: dict = {}
    for _ in range(100_000):
        deep = {"a": deep}
    assert "nested too deeply" in read_s3_notice(deep).problems[0]
    while deep:  # taken apart by hand: the interpreter would do so recursively
        deep = deep["a"]
