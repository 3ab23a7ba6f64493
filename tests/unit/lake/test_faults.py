"""What stands behind an error of Spark, told from its text."""

import pytest

from lakeward.errors import ConfigurationError, DataError, RetriableError
from lakeward.lake.iceberg.faults import classify_spark_error

TRACEBACK = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/lib/lakeward/s3.py", line 190, in s3_errors
    yield
botocore.exceptions.EndpointConnectionError: Could not connect to the endpoint URL: "http://store/b?prefix=a"

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/lib/lakeward/sources/s3.py", line 80, in identity
    raise RetriableError("…")
lakeward.errors.{error}
"""


@pytest.mark.parametrize(
    ("raised", "kind", "message", "hint"),
    [
        ("RetriableError: s3://b/k: no answer\nTry: run again\n", RetriableError, "s3://b/k: no answer", "run again"),
        ("ConfigurationError: wrong key\n", ConfigurationError, "wrong key", None),
        ("DataError: two\nlines\nTry: look\n\n\tat org.apache.spark.X(X.scala:1)", DataError, "two\nlines", "look"),
    ],
)
def test_an_error_raised_in_a_task_comes_back_as_what_it_was(raised, kind, message, hint):
    found = classify_spark_error(Exception(TRACEBACK.format(error=raised)), "sales.product")
    assert type(found) is kind
    assert (found.message, found.hint) == (f"sales.product: {message}", hint)


def test_the_last_error_of_a_traceback_counts():
    text = TRACEBACK.format(error="DataError: the cause\n\n") + TRACEBACK.format(error="RetriableError: the outcome\n")
    assert isinstance(classify_spark_error(Exception(text), "t"), RetriableError)


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
    ],
)
def test_faults_of_storage_and_catalog_are_told_from_the_java_stack(text, kind):
    error = Exception(f"An error occurred while calling o1.sql.\n: {text}\n\tat a.b.C(C.java:1)\n")
    found = classify_spark_error(error, "sales.product")
    assert type(found) is kind and found.hint
    assert found.message.startswith("sales.product: ") and text.splitlines()[0] in found.message
    assert "\tat" not in found.message


def test_the_stack_beside_a_headline_is_read_too():
    error = Exception("[INTERNAL_ERROR] The query failed")
    error._stackTrace = "X\nCaused by: java.net.ConnectException: Connection refused\n\tat y"
    found = classify_spark_error(error, "t")
    assert isinstance(found, RetriableError)
    assert found.message.endswith(": java.net.ConnectException: Connection refused")


@pytest.mark.parametrize(
    "text", ["[DIVIDE_BY_ZERO] Division by zero", "lakeward.errors.Unknown: x", "Status Code: 404"]
)
def test_what_is_not_known_stays_unknown(text):
    assert classify_spark_error(Exception(text), "t") is None
