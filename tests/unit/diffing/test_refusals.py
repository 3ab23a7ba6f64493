"""Errors of a query that mean that its input is refused."""

import errno

import pytest
from pyspark.errors import PySparkException

from lakeward.diffing.frames.refusals import duplicate_error, input_errors, refusals, refused_duplicate, refused_input
from lakeward.errors import RefusedInputError
from lakeward.spark.errors import Failure, recognised
from lakeward.spark.marks import Mark
from lakeward.spark.refusals import duplicate_key_in


def shown(text: object) -> PySparkException:
    return PySparkException(f"Job aborted\n{text}\n\tat org.apache.spark")


def test_a_key_that_a_task_finds_twice_is_named():
    error = shown(duplicate_error("past", {"id": None, "name": "é"}))
    found = duplicate_key_in(Failure(error))
    assert found == 'past side: {"id": null, "name": "é"}'
    assert refused_duplicate(found).message == f"A key occurs more than once on the {found}"
    with pytest.raises(RefusedInputError) as raised, refusals(hint="look"):
        raise error
    assert raised.value.message == f"the key {found} occurs more than once and does not identify a row"
    assert raised.value.hint == "look"


def test_a_key_whose_text_was_truncated_is_shown_in_part():
    error = PySparkException('lakeward-duplicate key: {"side": "past", "key": {"id"\n\tat x')
    assert duplicate_key_in(Failure(error)) == '{"side": "past", "key": {"id"'


def test_a_refused_row_has_its_message_and_the_hint_of_the_caller():
    error = shown(Mark("refused").around("the diff inserts id=1, which the past has"))
    with pytest.raises(RefusedInputError) as raised, refusals(hint="look"):
        raise error
    assert (raised.value.message, raised.value.hint) == ("the diff inserts id=1, which the past has", "look")
    assert raised.value.__cause__ is error


def test_a_value_that_does_not_fit_counts_before_what_spark_reports_of_its_file():
    error = shown(f"[FAILED_READ_FILE] file:/x/a.csv\n{Mark('unfit').around('column id holds no number')}")
    found = recognised(error, *refused_input("/x"))
    assert (found.message, found.hint) == ("column id holds no number", "check --schema against the file")


def test_errors_of_the_system_name_the_file_or_the_input():
    for name, expected in (("/x/a", "/x/a cannot be read: no"), (None, "/x cannot be read: no")):
        error = PermissionError(errno.EACCES, "no", name)
        with pytest.raises(RefusedInputError) as raised, input_errors("/x"):
            raise error
        assert raised.value.message == expected


def test_other_errors_pass():
    error = shown("[DIVIDE_BY_ZERO] Division by zero")
    with pytest.raises(PySparkException), refusals(), input_errors("/x"):
        raise error
