"""Which errors of a commit mean that another writer was faster."""

import pytest
from pyspark.errors import PySparkException

from lakeward.errors import ConflictError
from lakeward.lake.iceberg.table import translated


@pytest.mark.parametrize(
    "text",
    [
        "org.apache.iceberg.exceptions.CommitFailedException: Requirement failed: branch main has changed",
        "BadRequestException: Malformed request: Failed to apply update: can't add snapshot with sequence number 5",
        "ValidationException: Cannot add snapshot with sequence number 5 older than last sequence number 6",
    ],
)
def test_a_commit_that_came_too_late_is_a_conflict(text):
    with pytest.raises(ConflictError, match="another writer committed first"), translated("lake.sales.product"):
        raise PySparkException(text)


def test_other_errors_stay_what_they_are():
    text = "BadRequestException: Malformed request: no such field"
    with pytest.raises(PySparkException, match="BadRequestException"), translated("lake.sales.product"):
        raise PySparkException(text)
