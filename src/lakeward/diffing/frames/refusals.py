"""Refused input: conditions that make a query fail, and the errors that such failures become.

A query cannot raise an error of Lakeward. A row that must be refused makes it fail with a marked message, which the
recognisers here turn into the error.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from lakeward.errors import RefusedInputError
from lakeward.spark.errors import Failure, translated, unreadable_input
from lakeward.spark.marks import Mark
from lakeward.spark.refusals import DUPLICATE, REFUSED, refused_row

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from pyspark.sql import Column

    from lakeward.errors import LakewardError
    from lakeward.spark.errors import Recogniser

_UNFIT = Mark("unfit")
ONE_ROW_A_KEY = (
    "name all columns of the key with --keys, or pair such rows by values without --to: --duplicate-keys report"
)


def refuse_unless(condition: Column, *message: Column | str) -> Column:
    """Return a condition that every row satisfies; a row that does not makes the job fail with the message."""
    return F.when(condition, F.lit(True)).otherwise(refusal(*message))


def refusal(*message: Column | str) -> Column:
    """Return a condition that makes the job fail with the message when it is evaluated."""
    return REFUSED.failing(*message)


def unfit_value(*message: Column | str) -> Column:
    """Return a condition that makes the job fail at a value that is not of its column's type, with the message."""
    return _UNFIT.failing(*message)


def duplicate_failure(side: str, keys: Sequence[tuple[str, Column]]) -> Column:
    """Return a condition that makes the job fail at a key that occurs twice on a side."""
    key = F.struct(*[value.alias(name) for name, value in keys])
    found = F.struct(F.lit(side).alias("side"), key.alias("key"))
    return DUPLICATE.failing(F.to_json(found, {"ignoreNullFields": "false"}))


def duplicate_error(side: str, key: Mapping[str, Any]) -> ValueError:
    """Return the error for a Python task that finds a key twice on a side."""
    return ValueError(DUPLICATE.around(json.dumps({"side": side, "key": key}, default=str)))


def refused_duplicate(found: str) -> RefusedInputError:
    """Return the error to raise for what :func:`duplicate_key_in` found."""
    return RefusedInputError(f"A key occurs more than once on the {found}", hint=ONE_ROW_A_KEY)


def refusals(*, hint: str | None = None) -> AbstractContextManager[None]:
    """Return a context that raises the refusal of a row, or of a key that occurs twice, as the error it is.

    Raises:
        RefusedInputError: a row was refused.
    """
    return translated(refused_row(hint))


def refused_input(label: str) -> tuple[Recogniser, ...]:
    """Return recognisers of values and files that cannot be read; ``label`` is used for a file without a name."""
    return _unfit, unreadable_input(label)


@contextmanager
def input_errors(label: str) -> Iterator[None]:
    """Turn errors about input files into :class:`RefusedInputError`; leave all others as they are."""
    try:
        with translated(*refused_input(label)):
            yield
    except OSError as error:
        msg = f"{error.filename or label} cannot be read: {error.strerror or error}"
        raise RefusedInputError(msg, hint="check the path and its permissions") from error


def _unfit(failure: Failure) -> LakewardError | None:
    message = failure.marked(_UNFIT)
    return None if message is None else RefusedInputError(message, hint="check --schema against the file")
