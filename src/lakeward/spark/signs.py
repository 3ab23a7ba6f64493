"""Signs in the error texts of Spark, Iceberg, Hadoop and the AWS SDK for Java, with their meaning and remedy.

Signs are regular expressions. In every table the first match counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lakeward.errors import (
    ConfigurationError,
    ConflictError,
    DataError,
    LakewardError,
    RefusedInputError,
    RetriableError,
    SparkDiedError,
)
from lakeward.external_errors import FULL_HINT


@dataclass(frozen=True)
class Meaning:
    """The meaning of any of these signs in an error's text; ``{what}`` in a hint is the table or other subject."""

    kind: type[LakewardError]
    signs: tuple[str, ...]
    meaning: str
    hint: str | None = None

    def find(self, text: str) -> int | None:
        """Return the position of the first sign in a text, None where it has none."""
        found = re.search("|".join(self.signs), text)
        return found.start() if found else None


MISSING_TABLE = re.compile("NoSuchTableException|NoSuchNamespaceException|TABLE_OR_VIEW_NOT_FOUND")
MISSING_FILE = re.compile(r"java\.io\.FileNotFoundException")
# The name of a file in a message.
FILE = re.compile(r"((?:file:|[a-z][a-z0-9+.-]*://)[^\s\"']+?\.[A-Za-z0-9.]+?)(?=[\s\"',;:.]*(?:\s|$))")
# Spark's condition, such as [DIVIDE_BY_ZERO], precedes the sentence that matters.
CONDITION = re.compile(r"\[[A-Z][A-Z0-9_.]+\] .*")

_SETTINGS = "check s3: and lake.properties in lakeward.yaml and the AWS_* variables, then: lakeward doctor"

# The lake's storage, its catalog, and the machine.
STORAGE = (
    # The commit may have succeeded, with only the answer lost: the next attempt finds out.
    Meaning(
        RetriableError, ("CommitStateUnknownException",), "it is not known whether the commit was done", "run again"
    ),
    Meaning(
        ConfigurationError,
        ("NoSuchBucketException", "UnknownStoreException"),
        "there is no such bucket",
        "correct lake.warehouse in lakeward.yaml, or create the bucket",
    ),
    Meaning(
        ConfigurationError,
        (
            r"Status Code: 40[13]\b",
            "NotAuthorizedException",
            r"exceptions\.ForbiddenException",
            # Glue reports these with status 400.
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
    Meaning(RetriableError, ("No space left on device", "Disk quota exceeded"), "a disk is full", FULL_HINT),
    Meaning(
        DataError,
        # Hadoop does not report why it cannot create a folder; most file systems allow 255 bytes for a name.
        ("File name too long", r"Mkdirs failed to create [^\n]*?/[^/\n]{256,}"),
        "the name of a file or folder would be too long for the file system, most often by the value of a partition",
        "partition by something shorter: truncate(32, column), bucket(16, column) or a date",
    ),
    Meaning(
        ConfigurationError,
        ("Mkdirs failed to create",),
        "a folder of the lake cannot be created",
        "check lake.warehouse in lakeward.yaml and the permissions of its folder",
    ),
    Meaning(
        SparkDiedError,
        (r"java\.lang\.OutOfMemoryError", "GC overhead limit exceeded"),
        "Spark has no memory left",
        "give it more (spark: conf: spark.driver.memory), or process less at a time: max_files, max_bytes, parallel",
    ),
    Meaning(ConfigurationError, ("Unable to load region",), "the region is not known", _SETTINGS),
    Meaning(
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
        "run again; if the problem persists: lakeward doctor",
    ),
)

# Commits to a table, and loading its metadata.
COMMIT = (
    Meaning(
        ConflictError,
        (
            "CommitFailedException",
            "Cannot fast-forward",
            "is not an ancestor",
            "Cannot commit",
            # Some REST catalogs report a bad request when two writers commit to branches of a table at the same time.
            r"[Cc]an(?:not|'t) add snapshot with sequence number",
            # A writer that lost its lease finds that the new holder has dropped its branch, or has created the same
            # branch, namespace, table or column first.
            r"Cannot use branch \(does not exist\)",
            "Branch does not exist",
            r"Ref \S+ already exists",
            r"exceptions\.AlreadyExistsException: (?!File)",
            r"analysis\.(?:Table|Namespace)AlreadyExistsException",
            r"\[(?:TABLE_OR_VIEW|TABLE|SCHEMA|FIELDS?)_ALREADY_EXISTS\]",
            "Cannot add column, name already exists",
            # The SQLite catalog has no specific error for a namespace that another writer created first.
            r"UncheckedSQLException(?s:.*)UNIQUE constraint failed: iceberg_namespace_properties",
        ),
        "another writer committed first",
    ),
    Meaning(
        DataError,
        ("NotFoundException",),
        "files of the lake are missing",
        "restore the lake's files from a backup; nothing was written",
    ),
)

# Any other work of Spark for a table.
WORK = (
    Meaning(
        DataError,
        (r"iceberg\.exceptions\.NotFoundException", r"java\.io\.FileNotFoundException"),
        "files of the lake are missing",
        "restore the missing files from a backup; nothing was written",
    ),
    # Two processes create the tables of a new catalog at the same time.
    Meaning(
        RetriableError,
        ("Cannot check and eventually update SQL schema",),
        "the lake's catalog is busy",
        "lakeward run {what}",
    ),
    # Workers died or cannot be reached; Spark has already retried before it reports this.
    Meaning(
        RetriableError,
        ("ExecutorLostFailure", "FetchFailed", "SparkContext was shut down", "No route to host"),
        "Spark lost workers",
        "lakeward run {what}",
    ),
)


def _refused(*signs: str, meaning: str, hint: str | None = None) -> Meaning:
    return Meaning(RefusedInputError, signs, meaning, hint)


_AGAIN = "write the snapshot again"
_SAME_HEADER = "write all files with the same first line"

# Input files. Each meaning follows the name of the file.
INPUT = (
    # Before the general signs that the file or its footer was not read: these name the cause.
    _refused(
        "PARQUET_TYPE_",
        "Illegal Parquet type",
        meaning="has a column of a type that Spark does not read",
        hint="write the column in another type; times in microseconds (pyarrow and pandas: coerce_timestamps='us')",
    ),
    _refused(
        r"FAILED_READ_FILE\.FILE_NOT_EXIST",
        meaning="is gone since it was listed",
        hint="run again when nothing is being written there",
    ),
    _refused(
        r"FAILED_READ_FILE\.PARQUET_COLUMN_DATA_TYPE_MISMATCH",
        meaning="has a column of another type than the other files",
    ),
    _refused("is not a Parquet file", meaning="is not a Parquet file, or is incomplete", hint=_AGAIN),
    _refused("Malformed ORC file", meaning="is not an ORC file, or is incomplete", hint=_AGAIN),
    _refused("CANNOT_READ_FILE_FOOTER", meaning="cannot be read: its footer is damaged", hint=_AGAIN),
    _refused(
        "Unescaped quote character",
        meaning="has a quote inside a quoted value that is not doubled",
        hint="write quotes inside values doubled: in Spark by .option('escape', '\"')",
    ),
    _refused(
        "MALFORMED_RECORD_IN_PARSING",
        meaning="has a row that does not fit the schema",
        hint="check --schema against the file; JSON has one object a line, CSV as many fields as names in its first "
        "line",
    ),
    _refused(
        "CSV header does not conform to the schema",
        meaning="has other columns than the files before it",
        hint=_SAME_HEADER,
    ),
    _refused(
        "Number of column in CSV header is not equal",
        meaning="has more or fewer columns than the files before it",
        hint=_SAME_HEADER,
    ),
    _refused(
        "CANNOT_MERGE_SCHEMAS", meaning="has files with columns of different types", hint=f"{_AGAIN} with one schema"
    ),
    _refused(
        "CANNOT_MERGE_INCOMPATIBLE_DATA_TYPE",
        "Failed merging schema",
        meaning="has files with columns of different types",
        hint="write it with one schema",
    ),
    _refused("UNABLE_TO_INFER_SCHEMA", meaning="has no file from which its columns can be read", hint=_AGAIN),
    _refused(
        "CONFLICTING_DIRECTORY_STRUCTURES",
        "Conflicting directory structures",
        meaning="has folders that are not partitions of one table",
    ),
    _refused(
        "for partition column",
        "CAST_INVALID_INPUT",
        meaning="has a folder whose value does not fit its column",
        hint="check --schema against the folders",
    ),
    _refused("PATH_NOT_FOUND", meaning="does not exist"),
    _refused(
        "AccessControlException",
        "AccessDenied",
        "Permission denied",
        meaning="may not be read",
        hint="check the permissions",
    ),
    Meaning(
        ConfigurationError,
        ("No FileSystem for scheme", "UnsupportedFileSystemException"),
        "is on a file system that this Spark has no jar for",
    ),
    _refused("FAILED_READ_FILE", meaning="cannot be read", hint=_AGAIN),
)
