"""Sessions with a cluster: one per process, with values as Cassandra has them."""

from __future__ import annotations

import atexit
import os
import ssl
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakeward.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cassandra.cluster import Cluster, Session

    from lakeward.config.clusters import ClusterSettings, TlsSettings

_EXTRA = "pip install 'lakeward[cassandra]'"
_TIMESTAMP_CODE = 0x000B


@dataclass(frozen=True)
class ClusterAddress:
    """All that is needed to reach a cluster, also from within a task. The password travels with it and is not shown."""

    name: str
    settings: ClusterSettings
    password: str | None = field(default=None, repr=False)


@contextmanager
def connected(address: ClusterAddress) -> Iterator[Session]:
    """Hold a session for the time of a ``with`` block; for the driver process.

    Raises:
        ConfigurationError: the cluster cannot be reached as configured, or refuses the login.
        RetriableError: no node answers.
    """
    cluster = _cluster(address)
    try:
        yield _session(cluster, address)
    finally:
        cluster.shutdown()


# A process of Spark's serves one task after the other; connecting anew would cost each of them a second.
_SESSIONS: dict[tuple[int, ClusterAddress], Session] = {}


def task_session(address: ClusterAddress) -> Session:
    """Give the session that tasks of this process share; it is made after the fork, and ends with the process."""
    key = (os.getpid(), address)
    if key not in _SESSIONS:
        cluster = _cluster(address)
        _SESSIONS[key] = _session(cluster, address)
        atexit.register(cluster.shutdown)
    return _SESSIONS[key]


def _cluster(address: ClusterAddress) -> Cluster:
    try:
        from cassandra.auth import PlainTextAuthProvider
        from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
        from cassandra.policies import DCAwareRoundRobinPolicy, FallthroughRetryPolicy, TokenAwarePolicy
        from cassandra.query import tuple_factory
    except ImportError as error:
        msg = "tables of Cassandra need the driver, which is not installed"
        raise ConfigurationError(msg, hint=_EXTRA) from error
    from cassandra import ConsistencyLevel

    settings = address.settings
    profile = ExecutionProfile(
        load_balancing_policy=TokenAwarePolicy(DCAwareRoundRobinPolicy(local_dc=settings.datacenter or "")),
        # Whether and when to ask again is decided in one place, with the budget in mind.
        retry_policy=FallthroughRetryPolicy(),
        consistency_level=ConsistencyLevel.name_to_value[settings.consistency],
        request_timeout=settings.timeout,
        row_factory=tuple_factory,
    )
    auth = PlainTextAuthProvider(settings.username, address.password) if settings.username else None
    return Cluster(
        contact_points=list(settings.hosts),
        port=settings.port,
        auth_provider=auth,
        ssl_context=_tls(settings.tls),
        ssl_options=None,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
    )


def _tls(settings: TlsSettings | None) -> ssl.SSLContext | None:
    if settings is None:
        return None
    context = ssl.create_default_context(cafile=settings.ca)
    context.check_hostname = settings.check_host_name
    if settings.certificate:
        context.load_cert_chain(settings.certificate, settings.key)
    return context


def _session(cluster: Cluster, address: ClusterAddress) -> Session:
    session = cluster.connect()
    session.client_protocol_handler = _exact_handler()
    session.default_fetch_size = address.settings.page_size
    return session


def _exact_handler() -> Any:
    """Give the driver's fast reader, with timestamps as the milliseconds they are.

    As ``datetime`` a value outside the years 1 to 9999 ends the whole connection.
    """
    from cassandra.cqltypes import LongType
    from cassandra.obj_parser import ListParser
    from cassandra.protocol import ResultMessage, cython_protocol_handler

    fast = cython_protocol_handler(ListParser())
    messages = dict(fast.message_types_by_opcode)
    known = messages[ResultMessage.opcode]
    exact = type("ExactResultMessage", (known,), {"type_codes": {**known.type_codes, _TIMESTAMP_CODE: LongType}})
    messages[ResultMessage.opcode] = exact
    return type("ExactHandler", (fast,), {"message_types_by_opcode": messages})
