"""Log records with their run, table and op, written as lines of text or as JSON.

Built on the standard library's logging: a program that embeds Lakeward gets the same records through its own handlers.
An event is a record with a name and fields (:func:`event`). The ids are bound to the thread that runs the code
(:func:`bind`), so that tables in parallel threads do not mix.
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
    """Add these ids (``run``, ``table``, ``op``) to every record of this thread until the block ends."""
    token = _ids.set({**_ids.get({}), **ids})
    try:
        yield
    finally:
        _ids.reset(token)


def event(name: str, **fields: Any) -> dict[str, Any]:
    """Return the name and fields of an event: ``logger.info(text, extra=event("run.started", tables=3))``."""
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
    """One line of text per record: events with the time of day, other records as messages of the command."""

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
    """A handler that writes lines to the current ``sys.stderr``, which a progress display or a test may replace.

    ``is_whole``: JSON was requested, so that every message of a command belongs in the log.
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
    """Send all records to standard error; ``auto`` means text on a terminal and JSON elsewhere."""
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
    """Whether messages of a command to its user belong in the log, too."""
    return any(handler.is_whole for handler in _line_handlers())


def _line_handlers() -> list[LineHandler]:
    return [handler for handler in logging.getLogger().handlers if isinstance(handler, LineHandler)]
