"""The settings ``metrics:`` and ``notify:``, by which others learn how runs went."""

from __future__ import annotations

from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, field_validator, model_validator

from lakeward.config.base import Settings
from lakeward.config.environment import ENVIRONMENT_MARK

NotifyEvent = Literal["failure", "recovery"]
EventList = Annotated[
    tuple[NotifyEvent, ...], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)
]


class MetricsSettings(Settings):
    """Where Prometheus finds figures."""

    file: str | None = Field(None, description="text file written after each run, for node_exporter; ends in .prom")
    port: int | None = Field(None, ge=1, le=65_535, description="port on which watch answers /metrics")
    address: str = Field("127.0.0.1", description="address that this port is opened on; 0.0.0.0: on every one")


def webhook_problem(url: str) -> str | None:
    """Return why a message cannot be posted to a URL, without repeating it; None: it can be tried."""
    if not url.startswith(("http://", "https://")):
        return "is no URL of http"
    if not (url.isascii() and url.isprintable()) or " " in url:
        return "holds a space, a control character or a letter that is not ASCII"
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError:
        has_host = False
    if not has_host:
        return "names no host, or a port that is none"
    return "holds a login, which webhooks do not take" if "@" in parts.netloc else None


class NotifySettings(Settings):
    """Who is told when a table begins to fail, and when it is well again."""

    # Often its own password.
    webhook: str | None = Field(None, repr=False, description="URL that JSON is posted to, or env:NAME")
    sns: str | None = Field(None, description="ARN of an SNS topic")
    on: EventList = Field(("failure", "recovery"), description="what is told")

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
            msg = "names nobody to tell; expected webhook: or sns:"
            raise ValueError(msg)
        return self
