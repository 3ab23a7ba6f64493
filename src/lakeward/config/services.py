"""Settings of services around a lake: S3, clusters, monitoring, watching, and access to local files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import BeforeValidator, ConfigDict, Field, field_validator, model_validator

from lakeward.config.base import ENVIRONMENT_MARK, NameList, OptionalSpan, Settings, Span, from_environment

if TYPE_CHECKING:
    from pathlib import Path


# S3 keys come only from the environment: through the chain of AWS programs (variables, profile, container or instance
# role), or by ``access_key: env:NAME`` for a store other than AWS with its own keys.


class S3Settings(Settings):
    """How S3 is reached, for landing and lake alike."""

    model_config = ConfigDict(hide_input_in_errors=True)

    endpoint: str | None = Field(None, description="address of a store other than AWS, https://host:port")
    region: str | None = Field(None, description="region; default AWS_REGION, AWS_DEFAULT_REGION or the profile's")
    path_style: Literal["auto"] | bool = Field(
        "auto", description="bucket in the path instead of the host name; auto: where endpoint is set"
    )
    access_key: str | None = Field(None, description="env:NAME; default the chain of AWS programs")
    secret_key: str | None = Field(None, description="env:NAME", repr=False)
    session_token: str | None = Field(None, description="env:NAME, for temporary keys", repr=False)

    @field_validator("access_key", "secret_key", "session_token")
    @classmethod
    def _only_from_environment(cls, value: str | None) -> str | None:
        mark, _, name = (value or "").partition(":")
        if value is None or (mark + ":" == ENVIRONMENT_MARK and name.isidentifier()):
            return value
        msg = "must be env:NAME, the name of an environment variable: keys do not belong in the file"
        raise ValueError(msg)

    @field_validator("endpoint")
    @classmethod
    def _whole_address(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("http://", "https://")):
            msg = "must begin with http:// or https://"
            raise ValueError(msg)
        return value

    @model_validator(mode="after")
    def _keys_come_in_pairs(self) -> Self:
        if (self.access_key is None) != (self.secret_key is None):
            msg = "access_key and secret_key must be set together"
            raise ValueError(msg)
        return self

    @property
    def is_path_style(self) -> bool:
        """Whether the bucket is part of the path of addresses."""
        return self.endpoint is not None if self.path_style == "auto" else self.path_style

    def keys(self) -> S3Keys | None:
        """Read the configured keys from the environment; None: the chain of AWS programs finds them."""
        if self.access_key is None or self.secret_key is None:
            return None
        token = self.session_token
        return S3Keys(
            from_environment(self.access_key, "s3.access_key"),
            from_environment(self.secret_key, "s3.secret_key"),
            from_environment(token, "s3.session_token") if token is not None else None,
        )


@dataclass(frozen=True)
class S3Keys:
    """The keys themselves; never shown."""

    access: str
    secret: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


SECRET_MARK = "secret:"
Consistency = Literal[
    "LOCAL_QUORUM", "LOCAL_ONE", "ONE", "TWO", "THREE", "QUORUM", "ALL", "EACH_QUORUM", "LOCAL_SERIAL", "SERIAL"
]


class TlsSettings(Settings):
    """How connections to a cluster are encrypted."""

    ca: str | None = Field(None, description="file of certificates to trust; default the system's")
    certificate: str | None = Field(None, description="file of this client's certificate, if the cluster requires one")
    key: str | None = Field(None, description="file of the key that goes with it")
    check_host_name: bool = Field(
        True,
        description="refuse a node whose certificate contains neither its name in hosts nor its address",
    )
    server_name: str | None = Field(None, description="name that all nodes' certificates contain, checked instead")


class ClusterSettings(Settings):
    """How a cluster is reached, and how much load it may get."""

    model_config = ConfigDict(hide_input_in_errors=True)

    hosts: NameList = Field((), description="addresses of some of its nodes; not for Keyspaces")
    port: int = Field(9042, ge=1, le=65535, description="port of all nodes; Keyspaces has 9142")
    datacenter: str | None = Field(None, description="data centre to connect to; default that of the first host")
    username: str | None = Field(None, description="user name for password login")
    password: str | None = Field(
        None, description="env:NAME, or secret:NAME for a secret in AWS Secrets Manager; never the password", repr=False
    )
    tls: TlsSettings | None = Field(None, description="encrypt connections; {} uses the system's certificates")
    keyspaces: str | None = Field(None, description="AWS region of Amazon Keyspaces, instead of hosts")
    consistency: Consistency = Field("LOCAL_QUORUM", description="consistency of reads and writes")
    page_size: int = Field(2000, ge=1, le=100_000, description="rows of a page when reading")
    connections: int = Field(1, ge=1, le=64, description="connections of each Spark process to a node")
    max_in_flight: int = Field(64, ge=1, le=32_768, description="requests of one task in flight at one time")
    max_requests_per_second: float | None = Field(None, gt=0, description="requests per second of the whole job")
    timeout: Span = Field(30.0, gt=0, description="how long one request may take")

    @field_validator("password")
    @classmethod
    def _only_pointed_at(cls, value: str | None) -> str | None:
        if value is None or (value.startswith((ENVIRONMENT_MARK, SECRET_MARK)) and value.partition(":")[2]):
            return value
        msg = "must be env:NAME or secret:NAME: passwords do not belong in the file"
        raise ValueError(msg)

    @model_validator(mode="after")
    def _one_way_in(self) -> Self:
        if bool(self.hosts) == (self.keyspaces is not None):
            msg = "needs either hosts or keyspaces"
            raise ValueError(msg)
        if (self.username is None) != (self.password is None):
            msg = "username and password must be set together"
            raise ValueError(msg)
        return self


NotifyEvent = Literal["failure", "recovery"]
EventList = Annotated[
    tuple[NotifyEvent, ...], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)
]


class MetricsSettings(Settings):
    """Where Prometheus finds metrics."""

    file: str | None = Field(None, description="text file written after each run, for node_exporter; ends in .prom")
    port: int | None = Field(None, ge=1, le=65_535, description="port on which watch answers /metrics")
    address: str = Field("127.0.0.1", description="address that this port is opened on; 0.0.0.0: on every one")


def webhook_problem(url: str) -> str | None:
    """Return why a message cannot be posted to a URL, without repeating the URL; None if it may be possible."""
    if not url.startswith(("http://", "https://")):
        return "is not an http:// or https:// URL"
    if not (url.isascii() and url.isprintable()) or " " in url:
        return "contains a space, a control character or a letter that is not ASCII"
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError:
        has_host = False
    if not has_host:
        return "has no host, or an invalid port"
    return "contains a login, which webhooks do not accept" if "@" in parts.netloc else None


class NotifySettings(Settings):
    """Who is notified when a table begins to fail, and when it has recovered."""

    # The URL is often a secret itself.
    webhook: str | None = Field(None, repr=False, description="URL that JSON is posted to, or env:NAME")
    sns: str | None = Field(None, description="ARN of an SNS topic")
    on: EventList = Field(("failure", "recovery"), description="what is notified")

    @field_validator("webhook")
    @classmethod
    def _must_be_url(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(ENVIRONMENT_MARK) and (problem := webhook_problem(value)):
            msg = f"{problem}; expected https://… or env:NAME"
            raise ValueError(msg)
        return value

    @field_validator("sns")
    @classmethod
    def _must_be_topic(cls, value: str | None) -> str | None:
        if value is not None and (value.count(":") != 5 or not value.startswith("arn:")):
            msg = f"{value!r} is not the ARN of a topic; expected arn:aws:sns:REGION:ACCOUNT:NAME"
            raise ValueError(msg)
        return value

    @model_validator(mode="after")
    def _must_have_target(self) -> Self:
        if not (self.webhook or self.sns):
            msg = "has no receiver; expected webhook: or sns:"
            raise ValueError(msg)
        return self


Texts = Annotated[tuple[str, ...], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]


class WatchSettings(Settings):
    """When ``lakeward watch`` starts runs; the command's options override these settings."""

    queue: str | None = Field(None, description="URL of the SQS queue that gets the landing bucket's events")
    every: OptionalSpan = Field(None, gt=0, description="run at this interval: 10m")
    cron: str | None = Field(None, description="run at the times of a cron expression: '0 * * * *'")
    timezone: str = Field("UTC", description="time zone of cron")
    settle: Span = Field(0.3, description="a run begins after this long without new files")
    rescan: Span = Field(600.0, description="look at every table this often, in case an event was lost; 0: never")
    prefix: Texts = Field((), description="only files whose path under landing begins with this start a run")
    suffix: Texts = Field((), description="only files whose path ends with this start a run")


# Who may read the files of the state store and of a local catalog, and whether links may leave landing.
FileAccess = Literal["private", "umask"]
LinkPolicy = Literal["refuse", "allow"]


def create_folder(folder: Path, access: FileAccess) -> None:
    """Create a folder and those above it where they are missing; what exists keeps its permissions."""
    missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    for parent in reversed(missing):
        parent.mkdir(mode=0o700 if access == "private" else 0o777, exist_ok=True)
    # Raises where the path is something other than a folder.
    folder.mkdir(exist_ok=True)


def create_file(file: Path, access: FileAccess) -> None:
    """Create an empty file, which SQLite accepts as a database, if there is none; its journals get the same mode."""
    if not file.exists():
        file.touch(mode=0o600 if access == "private" else 0o666)
