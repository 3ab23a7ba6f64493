"""Targets of the Lambda function: a Glue job, an EMR Serverless job, or a message for ``lakeward watch``.

A run lists landing when it starts. One that has not started yet will therefore see every object that exists now: while
such a run of the same tables waits, an event needs no other. A run in progress may have listed landing before the
object was there, so that another one must follow it. The job waits for the tables that its predecessor still holds
(``lakeward-job --wait``), so that it never skips what it was started for.

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

# States in which a job has not started to read.
_GLUE_WAITING = ("WAITING", "STARTING")
_EMR_WAITING = ("SUBMITTED", "PENDING", "SCHEDULED", "QUEUED")
# Newest first: a waiting run is always on the first page.
_GLUE_PAGE = 200
_LONGEST_NAME = 256
# Records per message: far below the limit of SQS, even with the longest keys.
_RECORDS = 50


@dataclass(frozen=True)
class JobRequest:
    """A request for a run of one table, or of all."""

    config: str
    table: str | None = None

    def arguments(self) -> dict[str, str]:
        """Return the arguments of ``lakeward-job``."""
        table = {"--table": self.table} if self.table is not None else {}
        return {"--config": self.config, **table}


@dataclass(frozen=True)
class Started:
    """The run for a request; ``is_new`` is False if it was waiting already."""

    run: str
    is_new: bool


class JobTarget(Protocol):
    """A service that starts jobs."""

    def start(self, request: JobRequest) -> Started:
        """Start a run, unless one waits that will do the same."""
        ...


class GlueJob:
    """A Glue job whose script is ``lakeward_job.py``."""

    def __init__(self, client: Any, job: str) -> None:
        self._client = client
        self._job = job

    def start(self, request: JobRequest) -> Started:
        """Start a run, unless one waits that will do the same.

        Raises:
            RetriableError: as many runs as the job allows are running; the event must be delivered again.
        """
        if (waiting := self._waiting(request)) is not None:
            return Started(waiting, is_new=False)
        try:
            answer = self._client.start_job_run(JobName=self._job, Arguments=request.arguments())
        except self._client.exceptions.ConcurrentRunsExceededException as error:
            # Another event may just have started the run.
            if (waiting := self._waiting(request)) is not None:
                return Started(waiting, is_new=False)
            msg = f"Glue job {self._job} has its maximum of concurrent runs, which may have listed before this event"
            hint = "turn on job queuing, or allow one more concurrent run; until then the event is delivered again"
            raise RetriableError(msg, hint=hint) from error
        return Started(answer["JobRunId"], is_new=True)

    def _waiting(self, request: JobRequest) -> str | None:
        runs = self._client.get_job_runs(JobName=self._job, MaxResults=_GLUE_PAGE)["JobRuns"]
        fitting = (run["Id"] for run in runs if run["JobRunState"] in _GLUE_WAITING and _covers(run, request))
        return next(fitting, None)


def _covers(run: Mapping[str, Any], request: JobRequest) -> bool:
    """Whether a run covers a request: a run without a table covers all of them."""
    given = run.get("Arguments") or {}
    return given.get("--config") == request.config and given.get("--table") in (None, request.table)


class EmrServerlessJob:
    """Jobs of an EMR Serverless application; the name of a job holds its arguments."""

    def __init__(self, client: Any, application: str, *, role: str, entry: str, spark: str) -> None:
        """Set the application, the role of jobs, the location of ``lakeward_job.py``, and spark-submit options."""
        self._client = client
        self._application = application
        self._role = role
        self._entry = entry
        self._spark = spark

    def start(self, request: JobRequest) -> Started:
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

    def _waiting(self, request: JobRequest) -> str | None:
        fitting = {_job_name(request), _job_name(JobRequest(request.config))}
        pages = self._client.get_paginator("list_job_runs").paginate(
            applicationId=self._application, states=list(_EMR_WAITING)
        )
        return next((run["id"] for page in pages for run in page["jobRuns"] if run.get("name") in fitting), None)


def _job_name(request: JobRequest) -> str:
    return " ".join(["lakeward", *request.arguments().values()])[:_LONGEST_NAME]


class ForwardQueue:
    """A queue that ``lakeward watch --queue`` reads; the watcher handles bursts and repetitions."""

    def __init__(self, client: Any, url: str) -> None:
        self._client = client
        self._url = url

    def send(self, objects: Sequence[S3Object]) -> int:
        """Send objects in the form of S3's notifications, and return the number of messages."""
        bodies = [
            json.dumps({"Records": [_record(created) for created in objects[start : start + _RECORDS]]})
            for start in range(0, len(objects), _RECORDS)
        ]
        for body in bodies:
            self._client.send_message(QueueUrl=self._url, MessageBody=body)
        return len(bodies)


def _record(created: S3Object) -> dict[str, Any]:
    names = {"bucket": {"name": created.bucket}, "object": {"key": quote_plus(created.key, safe="/")}}
    return {"eventSource": "aws:s3", "eventName": "ObjectCreated:Put", "s3": names}
