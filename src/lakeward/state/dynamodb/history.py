"""The run history in DynamoDB: one item per table's run, found by table, by run and by time.

The item lies with its table's runs. A pointer to it lies with all runs, another with those of its run id. A report
too big for one item lies in parts beside.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from lakeward.state import codec
from lakeward.state.dynamodb.rows import WRITE_BATCH, pages
from lakeward.state.dynamodb.values import Item, pack, table_text, unpack

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from lakeward.model import TableId
    from lakeward.state.base import TableRun
    from lakeward.state.dynamodb.rows import Key, Rows

_ALL_RUNS = "runs"
# An item holds 400 kB with all its names.
_MOST_BYTES = 300_000


class DynamoHistory:
    """The part of the store that remembers runs."""

    _rows: Rows

    def record_run(self, run: TableRun) -> None:
        """Add to the run history."""
        row = codec.run_row(run)
        row |= {name: codec.time_text(row[name]) for name in ("started_at", "finished_at")}
        sk = f"{row['started_at']}#{codec.new_row_id()}"
        report = pack(row.pop("report"))
        parts = [report[start : start + _MOST_BYTES] for start in range(0, len(report), _MOST_BYTES)]
        self._rows.put_many(_part(sk, number, part) for number, part in enumerate(parts[1:], 1))
        where = {**codec.table_key(run.table), "run_id": run.run_id, "parts": len(parts)}
        whole = {"pk": _table_runs(run.table), "sk": sk, **row, "parts": len(parts), "report": parts[0]}
        pointers = ({"pk": pk, "sk": sk, **where} for pk in (_ALL_RUNS, _run(run.run_id)))
        self._rows.transact(*({"Put": self._rows.putting(item)} for item in (whole, *pointers)))

    def runs(self, table: TableId | None = None, *, run_id: str | None = None, limit: int = 50) -> list[TableRun]:
        """Run history by start, newest first."""
        if run_id is not None:
            pointers = (item for item in self._newest(_run(run_id), limit) if table in (None, codec.table_of(item)))
            return self._pointed(islice(pointers, limit))
        if table is None:
            return self._pointed(islice(self._newest(_ALL_RUNS, limit), limit))
        return [self._run_of(item) for item in islice(self._newest(_table_runs(table), limit), limit)]

    def prune_runs(self, *, before: datetime) -> int:
        """Delete the history of runs that started before a moment."""
        pruned = 0
        old = self._rows.query(_ALL_RUNS, "#sk < :before", before=codec.time_text(before))
        for page in pages(old, WRITE_BATCH):
            self._rows.delete_many(key for pointer in page for key in _keys_of(pointer))
            # Last, so that what an interruption leaves behind is found again.
            self._rows.delete_many((_ALL_RUNS, pointer["sk"]) for pointer in page)
            pruned += len(page)
        return pruned

    def _newest(self, pk: str, limit: int) -> Iterator[Item]:
        return self._rows.query(pk, newest_first=True, limit=max(limit, 1))

    def _pointed(self, pointers: Iterator[Item]) -> list[TableRun]:
        """The runs that pointers name, in their order; one that was deleted since is left out."""
        keys = [(_table_runs(codec.table_of(pointer)), pointer["sk"]) for pointer in pointers]
        found = {(item["pk"], item["sk"]): item for item in self._rows.get_many(keys)}
        return [self._run_of(found[key]) for key in keys if key in found]

    def _run_of(self, item: Item) -> TableRun:
        further = self._rows.query(_report(item["sk"])) if item["parts"] > 1 else iter(())
        times: dict[str, Any] = {name: codec.time_of(item[name]) for name in ("started_at", "finished_at")}
        with codec.reading_row(codec.table_of(item), f"run {item['run_id']}"):
            report = unpack(b"".join([item["report"], *(part["report"] for part in further)]))
        return codec.table_run({**item, **times, "report": report})


def _keys_of(pointer: Item) -> Iterator[Key]:
    """The keys of everything that belongs to a run, but for the pointer among all runs."""
    sk = pointer["sk"]
    yield _table_runs(codec.table_of(pointer)), sk
    yield _run(pointer["run_id"]), sk
    yield from ((_report(sk), _part_number(number)) for number in range(1, pointer["parts"]))


def _part(sk: str, number: int, content: bytes) -> Item:
    return {"pk": _report(sk), "sk": _part_number(number), "report": content}


def _table_runs(table: TableId) -> str:
    return f"runs#{table_text(table)}"


def _run(run_id: str) -> str:
    return f"run#{run_id}"


def _report(sk: str) -> str:
    return f"report#{sk}"


def _part_number(number: int) -> str:
    return f"{number:06d}"
