"""What an error of Spark means when a task, the storage below the lake, or its catalog is behind it.

An error raised in a Python task arrives at the driver as text: the traceback, whose last line names the type. An
error of the storage arrives as a Java stack, in which only some lines tell.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lakeward import errors
from lakeward.errors import ConfigurationError, DataError, LakewardError, RetriableError, SparkDiedError
from lakeward.system_errors import FULL_HINT

_OF_A_TASK = re.compile(
    r"^lakeward\.errors\.(?P<type>\w+): (?P<message>.*?)(?:\nTry: (?P<hint>[^\n]*))?(?=\n\s*\n|\n\s+at |\s*\Z)",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class _Meaning:
    """What one of these signs in an error's text means, and what helps."""

    kind: type[LakewardError]
    signs: tuple[str, ...]
    meaning: str
    hint: str


_SETTINGS = "check s3: and lake.properties in lakeward.yaml and the AWS_* variables, then: lakeward doctor"
# What comes first decides.
_MEANINGS = (
    # It may have been done, with only the answer lost: the next attempt looks at the table and knows.
    _Meaning(
        RetriableError, ("CommitStateUnknownException",), "it is not known whether the commit was done", "run again"
    ),
    _Meaning(
        ConfigurationError,
        ("NoSuchBucketException", "UnknownStoreException"),
        "there is no such bucket",
        "correct lake.warehouse in lakeward.yaml, or create the bucket",
    ),
    _Meaning(
        ConfigurationError,
        (
            r"Status Code: 40[13]\b",
            "NotAuthorizedException",
            r"exceptions\.ForbiddenException",
            # Glue says these with status 400.
            "AccessDeniedException",
            "ExpiredTokenException",
            "UnrecognizedClientException",
            "Unable to load credentials",
            "NoAwsCredentialsException",
            "CredentialInitializationException",
        ),
        "the storage or the catalog refuses the keys, or there are none",
        _SETTINGS,
    ),
    _Meaning(RetriableError, ("No space left on device", "Disk quota exceeded"), "a disk is full", FULL_HINT),
    _Meaning(
        DataError,
        # Hadoop does not say why it makes no folder; 255 bytes are what file systems take for one name.
        ("File name too long", r"Mkdirs failed to create [^\n]*?/[^/\n]{256,}"),
        "a file or folder would have a longer name than the file system takes, most often for the value of a partition",
        "partition by something shorter: truncate(32, column), bucket(16, column) or a date",
    ),
    _Meaning(
        ConfigurationError,
        ("Mkdirs failed to create",),
        "a folder of the lake cannot be made",
        "check lake.warehouse in lakeward.yaml and the permissions of its folder",
    ),
    _Meaning(
        SparkDiedError,
        (r"java\.lang\.OutOfMemoryError", "GC overhead limit exceeded"),
        "Spark has no memory left",
        "give it more (spark: conf: spark.driver.memory), or take less at one time: max_files, max_bytes, parallel",
    ),
    _Meaning(ConfigurationError, ("Unable to load region",), "the region is not known", _SETTINGS),
    _Meaning(
        RetriableError,
        (
            "Unable to execute HTTP request",
            r"Status Code: (?:429|5\d\d)\b",
            "AWSServiceThrottledException",
            "ThrottlingException",
            r"glue\.model\.(?:InternalService|OperationTimeout)Exception",
            r"AWSStatus5\d\d",
            "AWSClientIOException",
            "ApiCall(?:Attempt)?TimeoutException",
            "RESTException: Error occurred while processing",
            r"exceptions\.Service(?:Unavailable|Failure)Exception",
            "HttpHostConnectException",
            "NoHttpResponseException",
            r"java\.net\.(?:Connect|SocketTimeout|UnknownHost)Exception",
            "Connection reset",
            "SQLITE_BUSY",
        ),
        "the storage or the catalog does not answer as it should",
        "run again; if it stays so: lakeward doctor",
    ),
)


def classify_spark_error(error: BaseException, what: str) -> LakewardError | None:
    """Give the error that says what to do about one of Spark's; None where nothing known is behind it.

    ``what`` is the table, or whatever else the work was for.
    """
    # The text of some errors is a headline only, and what caused it is in the stack beside it.
    text = f"{error}\n{getattr(error, '_stackTrace', None) or ''}"
    return _of_a_task(text, what) or _of_the_storage(text, what)


def _of_a_task(text: str, what: str) -> LakewardError | None:
    # The last of a traceback's errors counts: those before it are its causes.
    for found in reversed(list(_OF_A_TASK.finditer(text))):
        kind = getattr(errors, found["type"], None)
        if isinstance(kind, type) and issubclass(kind, LakewardError):
            return kind(f"{what}: {found['message'].strip()}", hint=found["hint"])
    return None


def _of_the_storage(text: str, what: str) -> LakewardError | None:
    for one in _MEANINGS:
        if found := re.search("|".join(one.signs), text):
            return one.kind(f"{what}: {one.meaning}: {_line_at(text, found.start())}", hint=one.hint)
    return None


def _line_at(text: str, position: int) -> str:
    """Give the line around a position, without the words that a stack begins its lines with."""
    begin = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    line = text[begin : end if end >= 0 else len(text)].strip()
    return line.removeprefix("Caused by: ").removeprefix(": ")[:500]
