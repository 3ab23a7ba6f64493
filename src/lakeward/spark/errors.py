"""The translator of errors: from what Spark, the JVM, storage, the system or a Python task raised to error types.

A *recogniser* looks at a :class:`Failure` and returns the :class:`LakewardError` to raise instead, or None. Recognisers
are tried in order, and the first answer counts. Those for the known systems are made here from the tables in
:mod:`lakeward.spark.signs`; a caller passes the ones that fit its work, and may add its own:

    with translated(duplicate_key, *spark_faults("sales.product")):
        ...

An error that no recogniser handles is left as it is. :func:`as_lakeward_error` is the last resort: it returns an error
for every exception, and an unknown one is a bug.

Nothing here imports pyspark before an exception is examined: code that never starts Spark uses this module, too.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from lakeward.arguments import instance, takes
from lakeward.errors import BugError, ConfigurationError, DataError, LakewardError, RetriableError
from lakeward.external_errors import UNREACHABLE, scarcity, system_error
from lakeward.spark import signs
from lakeward.spark.marks import task_error_in
from lakeward.spark.refusals import refused_row
from lakeward.text import escape_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from lakeward.spark.marks import Mark

logger = logging.getLogger(__name__)

_LONGEST_LINE, _LONGEST_INPUT_LINE = 500, 200


class Failure:
    """An exception and its texts, which are searched for signs and marks."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    @cached_property
    def message(self) -> str:
        """The text of the error itself; that of a Java error includes its stack and causes."""
        return str(self.error)

    @cached_property
    def text(self) -> str:
        """The message with the Java stack: some messages are only a headline."""
        return f"{self.message}\n{getattr(self.error, '_stackTrace', None) or ''}"

    @cached_property
    def headline(self) -> str:
        """The line of the message that names the failure."""
        return headline(self.message)

    def marked(self, mark: Mark) -> str | None:
        """Return the message that a row put between marks, in this error or any of its causes."""
        found = (mark.find(text) for text in self._all_texts())
        return next((message for message in found if message is not None), None)

    def task_error(self) -> LakewardError | None:
        """Return the error that a Python task raised, None where there is none."""
        found = (task_error_in(text) for text in self._all_texts())
        return next((error for error in found if error is not None), None)

    def _all_texts(self) -> Iterator[str]:
        """Yield the texts of the error and of those that caused it, in Python and in the JVM."""
        seen: set[int] = set()
        current: BaseException | None = self.error
        while current is not None and id(current) not in seen:
            seen.add(id(current))
            yield str(current)
            java = getattr(current, "java_exception", None) or getattr(current, "_origin", None)
            while java is not None:
                yield str(java.toString())
                java = java.getCause()
            current = current.__cause__ or current.__context__


Recogniser = Callable[[Failure], LakewardError | None]


def recognised(error: BaseException, *recognisers: Recogniser) -> LakewardError | None:
    """Return the error of the first recogniser that handles an exception, None if none does."""
    failure = Failure(error)
    answers = (recognise(failure) for recognise in recognisers)
    return next((answer for answer in answers if answer is not None), None)


@contextmanager
def translated(*recognisers: Recogniser, bridge: bool = False) -> Iterator[None]:
    """Raise the recognised error instead of an error of Spark; other and unknown errors pass unchanged.

    With ``bridge`` they are also applied to errors of the connection to the JVM.

    Raises:
        LakewardError: a recogniser handles the error, which becomes the cause.
    """
    try:
        yield
    except Exception as error:
        is_known_system = _is_of_jvm(error) or (bridge and _is_of_bridge(error))
        found = recognised(error, *recognisers) if is_known_system else None
        if found is None:
            raise
        raise found from error


def is_missing_table(error: BaseException) -> bool:
    """Whether the error means that the catalog has no such table."""
    return _is_of_jvm(error) and signs.MISSING_TABLE.search(str(error)) is not None


def _is_of_jvm(error: BaseException) -> bool:
    """Whether Spark or other code in the JVM raised the error, so that the JVM was alive to do so."""
    if "py4j" not in sys.modules:
        return False
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    return isinstance(error, (PySparkException, Py4JJavaError))


def _is_of_bridge(error: BaseException) -> bool:
    """Whether the bridge between Python and the JVM raised the error, most often because the JVM is gone."""
    if "py4j" not in sys.modules:
        return False
    from py4j.protocol import Py4JError

    return isinstance(error, Py4JError)


def task_error(what: str = "") -> Recogniser:
    """Return a recogniser of errors that Python tasks raised; ``what`` comes before their messages."""

    def recognise(failure: Failure) -> LakewardError | None:
        found = failure.task_error()
        return type(found)(f"{what}: {found.message}", hint=found.hint) if found is not None and what else found

    return recognise


def storage_fault(what: str) -> Recogniser:
    """Return a recogniser of faults of the lake's storage, its catalog and the machine."""

    def recognise(failure: Failure) -> LakewardError | None:
        return _by_table(signs.STORAGE, failure.text, what, _line_at)

    return recognise


def spark_faults(what: str) -> tuple[Recogniser, ...]:
    """Return the recognisers for any job of Spark; ``what`` is the table or other subject of the work."""
    return task_error(what), storage_fault(what)


def commit_errors(what: str) -> AbstractContextManager[None]:
    """Return a context that translates errors of commits to a table of the lake.

    Raises:
        ConflictError: another writer committed first.
        DataError: files of the lake are missing.
    """
    return translated(lambda failure: _by_table(signs.COMMIT, failure.message, what, _headline_of))


def unreadable_input(label: str) -> Recogniser:
    """Return a recogniser of files that Spark cannot read; ``label`` is named where the error names no file."""

    def recognise(failure: Failure) -> LakewardError | None:
        text = failure.message
        found = _first_sign(signs.INPUT, text)
        if found is None:
            return None
        meaning, position = found
        file = signs.FILE.search(text)
        shown = _from_sign(text, position)
        return meaning.kind(f"{file[1] if file else label} {meaning.meaning} ({shown})", hint=meaning.hint)

    return recognise


def any_failure(kind: type[LakewardError], message: str, *, hint: str | None = None) -> Recogniser:
    """Return a recogniser that accepts every error: its headline follows the message."""

    def recognise(failure: Failure) -> LakewardError:
        return kind(f"{message}: {failure.headline}", hint=hint)

    return recognise


@contextmanager
def store_errors(path: str) -> Iterator[None]:
    """Translate errors of the disk and of Hadoop; unknown errors of Hadoop pass unchanged.

    Raises:
        ConfigurationError: there is no such bucket, no permission, or a file where a folder should be.
        RetriableError: the disk or the storage does not answer as it should.
    """
    try:
        with translated(_store_fault(path)):
            yield
    except OSError as error:
        raise system_error(error, path) from error


def _store_fault(path: str) -> Recogniser:
    known = storage_fault(path)

    def recognise(failure: Failure) -> LakewardError | None:
        found = known(failure)
        if isinstance(found, ConfigurationError):
            hint = "check the address, s3: in lakeward.yaml and the AWS_* variables"
            return ConfigurationError(found.message, hint=hint)
        if found is None and signs.MISSING_FILE.search(failure.message):
            return RetriableError(f"{path} is gone since it was listed", hint="run again")
        return found

    return recognise


def query_errors() -> AbstractContextManager[None]:
    """Return a context that reduces Spark's long errors about a user's query to one line.

    Raises:
        RefusedInputError: a diff in it found a key that occurs twice, or refused a row.
        ConfigurationError: the query failed.
    """
    return translated(refused_row("name all columns of the key"), _failed_query)


def _failed_query(failure: Failure) -> LakewardError:
    missing = "TABLE_OR_VIEW_NOT_FOUND" in failure.message
    hint = 'lakeward sql "SHOW TABLES IN SCHEMA", lakeward tables list' if missing else None
    condition = signs.CONDITION.search(failure.message)
    if condition:
        return ConfigurationError(f"the query failed: {condition[0].strip()}", hint=hint)
    lines = [line.strip() for line in failure.message.splitlines() if line.strip()]
    reason = next((line for line in lines if "Exception" in line), lines[0] if lines else "no reason was given")
    return ConfigurationError(f"the query failed: {reason}", hint=hint)


@takes(error=instance("an exception", BaseException))
def explain_error(error: BaseException) -> LakewardError | None:
    """Return the error of Lakeward that explains an exception; None for an unknown one, which is a bug.

    Known are errors of the operating system, such as a full disk or a wrong path, and the loss of Spark's JVM.
    """
    if isinstance(error, LakewardError):
        return error
    found = spark_died(error, "the command") or _explained_system_error(error)
    if found is not None:
        found.__cause__ = error
    return found


def _explained_system_error(error: BaseException) -> LakewardError | None:
    if isinstance(error, FileNotFoundError):
        return ConfigurationError(f"{error.filename or error}: {error.strerror}", hint="check the path")
    return system_error(error) if isinstance(error, OSError) else None


def as_lakeward_error(error: Exception, what: str) -> LakewardError:
    """Return the error to report for any exception; ``what`` is the table that the work was for.

    An unknown exception is reported as a bug, with the exception as its cause.
    """
    if isinstance(error, LakewardError):
        return error
    logger.debug("%s: unexpected error", what, exc_info=error)
    found = spark_died(error, what) or _of_system(error, what) or _of_spark(error, what) or _unexpected(error, what)
    found.__cause__ = error
    return found


def spark_died(error: BaseException, what: str) -> LakewardError | None:
    """Return the error for work whose JVM died, without importing Spark."""
    if "pyspark" not in sys.modules:
        return None
    from lakeward.spark import jvm

    return jvm.spark_died(error, what)


def _of_system(error: Exception, what: str) -> LakewardError | None:
    if isinstance(error, (ConnectionError, TimeoutError)):
        return RetriableError(f"{what}: {error}", hint="check the service it names, then run again")
    if not isinstance(error, OSError):
        return None
    if (scarce := scarcity(error, what)) is not None:
        return scarce
    if error.errno in UNREACHABLE:
        return ConfigurationError(f"{what}: {error}", hint="correct or remove that link or name in landing")
    return DataError(f"{what}: {error}", hint="check the file or folder it names, then run again")


def _of_spark(error: Exception, what: str) -> LakewardError | None:
    if not (_is_of_jvm(error) or _is_of_bridge(error)):
        return None

    def known_work(failure: Failure) -> LakewardError | None:
        return _by_table(signs.WORK, failure.message, what, _headline_of)

    unknown = any_failure(BugError, f"{what}: Spark failed", hint="run again with --debug for the whole error")
    return recognised(error, *spark_faults(what), known_work, unknown)


def _unexpected(error: Exception, what: str) -> LakewardError:
    """Return the error for an unknown exception, with the line that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" (in {Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    msg = f"{what}: this is a bug in Lakeward: {type(error).__name__}: {error}{where}"
    return BugError(escape_text(msg), hint="the same command with --debug, and report the traceback it shows")


def _first_sign(table: Sequence[signs.Meaning], text: str) -> tuple[signs.Meaning, int] | None:
    found = ((meaning, meaning.find(text)) for meaning in table)
    return next(((meaning, position) for meaning, position in found if position is not None), None)


def _by_table(
    table: Sequence[signs.Meaning], text: str, what: str, shown: Callable[[str, int], str]
) -> LakewardError | None:
    found = _first_sign(table, text)
    if found is None:
        return None
    meaning, position = found
    hint = meaning.hint.replace("{what}", what) if meaning.hint else None
    return meaning.kind(f"{what}: {meaning.meaning}: {shown(text, position)}", hint=hint)


def headline(text: str) -> str:
    """Return the line of an error's text that names the failure."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    line = next((line for line in lines if "Exception" in line or "Error" in line), lines[0] if lines else text)
    return line[:_LONGEST_LINE]


def _headline_of(text: str, _: int) -> str:
    return headline(text)


def _line_at(text: str, position: int) -> str:
    """Return the line at a position, without the prefixes of a Java stack."""
    begin = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    line = text[begin : end if end >= 0 else len(text)].strip()
    return line.removeprefix("Caused by: ").removeprefix(": ")[:_LONGEST_LINE]


def _from_sign(text: str, position: int) -> str:
    """Return the rest of the line from a sign on, including the bracket of a Spark condition."""
    begin = position - 1 if text[:position].endswith("[") else position
    line = text[begin:].splitlines()[0]
    return line if len(line) <= _LONGEST_INPUT_LINE else f"{line[:_LONGEST_INPUT_LINE]}…"
