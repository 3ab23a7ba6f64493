"""Errors of the operating system and of Spark's JVM as errors of Lakeward."""

from __future__ import annotations

from lakeward.arguments import instance, takes
from lakeward.errors import ConfigurationError, LakewardError
from lakeward.external_errors import system_error
from lakeward.spark.errors import spark_died


@takes(error=instance("an exception", BaseException))
def explain_error(error: BaseException) -> LakewardError | None:
    """Return the error of Lakeward that explains an exception; None for an unknown one, which is a bug.

    Known are errors of the operating system, such as a full disk or a wrong path, and the loss of Spark's JVM.
    """
    if isinstance(error, LakewardError):
        return error
    found = spark_died(error, "the command") or _system_error(error)
    if found is not None:
        found.__cause__ = error
    return found


def _system_error(error: BaseException) -> LakewardError | None:
    if isinstance(error, FileNotFoundError):
        return ConfigurationError(f"{error.filename or error}: {error.strerror}", hint="check the path")
    return system_error(error) if isinstance(error, OSError) else None
