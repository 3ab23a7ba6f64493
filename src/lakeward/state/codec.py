"""Domain values as rows and JSON text, and back; shared by every adapter so that all of them forget the same."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from lakeward.errors import BugError, ConfigurationError
from lakeward.model import Disposition, FileClass, FileIdentity, LedgerEntry, Progress, TableId
from lakeward.state.base import Lease, LeaseOwner, RegisteredTable, TableRun
from lakeward.text import json_object, refusing_damage

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    # SQLAlchemy's rows are looked up by column, too.
    Row = Mapping[Any, Any]

_LONGEST_ERROR = 20_000
_REMEDY = "remove the state store, which is a cache, then: lakeward state rebuild"


def table_key(table: TableId) -> dict[str, str]:
    """The columns that every row of a table begins with."""
    return {"table_schema": table.schema, "table_name": table.name}


def table_of(row: Row) -> TableId:
    """The table a row belongs to."""
    return TableId(row["table_schema"], row["table_name"])


def dump_json(value: Mapping[str, Any]) -> str:
    """A JSON object as text, the same for equal objects."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def reading_row(table: TableId, what: str) -> AbstractContextManager[None]:
    """Refuse a row that is not as it was written: the store is a cache, and another one can be filled.

    Raises:
        ConfigurationError: inside the context, naming the table and what of it is damaged.
    """
    return refusing_damage(f"the state store: {what} of {table}", hint=_REMEDY, kind=ConfigurationError)


def changed_table(found: RegisteredTable, active: bool | None, settings: Mapping[str, Any] | None) -> RegisteredTable:
    """A registered table with ``settings`` laid over its own (a None value unsets) and the flag set if given.

    The settings are a copy as a database gives them back: what JSON cannot hold fails in every store.
    """
    merged = {**found.settings, **(settings or {})}
    kept = {name: value for name, value in merged.items() if value is not None}
    return replace(found, active=found.active if active is None else active, settings=json_object(dump_json(kept)))


def time_text(moment: datetime) -> str:
    """A moment as ISO text in UTC with a fixed width, so that text order is time order in every store."""
    return with_zone(moment).astimezone(UTC).isoformat(timespec="microseconds")


def time_of(text: str) -> datetime:
    """Read what :func:`time_text` wrote.

    Raises:
        ConfigurationError: the text is no time.
    """
    with refusing_damage(f"the state store: the time {text!r}", hint=_REMEDY, kind=ConfigurationError):
        return datetime.fromisoformat(text)


def error_text(error: str | None) -> str | None:
    """An error as every store can hold it: of bounded length, without NUL and lone surrogates."""
    if error is None:
        return None
    readable = error.encode("utf-8", "replace").decode("utf-8").replace("\0", "\N{REPLACEMENT CHARACTER}")
    if len(readable) <= _LONGEST_ERROR:
        return readable
    return f"{readable[:_LONGEST_ERROR]} … (shortened from {len(readable):,} characters)"


def dump_progress(progress: Progress) -> str:
    """Progress as JSON text."""
    return dump_json(progress.to_dict())


def load_progress(table: TableId, text: str) -> Progress:
    """A table's progress from JSON text.

    Raises:
        ConfigurationError: the text is damaged.
    """
    with reading_row(table, "the progress"):
        return Progress.from_dict(json_object(text))


def file_row(table: TableId, entry: LedgerEntry) -> dict[str, Any]:
    """A ledger entry as a row."""
    return {
        **table_key(table),
        "path": entry.path,
        "size": entry.identity.size,
        "mtime_us": entry.identity.mtime_us,
        "etag": entry.identity.etag,
        "content_hash": entry.content_hash,
        "row_count": entry.rows,
        "disposition": entry.disposition.value,
        "generation": entry.generation,
        "op": entry.op,
        "file_class": entry.file_class.value,
        "file_time": entry.time,
    }


def file_entry(row: Row) -> LedgerEntry:
    """A ledger entry from its row.

    Raises:
        ConfigurationError: the row is damaged.
    """
    with reading_row(table_of(row), f"the ledger entry {row['path']!r}"):
        return LedgerEntry(
            path=row["path"],
            identity=FileIdentity(row["size"], row["mtime_us"], row["etag"]),
            content_hash=row["content_hash"],
            rows=row["row_count"],
            disposition=Disposition(row["disposition"]),
            generation=row["generation"],
            op=row["op"],
            file_class=FileClass(row["file_class"]),
            time=row["file_time"],
        )


def lease_row(lease: Lease) -> dict[str, Any]:
    """A lease as a row."""
    return {**table_key(lease.table), **asdict(lease.owner), "token": lease.token, "expires_at": lease.expires_at}


def lease_of_row(row: Row) -> Lease:
    """A lease from its row."""
    owner = LeaseOwner(row["host"], row["pid"], row["process_started"], row["run_id"], row["pid_space"])
    return Lease(table_of(row), owner, row["token"], row["expires_at"])


def registered_table(row: Row) -> RegisteredTable:
    """A registered table from its row.

    Raises:
        ConfigurationError: the row is damaged.
    """
    with reading_row(table_of(row), "the settings"):
        return RegisteredTable(table_of(row), row["active"], json_object(row["settings"]), row["error"])


def new_row_id() -> str:
    """An id for an entry of the history; ids sort as they were given, also for runs that started at one moment."""
    return f"{time.time_ns():020d}-{uuid4().hex}"


def run_row(run: TableRun) -> dict[str, Any]:
    """A table's run as a row, without the row's id."""
    return {
        **table_key(run.table),
        "run_id": run.run_id,
        "started_at": with_zone(run.started_at),
        "finished_at": with_zone(run.finished_at),
        "outcome": run.outcome,
        "report": dump_json(run.report),
    }


def table_run(row: Row) -> TableRun:
    """A table's run from its row.

    Raises:
        ConfigurationError: the row is damaged.
    """
    with reading_row(table_of(row), f"run {row['run_id']}"):
        return TableRun(
            run_id=row["run_id"],
            table=table_of(row),
            started_at=row["started_at"],
            finished_at=row["finished_at"],
            outcome=row["outcome"],
            report=json_object(row["report"]),
        )


def with_zone(moment: datetime) -> datetime:
    """Refuse a time without zone: it would be read in the zone of whoever runs."""
    if moment.tzinfo is None:
        msg = f"a time without zone reached the state store: {moment.isoformat()}"
        raise BugError(msg)
    return moment
