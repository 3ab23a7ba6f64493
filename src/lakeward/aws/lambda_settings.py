"""The Lambda function's settings, which are environment variables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

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
