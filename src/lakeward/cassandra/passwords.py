"""Passwords of clusters, which settings only point at: a variable of the environment, or AWS Secrets Manager."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lakeward.config.clusters import SECRET_MARK
from lakeward.config.environment import from_environment
from lakeward.errors import ConfigurationError

if TYPE_CHECKING:
    from lakeward.config.clusters import ClusterSettings

_EXTRA = "pip install 'lakeward[aws]'"


def password_of(name: str, settings: ClusterSettings) -> str | None:
    """Fetch the password that a cluster's settings point at; None: it needs none.

    Raises:
        ConfigurationError: it is not where they say.
    """
    if settings.password is None:
        return None
    if settings.password.startswith(SECRET_MARK):
        return _secret(name, settings.password.removeprefix(SECRET_MARK))
    return from_environment(settings.password, f"the password of cluster {name}")


def _secret(cluster: str, secret: str) -> str:
    """Read a secret: text that is the password, or a JSON object whose ``password`` is."""
    try:
        import boto3
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError as error:
        msg = f"the password of cluster {cluster} is in AWS Secrets Manager, for which a package is not installed"
        raise ConfigurationError(msg, hint=_EXTRA) from error
    try:
        # An ARN says itself in which region it is.
        region = secret.split(":")[3] if secret.startswith("arn:") else None
        client = boto3.client("secretsmanager", region_name=region)
        try:
            found = client.get_secret_value(SecretId=secret).get("SecretString")
        finally:
            client.close()
    except (BotoCoreError, ClientError) as error:
        msg = f"the password of cluster {cluster} cannot be read from AWS Secrets Manager ({secret}): {error}"
        raise ConfigurationError(msg, hint=f"aws secretsmanager get-secret-value --secret-id {secret}") from error
    password = _password_in(found or "")
    if not password:
        msg = f"the secret {secret} holds no password for cluster {cluster}"
        raise ConfigurationError(msg, hint='its text is the password, or a JSON object: {"password": "…"}')
    return password


def _password_in(text: str) -> str:
    if not text.startswith("{"):
        return text
    try:
        document = json.loads(text)
    except ValueError:
        # A password may begin with a brace.
        return text
    return str(document.get("password") or "")
