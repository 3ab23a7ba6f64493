"""The ``clusters:`` settings: Cassandra clusters and Amazon Keyspaces, by the names that commands use."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from lakeward.config.base import NameList, Settings, Span
from lakeward.config.environment import ENVIRONMENT_MARK

SECRET_MARK = "secret:"
Consistency = Literal[
    "LOCAL_QUORUM", "LOCAL_ONE", "ONE", "TWO", "THREE", "QUORUM", "ALL", "EACH_QUORUM", "LOCAL_SERIAL", "SERIAL"
]


class TlsSettings(Settings):
    """How connections to a cluster are encrypted."""

    ca: str | None = Field(None, description="file of certificates to trust; default the system's")
    certificate: str | None = Field(None, description="file of this client's certificate, where the cluster wants one")
    key: str | None = Field(None, description="file of the key that goes with it")
    check_host_name: bool = Field(
        True, description="refuse a node whose certificate does not hold its name in hosts, or else its address"
    )
    server_name: str | None = Field(None, description="name that the certificates of all nodes hold, instead of those")


class ClusterSettings(Settings):
    """How a cluster is reached, and how hard it may be worked."""

    model_config = ConfigDict(hide_input_in_errors=True)

    hosts: NameList = Field((), description="addresses of some of its nodes; not for Keyspaces")
    port: int = Field(9042, ge=1, le=65535, description="port of all nodes; Keyspaces has 9142")
    datacenter: str | None = Field(None, description="data centre to talk to; default that of the first host")
    username: str | None = Field(None, description="user name for password login")
    password: str | None = Field(
        None, description="env:NAME, or secret:NAME for one in AWS Secrets Manager; never the password", repr=False
    )
    tls: TlsSettings | None = Field(None, description="encrypt connections; {} takes the system's certificates")
    keyspaces: str | None = Field(None, description="AWS region of Amazon Keyspaces, instead of hosts")
    consistency: Consistency = Field("LOCAL_QUORUM", description="consistency of reads and writes")
    page_size: int = Field(2000, ge=1, le=100_000, description="rows of a page when reading")
    connections: int = Field(1, ge=1, le=64, description="connections of each process of Spark's to a node")
    max_in_flight: int = Field(64, ge=1, le=32_768, description="requests of one task under way at one time")
    max_requests_per_second: float | None = Field(None, gt=0, description="requests per second of the whole job")
    timeout: Span = Field(30.0, gt=0, description="how long one request may take")

    @field_validator("password")
    @classmethod
    def _only_pointed_at(cls, value: str | None) -> str | None:
        if value is None or (value.startswith((ENVIRONMENT_MARK, SECRET_MARK)) and value.partition(":")[2]):
            return value
        msg = "must be env:NAME or secret:NAME: passwords do not belong into the file"
        raise ValueError(msg)

    @model_validator(mode="after")
    def _one_way_in(self) -> Self:
        if bool(self.hosts) == (self.keyspaces is not None):
            msg = "needs either hosts or keyspaces"
            raise ValueError(msg)
        if (self.username is None) != (self.password is None):
            msg = "username and password are given together or not at all"
            raise ValueError(msg)
        return self
