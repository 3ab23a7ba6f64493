"""What an answer of an AWS service means, whatever service it is."""

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError, ReadTimeoutError

from lakeward.external_errors import Answer, answer_in, is_without_answer


def answered(code: str, status: int) -> ClientError:
    response = {"Error": {"Code": code, "Message": "why"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(response, "GetItem")


@pytest.mark.parametrize(
    ("code", "status", "is_passing"),
    [
        ("SlowDown", 503, True),
        ("ThrottlingException", 400, True),
        ("ProvisionedThroughputExceededException", 400, True),
        ("TransactionConflictException", 400, True),
        ("Unheard", 500, True),
        ("Unheard", 429, True),
        ("Unheard", 400, False),
        ("AccessDenied", 403, False),
        ("NoSuchKey", 404, False),
    ],
)
def test_answers_show_whether_the_same_call_may_succeed_later(code, status, is_passing):
    answer = answer_in(answered(code, status))
    assert answer == Answer(code, "why", status)
    assert (answer.is_passing, str(answer)) == (is_passing, f"{code} why")


@pytest.mark.parametrize("error", [ValueError("x"), None, NoCredentialsError()])
def test_an_error_without_an_answer_has_an_empty_one(error):
    answer = answer_in(error)
    assert (answer, str(answer), answer.is_passing) == (Answer(), "", False)


def test_errors_of_an_unreachable_service():
    assert is_without_answer(EndpointConnectionError(endpoint_url="http://x"))
    assert is_without_answer(ReadTimeoutError(endpoint_url="http://x"))
    assert not is_without_answer(NoCredentialsError())
    assert not is_without_answer(answered("SlowDown", 503))
