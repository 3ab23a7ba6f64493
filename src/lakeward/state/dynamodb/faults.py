"""What a fault of DynamoDB, or of the way to it, means for the user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakeward.aws_errors import answer_in, is_without_answer
from lakeward.errors import ConfigurationError, LakewardError, RetriableError

if TYPE_CHECKING:
    from lakeward.aws_errors import Answer
    from lakeward.state.dynamodb.address import DynamoAddress

_MISSING_TABLE = "ResourceNotFoundException"
_FAILED_CONDITION = "ConditionalCheckFailed"
_REFUSED = {
    "AccessDeniedException",
    "ExpiredTokenException",
    "IncompleteSignatureException",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "MissingAuthenticationTokenException",
    "NotAuthorized",
    "OptInRequired",
    "UnrecognizedClientException",
}


class ConditionFailedError(Exception):
    """What a write was conditional on no longer holds; the caller looks again."""


class MissingTableError(Exception):
    """The table is gone."""


def is_conflict(error: BaseException | None) -> bool:
    """Whether two transactions met on an item, so that the same call may pass a moment later."""
    code = answer_in(error).code
    if code == "TransactionCanceledException":
        return _FAILED_CONDITION not in _reasons(error) and "TransactionConflict" in _reasons(error)
    return code in ("TransactionConflictException", "TransactionInProgressException")


def explain(error: BaseException, address: DynamoAddress) -> Exception | None:
    """The error to raise instead; None for what only a bug can cause."""
    answer = answer_in(error)
    code = answer.code
    if code == f"{_FAILED_CONDITION}Exception" or _FAILED_CONDITION in _reasons(error):
        return ConditionFailedError()
    if code == _MISSING_TABLE:
        return MissingTableError()
    if code:
        return _explain_answer(error, answer, address)
    return _explain_silence(error, address)


def _reasons(error: BaseException | None) -> list[str]:
    """Why each action of a cancelled transaction was refused."""
    response: dict[str, Any] = getattr(error, "response", None) or {}
    return [str(reason.get("Code")) for reason in response.get("CancellationReasons", [])]


def _explain_answer(error: BaseException, answer: Answer, address: DynamoAddress) -> LakewardError | None:
    if answer.code in _REFUSED:
        msg = f"the state store {address} refuses: {error}"
        return ConfigurationError(msg, hint="check the AWS credentials and the allowed actions (docs/state.md)")
    if answer.is_passing:
        msg = f"the state store {address} cannot serve the call at the moment: {error}"
        return RetriableError(msg, hint="try again; if it is throttled often, raise the limits of the table")
    return None


def _explain_silence(error: BaseException, address: DynamoAddress) -> LakewardError | None:
    from botocore import exceptions

    if is_without_answer(error):
        msg = f"the state store {address} does not answer: {error}"
        return RetriableError(msg, hint="check network, region and endpoint, then try again")
    if isinstance(error, exceptions.NoRegionError):
        msg = f"no region is known for the state store {address}"
        return ConfigurationError(msg, hint=f"state: {address}?region=eu-west-1, or set AWS_REGION")
    if isinstance(error, exceptions.BotoCoreError):
        msg = f"the state store {address} cannot be asked: {error}"
        return ConfigurationError(msg, hint="check the AWS credentials: aws sts get-caller-identity")
    return None
