"""The ``s3:`` settings, by which landing and lake are reached.

Keys come from the environment alone: through the chain that AWS programs share (variables, profile, container or
instance role), or by ``access_key: env:NAME`` where a store other than AWS has keys of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from lakeward.config.base import Settings
from lakeward.config.environment import ENVIRONMENT_MARK, from_environment


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
        msg = "must be env:NAME, the name of an environment variable: keys do not belong into the file"
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
            msg = "access_key and secret_key are given together or not at all"
            raise ValueError(msg)
        return self

    @property
    def is_path_style(self) -> bool:
        """Whether the bucket stands in the path of addresses."""
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
    """Keys as they are; never shown."""

    access: str
    secret: str = field(repr=False)
    token: str | None = field(default=None, repr=False)
