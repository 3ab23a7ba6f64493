"""What the Lambda function sets going: a Glue job, an EMR Serverless job, or a message for ``lakeward watch``.

A run lists landing when it begins. One that has not begun yet will therefore see every object that exists now, and
no other is needed: an event is left out while such a run of the same tables waits. One that is running may have
listed before the object was there, so that another must follow it; of those, one is enough. The job waits for the
tables that its predecessor still holds (``lakeward-job --wait``), so that it never skips what it was started for.

Only the standard library and boto3 here: the function must stay small.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote_plus

from lakeward.errors import RetriableError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakeward.runner.watch.notices import S3Object

# States in which a job has not begun to read anything.
_GLUE_WAITING = ("WAITING", "STARTING")
_EMR_WAITING = ("SUBMITTED", "PENDING", "SCHEDULED", "QUEUED")
# Newest first: a run that waits behind more runs than one page holds does not exist.
_GLUE_PAGE = 200
_LONGEST_NAME = 256
# Records per message: far below the size that SQS takes, even with the longest keys.
_RECORDS = 50


@dataclass(frozen=True)
class Request:
    """A run that is wanted: of one table, or of all."""

    config: str
    table: str | None = None

    def arguments(self) -> dict[str, str]:
        """Return the arguments of ``lakeward-job``."""
        table = {"--table": self.table} if self.table is not None else {}
        return {"--config": self.config, **table}


@dataclass(frozen=True)
class Started:
    """What became of a request: ``is_new`` tells a run that was started from one that waited already."""

    run: str
    is_new: bool


class JobTarget(Protocol):
    """Something that starts a job."""

    def start(self, request: Request) -> Started:
        """Start a run, unless one waits that will do the same."""
        ...


class GlueJob:
    """A Glue job whose script is ``lakeward_job.py``."""

    def __init__(self, client: Any, job: str) -> None:
        self._client = client
        self._job = job

    def start(self, request: Request) -> Started:
        """Start a run, unless one waits that will do the same.

        Raises:
            RetriableError: as many runs as the job allows are running; the event must come again.
        """
        if (waiting := self._waiting(request)) is not None:
            return Started(waiting, is_new=False)
        try:
            answer = self._client.start_job_run(JobName=self._job, Arguments=request.arguments())
        except self._client.exceptions.ConcurrentRunsExceededException as error:
            # Another event may have started the run that is needed, just now.
            if (waiting := self._waiting(request)) is not None:
                return Started(waiting, is_new=False)
            msg = f"Glue job {self._job} runs as often as it may, and those runs may have listed before this event"
            hint = "turn on job queuing, or allow one more concurrent run; until then the event is delivered again"
            raise RetriableError(msg, hint=hint) from error
        return Started(answer["JobRunId"], is_new=True)

    def _waiting(self, request: Request) -> str | None:
        runs = self._client.get_job_runs(JobName=self._job, MaxResults=_GLUE_PAGE)["JobRuns"]
        fitting = (run["Id"] for run in runs if run["JobRunState"] in _GLUE_WAITING and _covers(run, request))
        return next(fitting, None)


def _covers(run: Mapping[str, Any], request: Request) -> bool:
    """Return whether a run does at least what is requested: a run without a table does all of them."""
    given = run.get("Arguments") or {}
    return given.get("--config") == request.config and given.get("--table") in (None, request.table)


class EmrServerlessJob:
    """Jobs of an EMR Serverless application; what a run does is told by its name."""

    def __init__(self, client: Any, application: str, *, role: str, entry: str, spark: str) -> None:
        """Take the application, the role that jobs run as, where ``lakeward_job.py`` lies, and spark-submit options."""
        self._client = client
        self._application = application
        self._role = role
        self._entry = entry
        self._spark = spark

    def start(self, request: Request) -> Started:
        """Start a run, unless one waits that will do the same."""
        if (waiting := self._waiting(request)) is not None:
            return Started(waiting, is_new=False)
        arguments = [text for pair in request.arguments().items() for text in pair]
        driver = {"entryPoint": self._entry, "entryPointArguments": arguments}
        if self._spark:
            driver["sparkSubmitParameters"] = self._spark
        answer = self._client.start_job_run(
            applicationId=self._application,
            executionRoleArn=self._role,
            name=_job_name(request),
            jobDriver={"sparkSubmit": driver},
        )
        return Started(answer["jobRunId"], is_new=True)

    def _waiting(self, request: Request) -> str | None:
        fitting = {_job_name(request), _job_name(Request(request.config))}
        pages = self._client.get_paginator("list_job_runs").paginate(
            applicationId=self._application, states=list(_EMR_WAITING)
        )
        return next((run["id"] for page in pages for run in page["jobRuns"] if run.get("name") in fitting), None)


def _job_name(request: Request) -> str:
    return " ".join(["lakeward", *request.arguments().values()])[:_LONGEST_NAME]


class ForwardQueue:
    """A queue that ``lakeward watch --queue`` reads; the watcher gathers bursts and repeats by itself."""

    def __init__(self, client: Any, url: str) -> None:
        self._client = client
        self._url = url

    def send(self, objects: Sequence[S3Object]) -> int:
        """Post objects as S3 itself would; give the number of messages."""
        bodies = [
            json.dumps({"Records": [_record(one) for one in objects[start : start + _RECORDS]]})
            for start in range(0, len(objects), _RECORDS)
        ]
        for body in bodies:
            self._client.send_message(QueueUrl=self._url, MessageBody=body)
        return len(bodies)


def _record(one: S3Object) -> dict[str, Any]:
    names = {"bucket": {"name": one.bucket}, "object": {"key": quote_plus(one.key, safe="/")}}
    return {"eventSource": "aws:s3", "eventName": "ObjectCreated:Put", "s3": names}
