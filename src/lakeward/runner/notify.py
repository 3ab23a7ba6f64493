"""Notifications when a table starts to fail and when it recovers: once each, not at every run.

Whether a table failed before is known from the error in the registry, read when a run starts. One message per run holds
all tables, so that a fault that stops hundreds of them does not send hundreds. A table that runs again before the
others of its run are done is reported by the later run, so that the last message is the newest. A message that cannot
be delivered is logged as a warning and never fails the run.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Protocol
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from lakeward.config.base import from_environment
from lakeward.config.services import webhook_problem
from lakeward.documents import to_document
from lakeward.errors import ConfigurationError
from lakeward.logs import event
from lakeward.mirror.op.report import Outcome
from lakeward.model import TableId
from lakeward.redaction import redact
from lakeward.runner.observers import SilentObserver
from lakeward.text import to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakeward.config.services import NotifyEvent, NotifySettings
    from lakeward.mirror.op.report import RunReport, TableReport
    from lakeward.state.base import StateStore

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS = 10.0
# Waits between attempts: a server that does not answer delays the end of a run by half a minute at most.
DELAYS = (1.0, 4.0)
_MAX_TABLES = 100
_MAX_TEXT = 1000
_SUBJECT = 100
_STREAK = 500


@dataclass(frozen=True)
class TableNotice:
    """One table of a message; ``since`` is the time at which it started to fail."""

    table: str
    error: str | None
    hint: str | None
    error_kind: str | None
    since: str


@dataclass(frozen=True)
class Notice:
    """A message. ``event`` is ``failure`` or ``recovery``; ``text`` is a summary in one line for chat tools.

    At most 100 tables are named; ``more`` counts the others.
    """

    event: NotifyEvent
    text: str
    run_id: str
    time: str
    tables: tuple[TableNotice, ...]
    more: int = 0

    def to_json(self) -> str:
        """Write as JSON."""
        return to_json(to_document(self))


class Channel(Protocol):
    """A destination of messages."""

    def send(self, notice: Notice) -> None:
        """Deliver a message; raises an exception if that fails."""


class _NoRedirects(HTTPRedirectHandler):
    """A handler that treats redirects as failures: a redirected POST becomes a GET, and the message is lost."""

    def redirect_request(self, *_: Any) -> None:
        """Follow nothing."""


class Webhook:
    """A URL to which messages are posted as JSON. ``timeout`` is for a whole attempt, even if the server is slow."""

    def __init__(self, url: str, *, timeout: float = TIMEOUT_SECONDS, delays: Sequence[float] = DELAYS) -> None:
        self._url = url
        self._timeout = timeout
        self._delays = tuple(delays)

    def __str__(self) -> str:
        # The path often is the password.
        return f"webhook at {urlsplit(self._url).hostname}"

    def send(self, notice: Notice) -> None:
        """Post a message, and retry after a temporary error."""
        for delay in (*self._delays, None):
            try:
                return self._post(notice.to_json().encode())
            except (OSError, HTTPException) as error:
                refused = isinstance(error, HTTPError) and error.code < 500 and error.code != 429
                if delay is None or refused:
                    raise
                time.sleep(delay)
        return None

    def _post(self, body: bytes) -> None:
        """Post in a separate thread: a socket's timeout is per byte, and a name lookup has none."""
        outcome: list[Exception | None] = []
        thread = threading.Thread(target=self._attempt, args=(body, outcome), name="webhook", daemon=True)
        thread.start()
        thread.join(self._timeout)
        if not outcome:
            msg = f"no answer within {self._timeout:g} seconds"
            raise TimeoutError(msg)
        if outcome[0] is not None:
            raise outcome[0]

    def _attempt(self, body: bytes, outcome: list[Exception | None]) -> None:
        request = Request(self._url, body, {"Content-Type": "application/json", "User-Agent": "lakeward"})
        try:
            # Only the status matters: the body is not read, as it may be long.
            build_opener(_NoRedirects).open(request, timeout=self._timeout).close()
            outcome.append(None)
        except HTTPError as error:
            error.close()
            outcome.append(error)
        except Exception as error:  # reported by the thread that waits
            outcome.append(error)


class Topic:
    """An SNS topic to which messages are published."""

    def __init__(self, arn: str) -> None:
        """Set the topic's ARN, which names the region; credentials and endpoint come from the environment."""
        try:
            from boto3 import client
        except ModuleNotFoundError:
            msg = "notify: sns: needs boto3, which is not installed"
            raise ConfigurationError(msg, hint="pip install 'lakeward[aws]'") from None
        self._arn = arn
        self._connect: Callable[[], Any] = partial(client, "sns", region_name=arn.split(":")[3])

    def __str__(self) -> str:
        return f"topic {self._arn}"

    def send(self, notice: Notice) -> None:
        """Publish a message; boto3 retries."""
        subject = notice.text.encode("ascii", "replace").decode()[:_SUBJECT]
        # Messages are rare: no connection is kept open for them.
        with closing(self._connect()) as sns:
            sns.publish(TopicArn=self._arn, Subject=subject, Message=notice.to_json())


def open_channels(settings: NotifySettings) -> tuple[Channel, ...]:
    """Return the configured channels.

    Raises:
        ConfigurationError: a variable of the environment or boto3 is missing, or the webhook is not a URL.
    """
    channels: list[Channel] = []
    if settings.webhook:
        url = from_environment(settings.webhook, "notify: webhook:")
        if problem := webhook_problem(url):
            msg = f"notify: webhook: {problem}"
            raise ConfigurationError(msg, hint="webhook: https://… or env:NAME of a variable that holds it")
        channels.append(Webhook(url))
    if settings.sns:
        channels.append(Topic(settings.sns))
    return tuple(channels)


class Notifier(SilentObserver):
    """An observer that reports tables which start to fail, or recover, in a run."""

    def __init__(self, state: StateStore, channels: Sequence[Channel], *, on: Sequence[NotifyEvent]) -> None:
        self._state = state
        self._channels = tuple(channels)
        self._on = frozenset(on)
        self._lock = threading.Lock()
        # By run, then by table that the run has to report: whether the last notification was a failure.
        self._failing: dict[str, dict[str, bool]] = {}

    def run_started(self, run_id: str, tables: Sequence[str]) -> None:
        """Remember which tables are already failing."""
        failing = {str(registered.table) for registered in self._state.registered() if registered.error}
        with self._lock:
            before = {table: table in failing for table in tables}
            for earlier in self._failing.values():
                before |= {table: earlier.pop(table) for table in before.keys() & earlier.keys()}
            self._failing[run_id] = before

    def run_finished(self, report: RunReport) -> None:
        """Send the changes."""
        with self._lock:
            # If the state store could not be read, a failure is reported once too often.
            before = self._failing.pop(report.run_id, dict.fromkeys((table.table for table in report.tables), False))
        failed = [table for table in report.failed if before.get(table.table) is False]
        passed = [table for table in report.tables if table.outcome not in (Outcome.FAILED, Outcome.LOCKED)]
        self._send("failure", report.run_id, failed)
        self._send("recovery", report.run_id, [table for table in passed if before.get(table.table)])

    def _send(self, what: NotifyEvent, run_id: str, tables: Sequence[TableReport]) -> None:
        if not tables or what not in self._on:
            return
        notice = self._notice(what, run_id, tables)
        for channel in self._channels:
            try:
                channel.send(notice)
            except Exception as error:  # whatever a network, a server or boto3 can raise
                text = "%s of %d tables could not be sent to the %s: %s"
                reason = redact(str(error))
                named = event("notify.failed", run=run_id, error=reason)
                logger.warning(text, what, len(tables), channel, reason, extra=named)

    def _notice(self, what: NotifyEvent, run_id: str, tables: Sequence[TableReport]) -> Notice:
        named = tuple(self._table_notice(table) for table in tables[:_MAX_TABLES])
        verb = "failed" if what == "failure" else "recovered"
        if len(tables) == 1:
            text = f"lakeward: {named[0].table} {verb}" + (f": {named[0].error}" if named[0].error else "")
        else:
            text = f"lakeward: {len(tables)} tables {verb}: {', '.join(table.table for table in named[:5])}"
            text += " …" if len(tables) > 5 else ""
        more = len(tables) - len(named)
        return Notice(what, text.splitlines()[0][:_MAX_TEXT], run_id, _iso(datetime.now(UTC)), named, more)

    def _table_notice(self, report: TableReport) -> TableNotice:
        is_failed = report.outcome is Outcome.FAILED
        return TableNotice(
            report.table,
            error=report.message[:_MAX_TEXT] if is_failed and report.message else None,
            hint=report.hint if is_failed else None,
            error_kind=report.error_kind,
            since=_iso(self._since(TableId.parse(report.table))),
        )

    def _since(self, table: TableId) -> datetime:
        """Return the start of the newest series of failed runs, as far as the history goes back."""
        began = None
        for run in self._state.runs(table, limit=_STREAK):
            if run.outcome == Outcome.FAILED:
                began = run.started_at
            elif began is not None:
                break
        return began or datetime.now(UTC)


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds")
