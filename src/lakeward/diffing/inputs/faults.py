"""What Spark says of files that it cannot read, in words that name the file."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from lakeward.errors import ConfigurationError, RefusedInputError
from lakeward.lake.iceberg.table import first_line
from lakeward.transforms.failing import failure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column

_FILE = re.compile(r"((?:file:|[a-z][a-z0-9+.-]*://)[^\s\"']+?\.[A-Za-z0-9.]+?)(?=[\s\"',;:.]*(?:\s|$))")
_OTHER_TYPE = "write the column in another type; times in microseconds (pyarrow and pandas: coerce_timestamps='us')"
_DOUBLED = "write quotes inside values doubled: in Spark by .option('escape', '\"')"
_ONE_ROW = "check --schema against the file; JSON has one object a line, CSV as many fields as names in its first line"
_SAME_HEADER = "write all files with the same first line"
_VALUE, _VALUE_END = "lakeward-unfit: ", " :lakeward-unfit"
# Sign in Spark's message, what is wrong, and what helps.
_SIGNS: tuple[tuple[str, str, str | None], ...] = (
    # Before what only says that the file was not read, or its footer: this says why.
    ("PARQUET_TYPE_", "has a column of a type that Spark does not read", _OTHER_TYPE),
    ("Illegal Parquet type", "has a column of a type that Spark does not read", _OTHER_TYPE),
    ("FAILED_READ_FILE.FILE_NOT_EXIST", "is gone since it was listed", "run again once nobody writes there"),
    ("FAILED_READ_FILE.PARQUET_COLUMN_DATA_TYPE_MISMATCH", "has a column of another type than the other files", None),
    ("is not a Parquet file", "is no Parquet file, or was cut off", "write the snapshot again"),
    ("Malformed ORC file", "is no ORC file, or was cut off", "write the snapshot again"),
    ("CANNOT_READ_FILE_FOOTER", "cannot be read: its footer is damaged", "write the snapshot again"),
    ("Unescaped quote character", "has a quote inside a quoted value that is not doubled", _DOUBLED),
    ("MALFORMED_RECORD_IN_PARSING", "has a row that does not fit the schema", _ONE_ROW),
    ("CSV header does not conform to the schema", "has other columns than the files before it", _SAME_HEADER),
    ("Number of column in CSV header is not equal", "has more or fewer columns than the files before it", _SAME_HEADER),
    ("CANNOT_MERGE_SCHEMAS", "has files with columns of different types", "write the snapshot again with one schema"),
    ("CANNOT_MERGE_INCOMPATIBLE_DATA_TYPE", "has files with columns of different types", "write it with one schema"),
    ("Failed merging schema", "has files with columns of different types", "write it with one schema"),
    ("UNABLE_TO_INFER_SCHEMA", "holds no file that tells its columns", "write the snapshot again"),
    ("CONFLICTING_DIRECTORY_STRUCTURES", "has folders that are no partitions of one table", None),
    ("Conflicting directory structures", "has folders that are no partitions of one table", None),
    ("for partition column", "has a folder whose value does not fit its column", "check --schema against the folders"),
    ("CAST_INVALID_INPUT", "has a folder whose value does not fit its column", "check --schema against the folders"),
    ("PATH_NOT_FOUND", "does not exist", None),
    ("AccessControlException", "may not be read", "check the permissions"),
    ("AccessDenied", "may not be read", "check the permissions"),
    ("Permission denied", "may not be read", "check the permissions"),
    ("No FileSystem for scheme", "is on a file system that this Spark has no jar for", None),
    ("UnsupportedFileSystemException", "is on a file system that this Spark has no jar for", None),
    ("FAILED_READ_FILE", "cannot be read", "write the snapshot again"),
)
_SHOWN_LENGTH = 200
_NO_FILE_SYSTEM = ("No FileSystem for scheme", "UnsupportedFileSystemException")


def unfit_value(*message: Column) -> Column:
    """Give a condition that makes the query fail at a value that is not of its column's type, with these words."""
    return failure(F.lit(_VALUE), *message, F.lit(_VALUE_END))


@contextmanager
def input_errors(label: str) -> Iterator[None]:
    """Turn errors of Spark about files into :class:`RefusedInputError`; leave all others as they are."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        refused = refusal(error, label)
        if refused is None:
            raise
        raise refused from error
    except OSError as error:
        msg = f"{error.filename or label} cannot be read: {error.strerror or error}"
        raise RefusedInputError(msg, hint="check the path and its permissions") from error


def refusal(error: BaseException, label: str) -> RefusedInputError | ConfigurationError | None:
    """Say what is wrong with an input, None where the error is about something else."""
    text = str(error)
    _, is_unfit, rest = text.partition(_VALUE)
    if is_unfit:
        return RefusedInputError(rest.partition(_VALUE_END)[0], hint="check --schema against the file")
    for sign, wrong, hint in _SIGNS:
        if sign in text:
            found = _FILE.search(text)
            name = found[1] if found else label
            kind = ConfigurationError if sign in _NO_FILE_SYSTEM else RefusedInputError
            return kind(f"{name} {wrong} ({_telling_line(text, sign)})", hint=hint)
    return None


def _telling_line(text: str, sign: str) -> str:
    """Give the line with the sign: Spark's first one often says no more than that a file was not read."""
    line = next((one for one in text.splitlines() if sign in one), None)
    if line is None:
        found = first_line(text)
    else:
        # The name of an error is in brackets.
        start = line.index(sign)
        found = line[start - 1 :] if line[:start].endswith("[") else line[start:]
    return found if len(found) <= _SHOWN_LENGTH else f"{found[:_SHOWN_LENGTH]}…"
