"""The ``watch:`` settings: what wakes ``lakeward watch``."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from lakeward.config.base import OptionalSpan, Settings, Span

Texts = Annotated[tuple[str, ...], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]


class WatchSettings(Settings):
    """What ``lakeward watch`` goes by; its options override each of these."""

    queue: str | None = Field(None, description="URL of the SQS queue that gets the landing bucket's events")
    every: OptionalSpan = Field(None, gt=0, description="run at this interval: 10m")
    cron: str | None = Field(None, description="run at the times of a cron expression: '0 * * * *'")
    timezone: str = Field("UTC", description="time zone of cron")
    settle: Span = Field(0.3, description="a run begins after this long without new files")
    rescan: Span = Field(600.0, description="look at every table this often, in case a file was not told of; 0: never")
    prefix: Texts = Field((), description="only files whose path under landing begins so wake a run")
    suffix: Texts = Field((), description="only files whose path ends so wake a run")
