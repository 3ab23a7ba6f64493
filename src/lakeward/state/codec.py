"""Domain values as rows and JSON text, and back; shared by every store, so that all of them lose the same detail."""

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
    """Return the columns that every row of a table begins with."""
    return {"table_schema": table.schema, "table_name": table.name}


def table_of(row: Row) -> TableId:
    """Return the table a row belongs to."""
    return TableId(row["table_schema"], row["table_name"])


def dump_json(value: Mapping[str, Any]) -> str:
    """Return a JSON object as text, the same for equal objects."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def reading_row(table: TableId, what: str) -> AbstractContextManager[None]:
    """Refuse a row that is not as it was written: the store is a cache, which can be rebuilt.

    Raises:
        ConfigurationError: inside the context, naming the table and the damaged part.
    """
    return refusing_damage(f"the state store: {what} of {table}", hint=_REMEDY, kind=ConfigurationError)


def changed_table(found: RegisteredTable, active: bool | None, settings: Mapping[str, Any] | None) -> RegisteredTable:
    """Return a registered table with ``settings`` merged into its own (a None value unsets), the flag set if given.

    The settings are a copy, as a database would return them: what JSON cannot hold fails in every store.
    """
    merged = {**found.settings, **(settings or {})}
    kept = {name: value for name, value in merged.items() if value is not None}
    return replace(found, active=found.active if active is None else active, settings=json_object(dump_json(kept)))


def time_text(moment: datetime) -> str:
    """Return a moment as ISO text in UTC with a fixed width, so that text order is time order in every store."""
    return with_zone(moment).astimezone(UTC).isoformat(timespec="microseconds")


def time_of(text: str) -> datetime:
    """Read what :func:`time_text` wrote.

    Raises:
        ConfigurationError: the text is not a time.
    """
    with refusing_damage(f"the state store: the time {text!r}", hint=_REMEDY, kind=ConfigurationError):
        return datetime.fromisoformat(text)


def error_text(error: str | None) -> str | None:
    """Return an error as every store can hold it: of bounded length, without NUL and lone surrogates."""
    if error is None:
        return None
    readable = error.encode("utf-8", "replace").decode("utf-8").replace("\0", "\N{REPLACEMENT CHARACTER}")
    if len(readable) <= _LONGEST_ERROR:
        return readable
    return f"{readable[:_LONGEST_ERROR]} … (shortened from {len(readable):,} characters)"


def dump_progress(progress: Progress) -> str:
    """Return progress as JSON text."""
    return dump_json(progress.to_dict())


def load_progress(table: TableId, text: str) -> Progress:
    """Return a table's progress from JSON text.

    Raises:
        ConfigurationError: the text is damaged.
    """
    with reading_row(table, "the progress"):
        return Progress.from_dict(json_object(text))


def file_row(table: TableId, entry: LedgerEntry) -> dict[str, Any]:
    """Return a ledger entry as a row."""
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
    """Return a ledger entry from its row.

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
    """Return a lease as a row."""
    return {**table_key(lease.table), **asdict(lease.owner), "token": lease.token, "expires_at": lease.expires_at}


def lease_of_row(row: Row) -> Lease:
    """Return a lease from its row."""
    owner = LeaseOwner(row["host"], row["pid"], row["process_started"], row["run_id"], row["pid_space"])
    return Lease(table_of(row), owner, row["token"], row["expires_at"])


def registered_table(row: Row) -> RegisteredTable:
    """Return a registered table from its row.

    Raises:
        ConfigurationError: the row is damaged.
    """
    with reading_row(table_of(row), "the settings"):
        return RegisteredTable(table_of(row), row["active"], json_object(row["settings"]), row["error"])


def new_row_id() -> str:
    """Return an id for an entry of the history; ids sort in the order they were made, also within one moment."""
    return f"{time.time_ns():020d}-{uuid4().hex}"


def run_row(run: TableRun) -> dict[str, Any]:
    """Return a table's run as a row, without the row's id."""
    return {
        **table_key(run.table),
        "run_id": run.run_id,
        "started_at": with_zone(run.started_at),
        "finished_at": with_zone(run.finished_at),
        "outcome": run.outcome,
        "report": dump_json(run.report),
    }


def table_run(row: Row) -> TableRun:
    """Return a table's run from its row.

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
    """Return a time that has a zone; without one it would be read in the local zone of each host.

    Raises:
        BugError: the time has no zone.
    """
    if moment.tzinfo is None:
        msg = f"a time without zone reached the state store: {moment.isoformat()}"
        raise BugError(msg)
    return moment
