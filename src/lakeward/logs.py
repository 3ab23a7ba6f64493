"""Log records that know their run, table and op, written as lines for eyes or as JSON for programs.

Built on the standard library's logging: whoever embeds Lakeward sees the same records through handlers of their own.
An event is a record with a name and fields (:func:`event`); the ids are taken from where the code runs (:func:`bind`),
so that tables that run in parallel threads do not mix.
"""

from __future__ import annotations

import logging
import sys
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from lakeward.redaction import redact, redact_values
from lakeward.text import escape_text, to_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LogFormat = Literal["auto", "text", "json"]

_ids: ContextVar[Mapping[str, Any]] = ContextVar("lakeward_ids")


@contextmanager
def bind(**ids: Any) -> Iterator[None]:
    """Yield every record of this thread these ids (``run``, ``table``, ``op``) until the block ends."""
    token = _ids.set({**_ids.get({}), **ids})
    try:
        yield
    finally:
        _ids.reset(token)


def event(name: str, **fields: Any) -> dict[str, Any]:
    """Name a record and give it fields: ``logger.info(text, extra=event("run.started", tables=3))``."""
    return {"event": name, "fields": fields}


class JsonFormatter(logging.Formatter):
    """One JSON object per record, in one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return time, level, event, message, ids and the event's own fields."""
        time = datetime.fromtimestamp(record.created, UTC)
        line = {
            "time": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "event": getattr(record, "event", "log"),
            "message": record.getMessage(),
            **_ids.get({}),
            **getattr(record, "fields", {"logger": record.name}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return to_json(redact_values(line), default=lambda value: redact(str(value)))


class TextFormatter(logging.Formatter):
    """One line per record for eyes: events with the time of day, everything else as the command's own words."""

    def format(self, record: logging.LogRecord) -> str:
        """Return ``12:30:52 message`` or ``warning: message``, with a traceback only where the record has one."""
        level = "note" if record.levelno <= logging.INFO else record.levelname.lower()
        is_event = hasattr(record, "event")
        text = f"{datetime.fromtimestamp(record.created).astimezone():%H:%M:%S} " if is_event else ""
        if not is_event or record.levelno >= logging.WARNING:
            text += f"{level}: "
        text += record.getMessage()
        return escape_text(redact(f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text))


class LineHandler(logging.Handler):
    """Writes records as lines of standard error as it is now, under a progress display or a test.

    ``is_whole``: JSON was asked for, so everything that a command says belongs to the log.
    """

    is_whole = False

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:  # a log line must not end the work
            self.handleError(record)


def log_to_stderr(log_format: LogFormat) -> LineHandler:
    """Send all records to standard error: as text on a terminal and JSON elsewhere, or as told."""
    handler = LineHandler()
    handler.is_whole = log_format == "json"
    is_text = log_format == "text" or (log_format == "auto" and sys.stderr.isatty())
    handler.setFormatter(TextFormatter() if is_text else JsonFormatter())
    root = logging.getLogger()
    for old in _line_handlers():
        root.removeHandler(old)
    root.addHandler(handler)
    return handler


def logs_messages() -> bool:
    """Return whether what a command says to its user belongs into the log, too."""
    return any(handler.is_whole for handler in _line_handlers())


def _line_handlers() -> list[LineHandler]:
    return [handler for handler in logging.getLogger().handlers if isinstance(handler, LineHandler)]
