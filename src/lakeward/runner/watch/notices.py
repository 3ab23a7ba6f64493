"""S3 event notifications in all their envelopes: bare, from SNS (raw or not), SQS or EventBridge.

Only the standard library is used: the Lambda handler uses this module, and must stay small.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus

from lakeward.text import is_utf8

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_CREATED = "ObjectCreated:"
_CREATED_DETAIL = "Object Created"
_SHOWN = 200
# Envelopes such as SQS in SNS in SQS are not nested more deeply in practice.
_DEEPEST = 5


@dataclass(frozen=True)
class S3Object:
    """An object that was created. ``key`` is decoded, as the bucket lists it."""

    bucket: str
    key: str


@dataclass(frozen=True)
class S3Notice:
    """The content of a message: objects created, the number of other records (tests, removals), and problems."""

    created: tuple[S3Object, ...] = ()
    others: int = 0
    problems: tuple[str, ...] = ()


def read_s3_notice(body: str | Mapping[str, Any]) -> S3Notice:
    """Return the content of a message or event; what cannot be read is listed among the problems."""
    found = list(_records(body, 0))
    return S3Notice(
        tuple(dict.fromkeys(record for record in found if isinstance(record, S3Object))),
        sum(1 for record in found if record is None),
        tuple(record for record in found if isinstance(record, str)),
    )


def path_under(landing: str, created: S3Object) -> str | None:
    """Return an object's path relative to ``s3://bucket/prefix``, None if it is elsewhere."""
    bucket, _, prefix = landing.partition("://")[2].partition("/")
    folder = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
    return created.key.removeprefix(folder) if created.bucket == bucket and created.key.startswith(folder) else None


def _records(body: Any, depth: int) -> Iterator[S3Object | str | None]:
    """Yield the objects of an event, None for a record of another kind, and a text for one that cannot be read."""
    try:
        yield from _opened(_parsed(body), depth)
    except _NoEventError as error:
        yield str(error)


def _opened(event: Any, depth: int) -> Iterator[S3Object | str | None]:
    if not isinstance(event, dict) or depth > _DEEPEST:
        raise _NoEventError(event)
    if event.get("Event") == "s3:TestEvent":
        yield None
    elif isinstance(event.get("Records"), list):
        for record in event["Records"]:
            yield from _of_record(record, depth)
    elif isinstance(event.get("detail"), dict) and event.get("source") == "aws.s3":
        yield _from_event_bridge(event)
    elif isinstance(event.get("Message"), str) and "TopicArn" in event:
        yield from _records(event["Message"], depth + 1)
    else:
        raise _NoEventError(event)


def _of_record(record: Any, depth: int) -> Iterator[S3Object | str | None]:
    """Yield the content of an entry of ``Records``: a record of S3, or an envelope of another service.

    An entry that cannot be read must not affect the others.
    """
    envelope = record if isinstance(record, dict) else {}
    if isinstance(envelope.get("Sns"), dict):
        yield from _records(envelope["Sns"].get("Message"), depth + 1)
    elif isinstance(envelope.get("body"), str):
        yield from _records(envelope["body"], depth + 1)
    else:
        try:
            yield _from_s3(record)
        except _NoEventError as error:
            yield str(error)


def _from_s3(record: dict[str, Any]) -> S3Object | None:
    try:
        bucket, key = record["s3"]["bucket"]["name"], record["s3"]["object"]["key"]
        name = record["eventName"]
    except (KeyError, TypeError):
        raise _NoEventError(record) from None
    if not (isinstance(bucket, str) and isinstance(key, str) and isinstance(name, str)):
        raise _NoEventError(record)
    # Bare notifications encode keys as HTML forms do: a space is +, everything else %XX. Some names have the prefix.
    is_created = name.removeprefix("s3:").startswith(_CREATED)
    return _named(bucket, unquote_plus(key)) if is_created else None


def _from_event_bridge(event: dict[str, Any]) -> S3Object | None:
    """Return the object of an EventBridge event, whose keys are not encoded."""
    try:
        bucket, key = event["detail"]["bucket"]["name"], event["detail"]["object"]["key"]
    except (KeyError, TypeError):
        raise _NoEventError(event) from None
    if not (isinstance(bucket, str) and isinstance(key, str)):
        raise _NoEventError(event)
    return _named(bucket, key) if event.get("detail-type") == _CREATED_DETAIL else None


def _named(bucket: str, key: str) -> S3Object:
    """Return the object; raise if its name is not UTF-8, which S3 does not allow."""
    if not is_utf8(bucket + key):
        raise _NoEventError(bucket + key)
    return S3Object(bucket, key)


def _parsed(body: Any) -> Any:
    if not isinstance(body, str):
        return body
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise _NoEventError(body) from None


class _NoEventError(Exception):
    """A document that is not an S3 event in any known envelope."""

    def __init__(self, found: Any) -> None:
        super().__init__(f"not an S3 event notification: {_as_text(found)[:_SHOWN]!r}")


def _as_text(found: Any) -> str:
    if isinstance(found, str):
        return found
    try:
        return json.dumps(found, default=str)
    except (ValueError, RecursionError):
        return f"a {type(found).__name__} that is nested too deeply to show"
