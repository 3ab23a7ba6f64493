"""A table whose ops are decided by the real code, on real files, and applied in plain Python: no Spark, many runs."""

from __future__ import annotations

import gzip
import os
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.compute as pc
import pytest

from lakeward import schemas as S
from lakeward.columns import Column, parse_ddl
from lakeward.config import TableSettings
from lakeward.errors import DataError, DeleteShareError, LakewardError
from lakeward.formats.base import FileSummary, ReadSpec
from lakeward.formats.dms.reader import read_file
from lakeward.formats.file_order import number_of
from lakeward.mirror.op import arrivals
from lakeward.mirror.op import check as checking
from lakeward.mirror.op import choose as choosing
from lakeward.mirror.op import cut as cutting
from lakeward.mirror.op.changelog import FileRecord, LoadDecision, arrived
from lakeward.mirror.op.check import require_fitting_times
from lakeward.mirror.op.context import RunBudget, RunOptions, Waiting, Work
from lakeward.mirror.op.ledger import ChangeFiles, OrderedFile, OrderedSides
from lakeward.mirror.op.loads import undecided_loads
from lakeward.mirror.prepare import _file_records, _op_record
from lakeward.model import FileClass, LandingFile, OpKind, OrderBy, Progress, TableId
from lakeward.state.memory import MemoryStateStore
from lakeward.storage.landing import Landing

TABLE = TableId("sales", "product")
FOLDER = "sales/product"
DDL = "id int, name string"
Rows = dict[int, str | None]
_MOST_OPS = 50


@dataclass(frozen=True)
class _Logged:
    """A file as an op logged it."""

    op: int
    generation: int
    record: FileRecord


@dataclass
class _Generation:
    load: list[tuple[int, str | None]] = field(default_factory=list)
    changes: dict[tuple[Any, ...], tuple[str, int, str | None]] = field(default_factory=dict)


class PlainTable:
    """One keyed table of headerless CSV: land files, run, compare the rows with what they must be."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, ddl: str = DDL, **settings: Any) -> None:
        defaults = {"primary_key": ["id"], "reload_settle": 0, **settings}
        self.root = root
        self.columns: tuple[Column, ...] = parse_ddl(ddl)
        self.settings = TableSettings.model_validate(defaults)
        self.storage, self.state = Landing(root), MemoryStateStore()
        self.progress, self.decisions = Progress(), list[LoadDecision]()
        self._logged: list[_Logged] = []
        self._undone = 0
        self._generations: dict[int, _Generation] = {}
        for module in (choosing, cutting):
            monkeypatch.setattr(module, "change_files", self._change_files)
        monkeypatch.setattr(cutting, "sides_in_order", self._sides_in_order)
        monkeypatch.setattr(cutting, "newest_place", self._newest_place)
        monkeypatch.setattr(checking, "greatest_sequence_before", self._greatest_sequence_before)
        monkeypatch.setattr(arrivals, "last_arrival", self._last_arrival)

    # --- landing ---

    def land(self, name: str, *lines: str, at: float = 1_700_000_000) -> Path:
        """Write a CSV file of records, compressed if its name says so."""
        data = "".join(line + "\n" for line in lines).encode()
        path = self.root / FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(data, mtime=0) if name.endswith(".gz") else data)
        self.touch(name, at)
        return path

    def touch(self, name: str, at: float) -> None:
        os.utime(self.root / FOLDER / name, (at, at))

    def touch_all(self, at: float) -> None:
        for path in (self.root / FOLDER).rglob("*"):
            os.utime(path, (at, at))

    def remove(self, *names: str) -> None:
        for name in names:
            (self.root / FOLDER / name).unlink()

    # --- running ---

    def run(self, **options: Any) -> str:
        """Do op after op; return how it ended: idle or waiting. Errors pass through."""
        for _ in range(_MOST_OPS):
            work = self._next(RunOptions(**options))
            if work is None:
                return "idle"
            if isinstance(work, Waiting):
                return "waiting"
        pytest.fail(f"no end after {_MOST_OPS} ops")

    def stops(self, **options: Any) -> str:
        """Run and require a stop; return its message and hint."""
        with pytest.raises(LakewardError) as stopped:
            self.run(**options)
        return f"{stopped.value.message}\n{stopped.value.hint}"

    @property
    def rows(self) -> Rows:
        """The mirror: load and changes of the newest generation, folded."""
        return dict(self.all_rows)

    @property
    def all_rows(self) -> list[tuple[int, str | None]]:
        """The mirror's rows in order; without a key a row may come more than once."""
        current = self.progress.generation
        state = self._generations.get(current.number, _Generation()) if current else _Generation()
        if not self.settings.primary_key:
            return sorted([*state.load, *((key, name) for _, key, name in state.changes.values())])
        found = dict(state.load)
        for _, (operation, key, name) in sorted(state.changes.items()):
            found.pop(key, None)
            if operation != "D":
                found[key] = name
        return sorted(found.items())

    @property
    def warning(self) -> str | None:
        """What `run` and `status` warn of."""
        context, current = self._context(RunOptions()), self.progress.generation
        of_load = cutting.load_warning(context, self.decisions[-1]) if self.decisions else None
        return undecided_loads(context, current) or of_load

    def _context(self, options: RunOptions) -> Any:
        return SimpleNamespace(
            table=TABLE, config=SimpleNamespace(transactions=None), settings=self.settings, storage=self.storage,
            state=self.state, options=options, budget=RunBudget(), folder=FOLDER, reached=lambda _step: None,
            again=None,
        )  # fmt: skip

    def _next(self, options: RunOptions) -> Work | Waiting | None:
        context = self._context(options)
        work = choosing.choose(context, self.progress)
        if work is None or isinstance(work, Waiting):
            return work
        read = {file.path: self._read(file, work) for file in work.files}
        summaries = [summary for summary, _ in read.values()]
        if not all(summary.stable for summary in summaries):
            return Waiting("still being written")
        if broken := [summary for summary in summaries if summary.problem or summary.mismatch]:
            msg = f"{broken[0].path}: {broken[0].problem}"
            raise DataError(msg, hint="repair or remove it")
        if work.kind is OpKind.LOAD:
            work = cutting.with_cut(context, work, self.progress, self.columns, summaries)
            read = read if work.kind is OpKind.LOAD else {file.path: self._read(file, work) for file in work.files}
            summaries = [summary for summary, _ in read.values()]
        if work.kind is not OpKind.LOAD:
            require_fitting_times(context, work, self.progress, summaries)
        self._apply(context, work, read)
        return work

    def _read(self, file: LandingFile, work: Work) -> tuple[FileSummary, list[dict[str, Any]]]:
        spec = ReadSpec(TABLE, self.columns, self.settings, work.generation.order_by)
        *batches, last = read_file(self.storage, file, spec)
        changes = [batch.filter(pc.equal(batch.column(S.KIND), S.KIND_CHANGE)) for batch in batches]
        rows = [row for batch in changes for row in batch.to_pylist()]
        return FileSummary.from_json(last.column(S.DETAIL)[0].as_py()), rows

    def _apply(self, context: Any, work: Work, read: dict[str, tuple[FileSummary, list[dict[str, Any]]]]) -> None:
        summaries = [summary for summary, _ in read.values()]
        record = _op_record(context, work, self.progress, summaries)
        state = self._generations.get(record.generation, _Generation())
        rows = [row for _, rows in read.values() for row in rows]
        if work.kind is OpKind.LOAD:
            self._load(context, work, state, rows, summaries)
        for row in rows if work.kind is OpKind.BATCH else ():
            place = (*(row[name] or "" for name in (S.SEQUENCE, S.FILE_TIME, S.FILE)), row[S.ROW], row[S.STEP])
            state.changes[place] = (row[S.OPERATION], row["id"], row["name"])
        self._generations[record.generation] = state
        files = _file_records(context, summaries, record, work.notes)
        self._logged += [_Logged(record.op, file.generation or record.generation, file) for file in files]
        if record.decision is not None:
            self.decisions.append(LoadDecision.from_dict(vars(record.decision)))
        self.progress = record.progress
        self.forget_state()

    def _load(
        self, context: Any, work: Work, state: _Generation, rows: list[dict[str, Any]], parts: list[FileSummary]
    ) -> None:
        loaded = [(row["id"], row["name"]) for row in rows]
        if self.settings.primary_key and work.starts and self.progress.generation and not context.options.reload:
            self._require_parts_apart(context, rows)
        shared = {key for key, _ in loaded} & {key for key, _ in state.load} if self.settings.primary_key else set()
        kept = all(part.path in context.options.keep_parts for part in parts)
        if shared and not work.starts and not kept:
            raise cutting._foreign_part(context, [part.path for part in parts], f"{len(shared)} keys of it")
        if work.starts and not loaded and self.all_rows:
            msg = f"{TABLE}: this load would empty the mirror"
            raise DeleteShareError(msg, hint="--allow-deletes")
        state.load += loaded

    @staticmethod
    def _require_parts_apart(context: Any, rows: list[dict[str, Any]]) -> None:
        places: dict[int, str] = {}
        for row in rows:
            other = places.setdefault(row["id"], row[S.FILE])
            if other != row[S.FILE] and not {other, row[S.FILE]} <= context.options.keep_parts:
                raise cutting.shared_key(context, other, row[S.FILE])

    def undo_all(self) -> None:
        """Leave what an undo of every op leaves."""
        self._undone, self._generations, self.decisions = self.progress.op, {}, []
        self.progress = Progress(op=self.progress.op + 1)
        self.forget_state()

    def forget_state(self) -> None:
        """Fill the state store from what was logged, as ``state rebuild`` does."""
        numbers = [logged for logged in self._logged if number_of(logged.record.summary.time)]
        entries = [arrived(logged.record.summary).ledger_entry(logged.op, 0) for logged in numbers]
        standing = [logged for logged in self._logged if logged.op > self._undone]
        entries += [logged.record.ledger_entry(logged.op, logged.generation) for logged in standing]
        self.state.replace_ledger(TABLE, self.progress.op, self.progress, entries)

    def _read_changes(self, progress: Progress) -> list[FileSummary]:
        """The change files that count in the current generation."""
        own = progress.generation.number if progress.generation else 0
        return [
            logged.record.summary for logged in self._logged
            if logged.op > self._undone and logged.generation == own
            and logged.record.summary.file_class is not FileClass.LOAD
            and logged.record.disposition in ("consumed", "empty")
        ]  # fmt: skip

    def _sides_in_order(self, _context: Any, progress: Progress, moment: int, *, by_commit: bool) -> OrderedSides:
        times = {
            OrderedFile(file.time, file.path): file.newest_commit if by_commit else file.identity.mtime_us
            for file in self._read_changes(progress)
            if file.rows > file.bad
        }
        ordered = sorted(times, key=lambda file: (file.place, file.path))
        before = [file for file in ordered if (times[file] or 0) < moment and times[file] is not None]
        after = [file for file in ordered if (times[file] or 0) >= moment and times[file] is not None]
        unknown = len(ordered) - len(before) - len(after)
        ends = (*ordered[:1], *ordered[-1:]) or (None, None)
        return OrderedSides(len(ordered), unknown, *ends, next(reversed(before), None), next(iter(after), None))

    def _newest_place(self, _context: Any, _progress: Progress) -> str | None:
        read = ("consumed", "empty")
        standing = (logged.record for logged in self._logged if logged.op > self._undone)
        files = (record for record in standing if record.disposition in read)
        places = (file.summary.time for file in files if file.summary.file_class is FileClass.CHANGES)
        return max(places, default=None)

    def _greatest_sequence_before(self, _context: Any, _progress: Progress, cut: str, _order: OrderBy) -> str | None:
        read = ("consumed", "superseded")
        standing = [logged.record for logged in self._logged if logged.op > self._undone]
        files = [record.summary for record in standing if record.disposition in read]
        changes = [file for file in files if file.file_class is FileClass.CHANGES and file.time < cut]
        return max((file.last.sequence for file in changes if file.last is not None), default=None)

    def _last_arrival(self, _context: Any) -> int:
        return max((number_of(logged.record.summary.time) for logged in self._logged), default=0)

    def _change_files(self, _context: Any, progress: Progress, *, cut: str) -> ChangeFiles:
        files = self._read_changes(progress)
        before = [file for file in files if file.time < cut]
        commits = [file.newest_commit for file in before if file.newest_commit is not None]
        timeless = sum(1 for file in before if file.rows > file.bad and file.newest_commit is None)
        first = min((file.time for file in files), default=None)
        return ChangeFiles(len(before), len(files) - len(before), max(commits, default=None), timeless, first)
