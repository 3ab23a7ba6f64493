"""S3 for landing and lake: locations, clients, and the translation of errors."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakeward.errors import ConfigurationError, RetriableError
from lakeward.external_errors import answer_in, is_without_answer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.config.services import S3Keys, S3Settings

SCHEMES = ("s3://", "s3a://")
# A region that any server accepts; Amazon redirects to the right one.
DEFAULT_REGION = "us-east-1"
_REMEDY = "check s3: in lakeward.yaml and the AWS_* variables, then: lakeward doctor --no-spark"
_CONNECT_SECONDS, _READ_SECONDS, _ATTEMPTS = 10, 60, 5

# An https:// endpoint that speaks http, or whose certificate is not trusted: retrying does not help.
_BAD_TLS = ("CERTIFICATE_VERIFY_FAILED", "WRONG_VERSION_NUMBER")
_NO_BUCKET = "NoSuchBucket"
_NO_KEY = {"404", "NoSuchKey", "NotFound"}
_BAD_KEYS = {
    "AuthorizationHeaderMalformed", "ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "SignatureDoesNotMatch",
}  # fmt: skip


@dataclass(frozen=True)
class S3Location:
    """A bucket and a prefix in it, without slashes at its ends."""

    bucket: str
    prefix: str

    @classmethod
    def parse(cls, uri: str, setting: str) -> S3Location:
        """Parse ``s3://bucket/prefix``; nothing in the prefix is an escape."""
        scheme, _, rest = uri.partition("://")
        bucket, _, prefix = rest.partition("/")
        if not bucket:
            msg = f"{setting} {uri!r} names no bucket; expected {scheme}://bucket/prefix"
            raise ConfigurationError(msg)
        return cls(bucket, prefix.strip("/"))


def is_s3(location: str) -> bool:
    """Whether a location is in S3."""
    return location.startswith(SCHEMES)


def s3_client(settings: S3Settings, keys: S3Keys | None) -> Any:
    """Return a boto3 client that retries after short failures.

    Raises:
        ConfigurationError: boto3 is missing, or the settings do not make a client.
    """
    try:
        import boto3
        from botocore.config import Config as ClientConfig
    except ImportError as error:
        msg = f"S3 needs boto3, which is not installed ({error.name})"
        raise ConfigurationError(msg, hint="pip install 'lakeward[aws]'") from error
    config = ClientConfig(
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_READ_SECONDS,
        retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
        s3={"addressing_style": _addressing(settings)},
    )
    with s3_errors("S3"):
        session = boto3.Session(
            aws_access_key_id=keys.access if keys else None,
            aws_secret_access_key=keys.secret if keys else None,
            aws_session_token=keys.token if keys else None,
        )
        region = settings.region or session.region_name or DEFAULT_REGION
        return session.client("s3", region_name=region, endpoint_url=settings.endpoint, config=config)


def _addressing(settings: S3Settings) -> str:
    if settings.is_path_style:
        return "path"
    # With "auto" the client puts names that cannot be part of a host name into the path.
    return "auto" if settings.path_style == "auto" else "virtual"


def hadoop_s3_settings(settings: S3Settings) -> dict[str, str]:
    """Return the settings of Hadoop for S3."""
    keys = settings.keys()
    found = {
        "path.style.access": str(settings.is_path_style).lower(),
        "endpoint": settings.endpoint,
        "endpoint.region": settings.region or (DEFAULT_REGION if settings.endpoint else None),
        "access.key": keys.access if keys else None,
        "secret.key": keys.secret if keys else None,
        "session.token": keys.token if keys else None,
    }
    return {f"fs.s3a.{name}": value for name, value in found.items() if value is not None}


@contextmanager
def s3_errors(where: str) -> Iterator[None]:
    """Translate errors of a client into errors of Lakeward; ``where`` is the requested address.

    Raises:
        ConfigurationError: no keys, wrong keys, no permission, no such bucket, or invalid settings.
        RetriableError: not reachable, too slow, interrupted, or asked to retry.
        FileNotFoundError: there is no such object.
    """
    from botocore.exceptions import BotoCoreError, ClientError
    from urllib3.exceptions import HTTPError

    try:
        yield
    except ClientError as error:
        raise _of_answer(error, where) from error
    except BotoCoreError as error:
        raise _of_client(error, where) from error
    except (HTTPError, ConnectionError, TimeoutError) as error:
        # The connection was lost while an object was being read.
        raise _passing(where, str(error)) from error


def _of_answer(error: Exception, where: str) -> Exception:
    answer = answer_in(error)
    if answer.is_passing:
        return _passing(where, str(answer))
    if answer.code in _NO_KEY:
        return FileNotFoundError(f"{where} does not exist")
    if answer.code == _NO_BUCKET:
        msg = f"{where}: there is no bucket {where.partition('://')[2].partition('/')[0]!r}"
        return ConfigurationError(msg, hint="correct the bucket's name in lakeward.yaml, or create it")
    reason = "the keys are refused" if answer.code in _BAD_KEYS else "S3 refuses it"
    return ConfigurationError(f"{where}: {reason}: {answer}".rstrip(), hint=_REMEDY)


def _of_client(error: Any, where: str) -> Exception:
    from botocore import exceptions as found

    cut_off = isinstance(error, found.IncompleteReadError | found.FlexibleChecksumError)
    if (cut_off or is_without_answer(error)) and not any(sign in str(error) for sign in _BAD_TLS):
        return _passing(where, str(error))
    return ConfigurationError(f"{where}: {error}", hint=_REMEDY)


def _passing(where: str, reason: str) -> RetriableError:
    return RetriableError(f"{where}: S3 does not answer as it should: {reason}", hint="run again")
