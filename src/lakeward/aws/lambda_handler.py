"""The Lambda function ``lakeward.aws.lambda_handler.handler``: an S3 event starts a job or wakes a watcher.

Events come from S3 itself, or by way of SNS, SQS or EventBridge. Nothing of Spark, Arrow or pydantic is imported, so
that the function's archive holds Lakeward's own source and no more; boto3 is part of Lambda's runtime.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakeward.aws.targets import EmrServerlessJob, ForwardQueue, GlueJob, Request, Started
from lakeward.errors import ConfigurationError
from lakeward.formats.dms.listing import is_data_file
from lakeward.runner.watch.notices import path_under, read_notice

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakeward.aws.targets import JobTarget
    from lakeward.runner.watch.notices import S3Object


# The Lambda function's settings, which are environment variables.


PREFIX = "LAKEWARD_LAMBDA_"
TARGETS = ("glue", "emr-serverless", "sqs")
SCOPES = ("all", "table")


@dataclass(frozen=True)
class LambdaSettings:
    """What the function starts, and for which objects.

    ``target`` and ``name`` come from ``LAKEWARD_LAMBDA_TARGET=glue:JOB`` (or ``emr-serverless:APPLICATION``,
    ``sqs:URL``). ``landing`` is where objects count, ``config`` what the job is given. ``scope``: ``all`` starts one
    run of all active tables, ``table`` one per table. The rest is for EMR Serverless.
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
        """Read the variables.

        Raises:
            ConfigurationError: one is missing or has a value that does not fit.
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


logger = logging.getLogger(__name__)
logger.setLevel(logging.INFO)

# Depth of schema/table/file.
_LEVELS = 3


def handler(event: Mapping[str, Any], _context: object = None) -> dict[str, Any]:
    """Do what the environment says with an event; give what was done, for the function's log.

    An error is raised, so that Lambda delivers the event again: after the other tables' runs were started, which an
    event that comes again finds waiting. What is no event of S3 is logged and counted as ignored.
    """
    settings = LambdaSettings.read(os.environ)
    notice = read_notice(event)
    for problem in notice.problems:
        # Delivered again, it would be no event of S3 either.
        logger.warning("%s", problem)
    wanted = [one for one in notice.created if _is_wanted(settings, one)]
    ignored = len(notice.created) - len(wanted) + notice.others + len(notice.problems)
    done: dict[str, Any] = {"objects": len(wanted), "ignored": ignored, "started": [], "waiting": [], "messages": 0}
    if settings.target == "sqs":
        done["messages"] = _forward(settings, wanted)
    else:
        _start_all(_job_target(settings), _requests(settings, wanted), done)
    return done


def _start_all(target: JobTarget, requests: Sequence[Request], done: dict[str, Any]) -> None:
    """Start every run that is wanted, and raise the first error only after the last of them was tried."""
    errors: list[Exception] = []
    for request in requests:
        try:
            started = target.start(request)
        except Exception as error:
            logger.exception("no run of %s was started", request.table or "all tables")
            errors.append(error)
            continue
        done["started" if started.is_new else "waiting"].append(started.run)
        _tell(request, started)
    if errors:
        raise errors[0]


def _is_wanted(settings: LambdaSettings, one: S3Object) -> bool:
    path = path_under(settings.landing, one)
    # A name that ends in a slash is a folder's marker, not a file.
    if not path or one.key.endswith("/"):
        logger.info("s3://%s/%s is no file under %s", one.bucket, one.key, settings.landing)
        return False
    if not is_data_file(path):
        logger.info("s3://%s/%s is no CSV or Parquet file by its name", one.bucket, one.key)
        return False
    return True


def _requests(settings: LambdaSettings, objects: Sequence[S3Object]) -> list[Request]:
    """Return the runs that objects need: one of everything, or one per table folder."""
    if not objects:
        return []
    if settings.scope == "all":
        return [Request(settings.config)]
    return [Request(settings.config, table) for table in dict.fromkeys(_table(settings, one) for one in objects)]


def _table(settings: LambdaSettings, one: S3Object) -> str | None:
    """Return the table of a file in ``schema/table/…``; None, which stands for all, where the path tells none."""
    parts = (path_under(settings.landing, one) or "").split("/")
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


def _tell(request: Request, started: Started) -> None:
    what = request.table or "all tables"
    if started.is_new:
        logger.info("started run %s of %s", started.run, what)
    else:
        logger.info("run %s of %s waits already and will see the new files", started.run, what)
