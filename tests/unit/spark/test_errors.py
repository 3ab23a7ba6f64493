"""The translator of errors: which recogniser handles which text, and what stays unchanged."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
import traceback
from pathlib import Path

import pytest
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import AnalysisException, PySparkException

import lakeward
from lakeward.errors import (
    BugError,
    ConfigurationError,
    ConflictError,
    DataError,
    LakewardError,
    RefusedInputError,
    RetriableError,
    SparkDiedError,
)
from lakeward.spark import signs
from lakeward.spark.errors import (
    Failure,
    any_failure,
    as_lakeward_error,
    commit_errors,
    is_missing_table,
    query_errors,
    recognised,
    spark_faults,
    store_errors,
    task_error,
    translated,
    unreadable_input,
)
from lakeward.spark.marks import Mark, TaskError, in_task, marked_errors
from lakeward.spark.refusals import DUPLICATE

WORKER = (
    "\n  An exception was thrown from the Python worker. Please see the stack trace below.\n{}\n\tat a.b.C(C.java:1)"
)
FULL = "java.io.IOException: No space left on device"


class JavaError(Py4JJavaError):
    """An error of the JVM, without a JVM."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.java_exception = None

    def __str__(self) -> str:
        return self.text


class Throwable:
    """A Java exception as the bridge shows it."""

    def __init__(self, text: str, cause: Throwable | None = None) -> None:
        self._text, self._cause = text, cause

    def toString(self) -> str:  # noqa: N802
        return self._text

    def getCause(self) -> Throwable | None:  # noqa: N802
        return self._cause


def shown_by_spark(error: LakewardError) -> PySparkException:
    """Raise an error in a task, after another one, and return what the driver gets of it."""
    try:
        with marked_errors():
            raise error from OSError(errno.EIO, "Input/output error")
    except TaskError:
        return PySparkException(WORKER.format(traceback.format_exc()))


# Errors of Python tasks.


@pytest.mark.parametrize(
    "error",
    [
        RetriableError("s3://b/k: no answer", hint="run again"),
        ConfigurationError("wrong key"),
        DataError("two\n\nparagraphs: é\n\tat '\"", hint="look"),
        RefusedInputError("a name like {} or :lakeward", hint="other"),
    ],
)
def test_an_error_raised_in_a_task_keeps_its_type(error):
    shown = shown_by_spark(error)
    for what, prefix in (("", ""), ("sales.product", "sales.product: ")):
        found = recognised(shown, task_error(what))
        assert type(found) is type(error)
        assert (found.message, found.hint) == (prefix + error.message, error.hint)
    assert as_lakeward_error(shown, "t").message == f"t: {error.message}"


def test_the_error_of_a_task_counts_before_what_its_traceback_holds():
    error = DataError("the file is damaged")
    shown = PySparkException(f"Caused by: {FULL}\n{shown_by_spark(error)}")
    assert type(recognised(shown, *spark_faults("t"))) is DataError


def test_an_error_of_a_task_whose_text_was_truncated_is_an_unknown_failure():
    shown = str(shown_by_spark(DataError("the file is damaged")))
    cut = PySparkException(shown[: shown.rindex("the file is damaged")])
    assert recognised(cut, *spark_faults("t")) is None
    assert isinstance(as_lakeward_error(cut, "t"), BugError)


def test_batches_pass_through_a_task_and_errors_between_them_are_marked():
    error = ConfigurationError("no DuckDB", hint="install it")

    def read(batches):
        yield from batches
        raise error

    run = in_task(read)([1, 2])
    assert [next(run), next(run)] == [1, 2]
    with pytest.raises(TaskError) as raised:
        next(run)
    assert raised.value.__cause__ is error


def test_other_errors_of_a_task_are_not_marked():
    error = ValueError("odd")
    with pytest.raises(ValueError, match="odd"), marked_errors():
        raise error


def test_every_function_that_spark_maps_over_batches_marks_its_errors():
    sources = [path.read_text() for path in Path(lakeward.__file__).parent.rglob("*.py")]
    mapped = [match for text in sources for match in re.findall(r"\.mapInArrow\((\w+)", text)]
    assert len(mapped) >= 10 and set(mapped) == {"in_task"}


# Marked messages of rows.


def test_a_marked_message_is_found_in_every_error_behind_the_one_that_is_seen():
    mark, message = Mark("test"), '{"key": "é :lakeward"}'
    java = PySparkException("Job aborted")
    java._origin = Throwable("SparkException: Job aborted", Throwable(f"Error: {mark.around(message)} SQLSTATE: P0001"))
    cause = RuntimeError("outer")
    cause.__cause__ = PySparkException(f"text before {mark.around(message)} and after")
    context = RuntimeError("outer")
    context.__context__ = java
    for error in (PySparkException(mark.around(message)), java, cause, context):
        assert Failure(error).marked(mark) == message
        assert Failure(error).marked(Mark("other")) is None


def test_errors_that_cause_each_other_are_visited_once():
    first, second = RuntimeError("first"), RuntimeError("second")
    first.__context__, second.__context__ = second, first
    assert Failure(first).marked(Mark("test")) is None


# The storage, the catalog and the machine.


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("S3Exception: signature does not match (Service: S3, Status Code: 403, Request ID: 1)", ConfigurationError),
        ("S3Exception: Slow Down (Service: S3, Status Code: 503, Request ID: 1)", RetriableError),
        ("S3Exception: (Service: S3, Status Code: 429, Request ID: 1)", RetriableError),
        ("NoSuchBucketException: The specified bucket does not exist (Status Code: 404)", ConfigurationError),
        ("SdkClientException: Unable to execute HTTP request: Connection refused", RetriableError),
        ("SdkClientException: Unable to load credentials from any of the providers", ConfigurationError),
        ("SdkClientException: Unable to load region from any of the providers", ConfigurationError),
        ("org.apache.iceberg.exceptions.NotAuthorizedException: Not authorized: invalid_client", ConfigurationError),
        ("org.apache.iceberg.exceptions.ServiceUnavailableException: Service unavailable", RetriableError),
        ("RESTException: Error occurred while processing POST request", RetriableError),
        ("CommitStateUnknownException: Service failed: 503\nStatus Code: 403", RetriableError),
        ("org.sqlite.SQLiteException: [SQLITE_BUSY] The database file is locked", RetriableError),
        ("glue.model.AccessDeniedException: not authorized (Service: Glue, Status Code: 400)", ConfigurationError),
        ("GlueException: Rate exceeded: ThrottlingException (Service: Glue, Status Code: 400)", RetriableError),
        ("java.nio.file.AccessDeniedException: s3a://b/k: getFileStatus on s3a://b/k", ConfigurationError),
        (FULL, RetriableError),
        ("java.lang.OutOfMemoryError: Java heap space", SparkDiedError),
    ],
)
def test_errors_of_storage_and_catalog_are_recognised_by_the_java_stack(text, kind):
    error = Exception(f"An error occurred while calling o1.sql.\n: {text}\n\tat a.b.C(C.java:1)\n")
    found = recognised(error, *spark_faults("sales.product"))
    assert type(found) is kind and found.hint
    assert found.message.startswith("sales.product: ") and text.splitlines()[0] in found.message
    assert "\tat" not in found.message


def test_the_stack_beside_a_headline_is_read_too():
    error = Exception("[INTERNAL_ERROR] The query failed")
    error._stackTrace = "X\nCaused by: java.net.ConnectException: Connection refused\n\tat y"
    found = recognised(error, *spark_faults("t"))
    assert isinstance(found, RetriableError)
    assert found.message.endswith(": java.net.ConnectException: Connection refused")


@pytest.mark.parametrize(
    "text", ["[DIVIDE_BY_ZERO] Division by zero", "lakeward.errors.Unknown: x", "Status Code: 404"]
)
def test_unrecognised_errors_stay_unknown(text):
    assert recognised(Exception(text), *spark_faults("t")) is None


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (f"Job aborted\n{FULL}", RetriableError, "out: a disk is full"),
        ("org.apache.hadoop.fs.s3a.UnknownStoreException: x", ConfigurationError, "out: there is no such bucket"),
        ("something else", PySparkException, "something else"),
    ],
)
def test_known_errors_are_raised_with_their_cause_and_unknown_ones_pass(text, kind, message):
    error = PySparkException(text)
    with pytest.raises(kind, match=message) as raised, translated(*spark_faults("out")):
        raise error
    assert raised.value is error or raised.value.__cause__ is error


@pytest.mark.parametrize("error", [ValueError(FULL), DataError(FULL), OSError(errno.ENOSPC, FULL)])
def test_only_errors_of_spark_are_translated(error):
    with pytest.raises(type(error)) as raised, translated(*spark_faults("t"), any_failure(BugError, "t")):
        raise error
    assert raised.value is error


def test_errors_of_the_bridge_are_translated_on_request():
    unknown = any_failure(ConfigurationError, "Spark failed", hint="look")
    error = Py4JNetworkError("Answer from Java side is empty")
    with pytest.raises(Py4JNetworkError), translated(unknown):
        raise error
    with pytest.raises(ConfigurationError) as raised, translated(unknown, bridge=True):
        raise error
    assert (raised.value.message, raised.value.hint) == ("Spark failed: Answer from Java side is empty", "look")


def test_the_first_recogniser_that_matches_counts():
    answers = [None, DataError("first"), RetriableError("second")]
    calls = []

    def recogniser(answer):
        return lambda failure: calls.append(failure) or answer

    assert recognised(PySparkException("x"), *map(recogniser, answers)) is answers[1]
    assert len(calls) == 2


# Commits.


@pytest.mark.parametrize(
    "text",
    [
        "org.apache.iceberg.exceptions.CommitFailedException: Requirement failed: branch main has changed",
        "BadRequestException: Malformed request: Failed to apply update: can't add snapshot with sequence number 5",
        "ValidationException: Cannot add snapshot with sequence number 5 older than last sequence number 6",
        "exceptions.AlreadyExistsException: Table already exists: sales.product",
        "UncheckedSQLException: x\nUNIQUE constraint failed: iceberg_namespace_properties.catalog_name",
    ],
)
@pytest.mark.parametrize("kind", [PySparkException, JavaError])
def test_a_commit_that_came_too_late_is_a_conflict(kind, text):
    error = kind(f"An error occurred\n{text}")
    with pytest.raises(ConflictError) as raised, commit_errors("lake.sales.product"):
        raise error
    assert raised.value.message.startswith("lake.sales.product: another writer committed first: ")
    assert text.splitlines()[0] in raised.value.message


def test_a_commit_that_misses_files_of_the_lake():
    error = PySparkException("org.apache.iceberg.exceptions.NotFoundException: File does not exist: /x")
    with pytest.raises(DataError, match="t: files of the lake are missing: ") as raised, commit_errors("t"):
        raise error
    assert "backup" in raised.value.hint


@pytest.mark.parametrize("text", ["BadRequestException: no such field", f"x\n{FULL}", "AlreadyExistsException: File"])
def test_other_errors_of_a_commit_keep_their_type(text):
    with pytest.raises(PySparkException), commit_errors("lake.sales.product"):
        raise PySparkException(text)


def test_a_table_that_the_catalog_does_not_have():
    assert is_missing_table(JavaError("org.apache.spark.sql.catalyst.analysis.NoSuchTableException: x"))
    assert is_missing_table(AnalysisException("[TABLE_OR_VIEW_NOT_FOUND] x"))
    assert not is_missing_table(JavaError("NoSuchElementException"))
    assert not is_missing_table(ValueError("NoSuchTableException"))


# Files that are read as input.


def test_the_most_specific_line_is_shown_of_a_file_that_cannot_be_read():
    nanos = (
        "Job aborted [CANNOT_READ_FILE_FOOTER] Could not read footer for file: file:/x/a.parquet.\n"
        "Caused by: [PARQUET_TYPE_ILLEGAL] Illegal Parquet type: INT64 (TIMESTAMP(NANOS,true)). SQLSTATE: 42846"
    )
    found = recognised(RuntimeError(nanos), unreadable_input("/x"))
    assert found is not None
    shown = "([PARQUET_TYPE_ILLEGAL] Illegal Parquet type: INT64 (TIMESTAMP(NANOS,true)). SQLSTATE: 42846)"
    assert found.message == f"file:/x/a.parquet has a column of a type that Spark does not read {shown}"
    assert "microseconds" in str(found.hint)
    long = recognised(RuntimeError("FAILED_READ_FILE " + "x" * 500), unreadable_input("/x"))
    assert long is not None and long.message.endswith("x…)")


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("FAILED_READ_FILE.FILE_NOT_EXIST s3a://b/a.csv does", RefusedInputError, "s3a://b/a.csv is gone since"),
        ("[PATH_NOT_FOUND] Path does not exist", RefusedInputError, "/x does not exist ([PATH_NOT_FOUND] Path"),
        ("No FileSystem for scheme ftp", ConfigurationError, "/x is on a file system that this Spark has no jar for"),
        ("UnsupportedFileSystemException: ftp", ConfigurationError, "/x is on a file system"),
        ("Permission denied: file:/x/b.json", RefusedInputError, "file:/x/b.json may not be read"),
    ],
)
def test_files_that_cannot_be_read_are_named(text, kind, message):
    found = recognised(PySparkException(f"Job aborted\n{text}\n\tat x"), unreadable_input("/x"))
    assert type(found) is kind and found.message.startswith(message)


# Stores.


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (JavaError("UnknownStoreException: `s3a://typo/'"), ConfigurationError, "no such bucket"),
        (JavaError("java.io.FileNotFoundException: No such file: s3a://b/x"), RetriableError, "s3://b/x is gone since"),
        (JavaError("AWSClientIOException: x"), RetriableError, "does not answer"),
        (JavaError("java.lang.IllegalStateException"), JavaError, "IllegalStateException"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), RetriableError, "s3://b/x: the disk is full"),
        (PermissionError(errno.EACCES, "no", "/y"), ConfigurationError, "/y: no"),
        (ConnectionResetError(errno.ECONNRESET, "reset"), RetriableError, "s3://b/x: reset"),
    ],
)
def test_errors_of_stores_have_a_remedy(error, kind, message):
    with pytest.raises(kind, match=message) as raised, store_errors("s3://b/x"):
        raise error
    if kind is ConfigurationError:
        assert raised.value.hint.startswith("check the ")


def test_a_store_without_spark_does_not_import_it():
    code = (
        "import errno, sys\n"
        "from lakeward.spark.errors import as_lakeward_error, store_errors\n"
        "try:\n"
        "    with store_errors('/x'):\n"
        "        raise OSError(errno.ENOSPC, 'full')\n"
        "except Exception as error:\n"
        "    print(type(error).__name__, type(as_lakeward_error(ValueError('x'), 't')).__name__)\n"
        "print('pyspark' in sys.modules, 'py4j' in sys.modules)\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["RetriableError", "BugError", "False", "False"]


# Queries of users.


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "An error occurred while calling o1.\norg.apache.spark.SparkException: [DIVIDE_BY_ZERO] Division.\n at x",
            "the query failed: [DIVIDE_BY_ZERO] Division.",
        ),
        ("calling\njava.lang.OddException: odd", "the query failed: java.lang.OddException: odd"),
        ("", "the query failed: no reason was given"),
    ],
)
def test_errors_of_a_query_are_one_line(text, message):
    with pytest.raises(ConfigurationError) as raised, query_errors():
        raise JavaError(text)
    assert (raised.value.message, raised.value.hint) == (message, None)


def test_a_key_that_comes_twice_is_refused_input_in_a_query():
    marked = DUPLICATE.around('{"side": "past", "key": {"id": 1}}')
    text = f"[USER_RAISED_EXCEPTION] {marked} SQLSTATE: P0001"
    with pytest.raises(RefusedInputError) as raised, query_errors():
        raise JavaError(text)
    assert raised.value.message == 'the key past side: {"id": 1} occurs more than once and does not identify a row'
    assert raised.value.hint == "name all columns of the key"


def test_a_query_of_a_table_that_is_not_there_names_the_commands_that_list_tables():
    error = PySparkException("[TABLE_OR_VIEW_NOT_FOUND] The table or view `x` cannot be found.")
    with pytest.raises(ConfigurationError) as raised, query_errors():
        raise error
    assert "lakeward tables list" in raised.value.hint


# The last resort.


@pytest.mark.parametrize(
    ("error", "kind", "message", "hint"),
    [
        (PySparkException("java.io.FileNotFoundException: /x"), DataError, "files of the lake are missing", "backup"),
        (
            JavaError("Cannot check and eventually update SQL schema"),
            RetriableError,
            "the lake's catalog is busy",
            "lakeward run t",
        ),
        (JavaError("ExecutorLostFailure (executor 1 exited)"), RetriableError, "Spark lost workers", "lakeward run t"),
        (PySparkException(f"x\n{FULL}"), RetriableError, "a disk is full", "free space"),
        (Py4JError("odd"), BugError, "Spark failed: odd", "--debug"),
        (PySparkException("[INTERNAL_ERROR] x"), BugError, r"Spark failed: \[INTERNAL_ERROR\] x", "--debug"),
        (TimeoutError("slow"), RetriableError, "slow", "check the service"),
        (OSError(errno.ENOSPC, "full"), RetriableError, "the disk is full", "free space"),
        (OSError(errno.ELOOP, "loop", "/x"), ConfigurationError, "loop", "link"),
        (FileNotFoundError(errno.ENOENT, "gone", "/x"), DataError, "gone", "check the file"),
        (KeyError("x"), BugError, "this is a bug in Lakeward: KeyError: 'x'", "--debug"),
    ],
)
def test_every_exception_is_translated_with_its_cause(error, kind, message, hint):
    found = as_lakeward_error(error, "t")
    assert type(found) is kind
    assert re.match(f"t: .*{message}", found.message) and hint in found.hint
    assert found.__cause__ is error


def test_an_unknown_error_names_the_place_that_it_came_from():
    try:
        _ = {}["x"]
    except KeyError as error:
        found = as_lakeward_error(error, "t")
    assert re.search(r"\(in test_errors\.py, line \d+\)$", found.message)


def test_an_error_of_lakeward_stays_the_same():
    error = ConflictError("x")
    assert as_lakeward_error(error, "t") is error


@pytest.mark.parametrize("table", [signs.STORAGE, signs.COMMIT, signs.WORK, signs.INPUT])
def test_every_sign_of_a_table_can_be_found(table):
    """Each is a regular expression that compiles, and none finds itself in an empty text."""
    for meaning in table:
        assert meaning.signs and meaning.find("") is None
        assert all(re.compile(sign) for sign in meaning.signs)
