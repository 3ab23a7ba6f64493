"""Reading the DynamoDB table of a DMS walkthrough deployment, page by page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakeward.aws_errors import answer_in, is_without_answer
from lakeward.errors import ConfigurationError, LakewardError, RetriableError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.controller.walkthrough import Item


def scan_items(table: str, *, region: str | None = None, endpoint: str | None = None) -> Iterator[Item]:
    """Give every item of a DynamoDB table with its typed values; a consistent read, page by page.

    Raises:
        ConfigurationError: boto3, region, credentials, the right to read or the table are missing.
        RetriableError: the service does not answer.
    """
    try:
        import boto3
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError as error:
        msg = f"reading DynamoDB needs boto3, which is not installed ({error.name})"
        raise ConfigurationError(msg, hint="pip install 'lakeward[aws]'") from error
    try:
        client: Any = boto3.client("dynamodb", region_name=region, endpoint_url=endpoint)
        try:
            for page in client.get_paginator("scan").paginate(TableName=table, ConsistentRead=True):
                yield from page["Items"]
        finally:
            client.close()
    except (BotoCoreError, ClientError, ValueError) as error:
        raise _translated(error, table) from error


def _translated(error: Exception, table: str) -> LakewardError:
    """Return the error for a table that cannot be read: one that passes, or one that someone must mend."""
    answer = answer_in(error)
    if answer.code == "ResourceNotFoundException":
        msg = f"there is no DynamoDB table {table!r} in this region and account"
        return ConfigurationError(msg, hint="check the table's name and --region")
    msg = f"the DynamoDB table {table!r} cannot be read: {error}"
    if answer.is_passing or is_without_answer(error):
        return RetriableError(msg, hint="try again")
    hint = "set AWS_REGION (or --region) and credentials that may dynamodb:Scan the table"
    return ConfigurationError(msg, hint=hint)
