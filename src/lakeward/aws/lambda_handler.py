"""The Lambda function ``lakeward.aws.lambda_handler.handler``: an S3 event starts a job or wakes a watcher.

Events come from S3 itself, or by way of SNS, SQS or EventBridge. The target is a Glue job, an EMR Serverless job, or a
message for ``lakeward watch``. Only the standard library, boto3 (part of Lambda's runtime) and Lakeward's own source
are imported, so that the function's archive stays small: no Spark, Arrow or pydantic.

A run lists landing when it starts. One that has not started yet will therefore see every object that exists now: while
such a run of the same tables waits, an event needs no other. A run in progress may have listed landing before the
object was there, so that another one must follow it. The job waits for the tables that its predecessor still holds
(``lakeward-job --wait``), so that it never skips the tables for which it was started.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote_plus

from lakeward.errors import ConfigurationError, RetriableError
from lakeward.formats.dms.listing import is_data_file
from lakeward.runner.watch.notices import path_under, read_s3_notice

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakeward.runner.watch.notices import S3Object


logger = logging.getLogger(__name__)
logger.setLevel(logging.INFO)

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


PREFIX = "LAKEWARD_LAMBDA_"
TARGETS = ("glue", "emr-serverless", "sqs")
SCOPES = ("all", "table")


@dataclass(frozen=True)
class LambdaSettings:
    """The settings of the function, from environment variables.

    ``target`` and ``name`` come from ``LAKEWARD_LAMBDA_TARGET=glue:JOB`` (or ``emr-serverless:APPLICATION``,
    ``sqs:URL``). ``landing`` is the folder of the objects that start a run, ``config`` the configuration
    of the job. ``scope``: ``all`` starts one run of all active tables, ``table`` one per table. The others are for EMR
    Serverless.
    """

    target: str
    name: str
    landing: str
    config: str = ""
    scope: str = "all"
    emr_role: str = ""
    emr_entry: str = ""
    emr_spark: str = ""

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> LambdaSettings:
        """Return the settings from environment variables.

        Raises:
            ConfigurationError: a variable is missing or has an invalid value.
        """
        target, _, name = _required(environment, "TARGET").partition(":")
        if target not in TARGETS or not name:
            raise _refused(environment, name="TARGET", expected="glue:JOB, emr-serverless:APPLICATION or sqs:URL")
        scope = environment.get(f"{PREFIX}SCOPE", "all")
        if scope not in SCOPES:
            raise _refused(environment, name="SCOPE", expected="all or table")
        landing = _required(environment, "LANDING")
        if not landing.startswith(("s3://", "s3a://")):
            raise _refused(environment, name="LANDING", expected="s3://bucket/prefix")
        is_emr = target == "emr-serverless"
        return cls(
            target=target,
            name=name,
            landing=landing,
            config=_required(environment, "CONFIG") if target != "sqs" else "",
            scope=scope,
            emr_role=_required(environment, "EMR_ROLE") if is_emr else "",
            emr_entry=_required(environment, "EMR_ENTRY") if is_emr else "",
            emr_spark=environment.get(f"{PREFIX}EMR_SPARK", ""),
        )


def _required(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(f"{PREFIX}{name}", "")
    if not value:
        msg = f"the environment variable {PREFIX}{name} is not set"
        raise ConfigurationError(msg, hint="docs/deploy.md lists the function's variables")
    return value


def _refused(environment: Mapping[str, str], *, name: str, expected: str) -> ConfigurationError:
    msg = f"{PREFIX}{name} is {environment.get(PREFIX + name)!r}; expected {expected}"
    return ConfigurationError(msg, hint="docs/deploy.md lists the function's variables")


# Depth of schema/table/file.
_LEVELS = 3


def handler(event: Mapping[str, Any], _context: object = None) -> dict[str, Any]:
    """Start the runs for an event, and return what was done for the function's log.

    An error is raised after the other tables' runs were started, so that Lambda delivers the event again; it then finds
    those runs waiting. A record that is not an event of S3 is logged and counted as ignored.
    """
    settings = LambdaSettings.read(os.environ)
    notice = read_s3_notice(event)
    for problem in notice.problems:
        # Not raised: it would not be an event of S3 after redelivery either.
        logger.warning("%s", problem)
    wanted = [created for created in notice.created if _is_wanted(settings, created)]
    ignored = len(notice.created) - len(wanted) + notice.others + len(notice.problems)
    done: dict[str, Any] = {"objects": len(wanted), "ignored": ignored, "started": [], "waiting": [], "messages": 0}
    if settings.target == "sqs":
        done["messages"] = _forward(settings, wanted)
    else:
        _start_all(_job_target(settings), _requests(settings, wanted), done)
    return done


def _start_all(target: JobTarget, requests: Sequence[JobRequest], done: dict[str, Any]) -> None:
    """Start every requested run, and raise the first error only after all were tried."""
    errors: list[Exception] = []
    for request in requests:
        try:
            started = target.start(request)
        except Exception as error:
            logger.exception("no run of %s was started", request.table or "all tables")
            errors.append(error)
            continue
        done["started" if started.is_new else "waiting"].append(started.run)
        _log_start(request, started)
    if errors:
        raise errors[0]


def _is_wanted(settings: LambdaSettings, created: S3Object) -> bool:
    path = path_under(settings.landing, created)
    # A name that ends in a slash is a folder's marker, not a file.
    if not path or created.key.endswith("/"):
        logger.info("s3://%s/%s is not a file under %s", created.bucket, created.key, settings.landing)
        return False
    if not is_data_file(path):
        logger.info("s3://%s/%s is not a CSV or Parquet file by its name", created.bucket, created.key)
        return False
    return True


def _requests(settings: LambdaSettings, objects: Sequence[S3Object]) -> list[JobRequest]:
    """Return the runs that objects need: one of everything, or one per table folder."""
    if not objects:
        return []
    if settings.scope == "all":
        return [JobRequest(settings.config)]
    return [
        JobRequest(settings.config, table) for table in dict.fromkeys(_table(settings, created) for created in objects)
    ]


def _table(settings: LambdaSettings, created: S3Object) -> str | None:
    """Return the table of a file in ``schema/table/…``; None (all tables) if the path names none."""
    parts = (path_under(settings.landing, created) or "").split("/")
    return f"{parts[0]}.{parts[1]}" if len(parts) >= _LEVELS else None


def _forward(settings: LambdaSettings, objects: Sequence[S3Object]) -> int:
    return ForwardQueue(_client("sqs"), settings.name).send(objects) if objects else 0


def _job_target(settings: LambdaSettings) -> JobTarget:
    if settings.target == "glue":
        return GlueJob(_client("glue"), settings.name)
    return EmrServerlessJob(
        _client("emr-serverless"),
        settings.name,
        role=settings.emr_role,
        entry=settings.emr_entry,
        spark=settings.emr_spark,
    )


def _client(service: str) -> Any:
    import boto3

    return boto3.Session().client(service)


def _log_start(request: JobRequest, started: Started) -> None:
    what = request.table or "all tables"
    if started.is_new:
        logger.info("started run %s of %s", started.run, what)
    else:
        logger.info("run %s of %s is already waiting and will see the new files", started.run, what)
