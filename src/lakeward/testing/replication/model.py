"""One source table that AWS DMS replicates into a landing folder, step by step, and what happens to its files.

Every step is possible in every situation: a step that has nothing to act on does nothing, so that a generated scenario
stays valid when steps are removed from it. The clock is simulated and moves forward with every step; commit times,
times of load rows, names of change files and modification times come from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import singledispatchmethod
from random import Random
from typing import TYPE_CHECKING, Any, Literal

from lakeward.columns import Column
from lakeward.model import FileClass, Operation, TableId
from lakeward.testing.oracle import Row, Truth
from lakeward.testing.replication.steps import (
    Change,
    Deliver,
    Expire,
    Flush,
    Form,
    FullLoad,
    HoldBack,
    Pause,
    Pending,
    Recopy,
    Restart,
    ResumeLoad,
    ResumeTask,
    RunLakeward,
    Step,
    Touch,
    TruncateSource,
    Write,
)
from lakeward.testing.simulator.files import START, ChangeRow, SourceFile, change_path, load_paths, name_time
from lakeward.testing.simulator.options import Segments, SimulatorOptions, configuration_of
from lakeward.testing.simulator.simulation import render, set_mtime, write_file
from lakeward.testing.simulator.tables import TableSpec

if TYPE_CHECKING:
    from pathlib import Path

    from lakeward.config.tables import FileOrder

LoadStamp = Literal["row", "load", "task"]
TABLE = TableId("sales", "product")
# Suffix, format, compression.
_FORMS: dict[Form, tuple[str, Literal["csv", "parquet"], bool]] = {
    "csv": (".csv", "csv", False), "csv.gz": (".csv.gz", "csv", True), "gzipped csv": (".csv", "csv", True),
    "parquet": (".parquet", "parquet", False),
}  # fmt: skip
_MILLISECOND = timedelta(milliseconds=1)
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True)
class ReplicationOptions:
    """The settings of DMS.

    ``load_stamp`` is what the timestamp column of a load row holds: the time the row was written, the time its load
    began, or the time the task was started, which a reload leaves as it was. ``commit_unit_ms`` is how exact the
    source's commit times are (1000: whole seconds), ``source_lag_ms`` how far its clock is behind that of DMS.
    ``file_order`` is the setting ``files.order`` of a table whose files are not named as DMS names them: ``part-…`` and
    ``delta_N``, N being the number of the change file.
    """

    form: Form = "csv"
    timestamp_column: str | None = "cdc_timestamp"
    change_sequence: bool = False
    keyless: bool = False
    load_stamp: LoadStamp = "row"
    op_in_load: bool = False
    commit_unit_ms: int = 1
    source_lag_ms: int = 0
    start: datetime = START
    table: TableId = TABLE
    file_order: FileOrder | None = None


@dataclass
class LoadRun:
    """One load of the table, or a truncate that DMS executed, which is a load of nothing.

    ``cleared`` loads began with an empty target. ``left`` are parts (path and keys) that are not written yet.
    """

    number: int
    started: datetime
    form: Form
    cleared: bool
    paths: list[str] = field(default_factory=list)
    left: list[tuple[str, list[int]]] = field(default_factory=list)

    @property
    def cut(self) -> str:
        """The time, in the 20 digits of file order, that separates change files of this load from those before it."""
        return name_time(self.started)


class Replication:
    """The source table, its DMS task and the landing folder below ``root``.

    ``source`` is what the table holds now. ``landed`` are the files in landing by path, those in ``half`` cut short,
    ``held`` those that DMS wrote and landing does not have. A file's ``generation`` is the number of its
    LoadRun in ``loads``.
    """

    def __init__(self, root: Path, options: ReplicationOptions | None = None) -> None:
        self.root = root
        self.options = options or ReplicationOptions()
        key = () if self.options.keyless else ("id",)
        self.table = TableSpec(self.options.table, (Column("id", "int"), Column("name", "string")), key)
        self.now = self.options.start
        self.source: dict[int, str] = {}
        self.loads: list[LoadRun] = []
        self.landed: dict[str, SourceFile] = {}
        self.half: set[str] = set()
        self.held: list[SourceFile] = []
        # Whether the source changed in a way that no file shows, now or later.
        self.unrecorded = False
        self._delivered: list[SourceFile] = []
        self._pending: list[ChangeRow] = []
        self._mtimes: dict[str, datetime] = {}
        self._read: set[str] = set()
        self._holding: HoldBack | None = None
        self._task_start = self.now
        self._commits = 0
        self._flushes = 0

    def play(self, *steps: Step) -> None:
        """Play steps, one after the other."""
        for step in steps:
            self._tick(_SECOND)
            self._play(step)

    def mark_read(self) -> None:
        """Record that a run has read every whole file in landing: only such files expire."""
        self._read.update(path for path in self.landed if path not in self.half)

    def configuration(self) -> dict[str, Any]:
        """Return the table's configuration in the shape of ``lakeward.yaml``, landing in ``./landing``."""
        found = configuration_of([self.table], self._file_options("csv"))
        if order := self.options.file_order:
            own = {"load": "**/*part-*", "changes": "delta_*", "order": order}
            found["tables"][str(self.table.id)]["files"] = own
        return found

    def truth(self) -> list[Row]:
        """Return the rows of a perfect copy of everything that was delivered so far.

        It follows the newest load that can be seen: one of which a whole part has arrived, or one that cleared the
        folder. Files not yet delivered, and changes that no file shows, are not in it.
        """
        return self.state_of(self.visible.number) if self.visible else []

    def state_of(self, number: int) -> list[Row]:
        """Return the rows of a copy that holds this load, so far as delivered, and every delivered change since."""
        truth = Truth([column.name for column in self.table.columns], self.table.key)
        for file in self._delivered:
            if file.generation == number:
                for row in file.load:
                    truth.insert(row)
        changes = [change for file in self._delivered if file.generation >= number for change in file.changes]
        for change in sorted(changes, key=lambda change: change.sequence):
            if change.operation is Operation.DELETE:
                truth.delete(change.key)
            else:
                truth.insert(change.image)
        return sorted(truth.rows(), key=lambda row: (row["id"], row["name"]))

    @property
    def visible(self) -> LoadRun | None:
        """The newest load that landing shows, None before the first."""
        arrived = {file.generation for file in self._delivered if file.file_class is FileClass.LOAD}
        shown = [load for load in self.loads if load.number == 1 or load.cleared or load.number in arrived]
        return shown[-1] if shown else None

    @property
    def is_whole(self) -> bool:
        """Whether everything that DMS has begun to write is in landing, whole."""
        return not (self.held or self.half or (self.loads and self.loads[-1].left))

    def mtime(self, path: str) -> datetime:
        """Return the modification time of a landing file."""
        return self._mtimes[path]

    # Steps of the source and of DMS.

    @singledispatchmethod
    def _play(self, step: Step) -> None:
        msg = f"{step!r} is not a step of a replication"
        raise TypeError(msg)

    @_play.register
    def _(self, step: Write) -> None:
        captured = step.captured and bool(self.loads)
        changes = [row for key, text in step.changes if (row := self._change(key, text, captured=captured))]
        if captured:
            self._pending += changes
        elif self.loads and changes:
            self.unrecorded = True

    @_play.register
    def _(self, step: Flush) -> None:
        if self._pending and not self.loads[-1].left:
            self._flush()

    @_play.register
    def _(self, step: FullLoad) -> None:
        self._settle_pending(step.pending)
        clears = isinstance(step, Restart)
        if clears:
            self._clear()
        if clears or not self.loads:
            self._task_start = self._tick(_SECOND)
        load = self._begin_load(step.form or self.options.form, cleared=clears)
        keys = sorted(self.source)
        count = min(step.parts, len(keys))
        names = self._part_names(step.segments, count, load.form)
        parts = [(path, keys[len(keys) * n // count : len(keys) * (n + 1) // count]) for n, path in enumerate(names)]
        kept = min(step.unfinished, max(count - 1, 0))
        load.left = parts[count - kept :]
        # A change from before one that no file shows, carried past the load, repeats what the load no longer has.
        self.unrecorded = self.unrecorded and bool(self._pending)
        self._write_parts(load, parts[: count - kept], step.during)

    @_play.register
    def _(self, step: ResumeLoad) -> None:
        if self.loads and self.loads[-1].left:
            load = self.loads[-1]
            parts, load.left = load.left, []
            self._write_parts(load, parts, ())

    @_play.register
    def _(self, step: ResumeTask) -> None:
        self._task_start = self._tick(_SECOND)

    @_play.register
    def _(self, step: TruncateSource) -> None:
        if step.removes_folder and self.loads:
            self._clear()
            self._pending = []
            self._begin_load(self.loads[-1].form, cleared=True)
            self.unrecorded = False
        elif self.loads and self.source:
            self.unrecorded = True
        self.source.clear()

    # Steps of tools and people who handle the files.

    @_play.register
    def _(self, step: Expire) -> None:
        limit = self.now - timedelta(minutes=step.minutes)
        for path in [path for path in self._read if path in self.landed and self._mtimes[path] < limit]:
            self._remove(path)

    @_play.register
    def _(self, step: Pause) -> None:
        self._tick(timedelta(minutes=step.minutes))

    @_play.register
    def _(self, step: Touch) -> None:
        for path in self._chosen(step.file):
            self._mtimes[path] = self._tick()
            set_mtime(self.root / path, self.now)

    @_play.register
    def _(self, step: Recopy) -> None:
        for path in self._chosen(step.file):
            content = (self.root / path).read_bytes()
            (self.root / path).unlink()
            self._put(path, content, self._tick())

    @_play.register
    def _(self, step: HoldBack) -> None:
        self._holding = step

    @_play.register
    def _(self, step: Deliver) -> None:
        if step.count is None:
            self._holding = None
        queue = list(self.held)
        if step.shuffle:
            Random(step.shuffle).shuffle(queue)
        for file in queue[: step.count]:
            self.held = [other for other in self.held if other is not file]
            arrival = self._tick()
            self._arrive(file, arrival if step.new_times or file.path in self.half else file.written)

    @_play.register
    def _(self, step: RunLakeward) -> None:
        """Do nothing: the caller runs Lakeward."""

    def _chosen(self, number: int | None) -> list[str]:
        paths = sorted(self.landed)
        return paths if number is None or not paths else [paths[number % len(paths)]]

    # How DMS works.

    def _tick(self, span: timedelta = _MILLISECOND) -> datetime:
        self.now += span
        return self.now

    def _change(self, key: int, text: str | None, *, captured: bool) -> ChangeRow | None:
        """Change one row of the source; return the change, None if there is none or a table without key cannot."""
        before = self.source.get(key)
        if before == text or (captured and self.options.keyless and before is not None):
            return None
        self._commits += 1
        if text is None:
            del self.source[key]
            operation = Operation.DELETE
        else:
            self.source[key] = text
            operation = Operation.INSERT if before is None else Operation.UPDATE
        image = {"id": key, "name": before if text is None else text}
        sequence = f"{self.now:%Y%m%d%H%M%S}{self.now.microsecond // 10_000:02}{self._commits:019}"
        return ChangeRow(self.table, operation, image, None, frozenset(), self._commit_time(), sequence)

    def _commit_time(self) -> datetime:
        seen = self.now - self.options.source_lag_ms * _MILLISECOND
        return seen - (seen - START) % (self.options.commit_unit_ms * _MILLISECOND)

    def _settle_pending(self, pending: Pending) -> None:
        """Handle the pending changes as the next load requires."""
        is_loaded = bool(self.loads) and not self.loads[-1].left
        if self._pending and is_loaded and (pending == "flushed" or (pending == "carried" and self.options.keyless)):
            self._flush()
        if pending != "carried" or self.options.keyless:
            self._pending = []
        self._tick(_SECOND)

    def _flush(self) -> None:
        written = self._tick(_SECOND)
        form = self.loads[-1].form
        suffix, file_format, _ = _FORMS[form]
        options = self._file_options(form)
        path = change_path(self.table.id, options, written, self._pending[0].commit, suffix, 3)
        changes, self._pending = tuple(self._pending), []
        self._flushes += 1
        if self.options.file_order:
            path = f"{self.table.id.schema}/{self.table.id.name}/delta_{self._flushes}{suffix}"
        self._written(
            SourceFile(
                options, FileClass.CHANGES, path, written, name_time(written), file_format, self.table,
                self.table.columns, self.loads[-1].number, changes=changes,
            )
        )  # fmt: skip

    def _begin_load(self, form: Form, *, cleared: bool) -> LoadRun:
        if self.loads:
            self.loads[-1].left = []
        load = LoadRun(len(self.loads) + 1, self._tick(_SECOND), form, cleared)
        self.loads.append(load)
        return load

    def _write_parts(self, load: LoadRun, parts: list[tuple[str, list[int]]], during: tuple[Change, ...]) -> None:
        """Read the parts' keys one after the other, with commits in between when half of them were read."""
        middle = (sum(len(keys) for _, keys in parts) + 1) // 2
        done = 0
        for path, keys in parts:
            rows: list[tuple[Row, datetime]] = []
            for key in keys:
                if done == middle:
                    self._commit_during(during)
                done += 1
                read = self._tick()
                if key in self.source:
                    rows.append(({"id": key, "name": self.source[key]}, read))
            if rows:
                load.paths.append(path)
                self._written(self._part(load, path, rows))
        if done == middle:
            self._commit_during(during)
        if not (load.paths or load.left or load.cleared or load.number == 1):
            self.unrecorded = True
        self._tick(_SECOND)

    def _commit_during(self, during: tuple[Change, ...]) -> None:
        for key, text in during:
            self._tick()
            if change := self._change(key, text, captured=True):
                self._pending.append(change)

    def _part(self, load: LoadRun, path: str, rows: list[tuple[Row, datetime]]) -> SourceFile:
        stamps = {"load": load.started, "task": self._task_start}
        times = tuple(stamps.get(self.options.load_stamp, read) for _, read in rows)
        return SourceFile(
            self._file_options(load.form), FileClass.LOAD, path, self._tick(_SECOND), "", _FORMS[load.form][1],
            self.table, self.table.columns, load.number, load=tuple(row for row, _ in rows), load_times=times,
        )  # fmt: skip

    def _part_names(self, segments: Segments, count: int, form: Form) -> list[str]:
        options = replace(self._file_options(form), segments=segments)
        paths = load_paths(self.table.id, options, count, _FORMS[form][0])
        return [path.replace("LOAD", "part-") for path in paths] if self.options.file_order else paths

    def _file_options(self, form: Form) -> SimulatorOptions:
        return SimulatorOptions(
            format="mixed", gzip=_FORMS[form][2], timestamp_column=self.options.timestamp_column,
            change_sequence=self.options.change_sequence, op_in_load=self.options.op_in_load,
        )  # fmt: skip

    # Landing.

    def _written(self, file: SourceFile) -> None:
        """Take a file from DMS: into landing, or among the held ones in place of an older version."""
        if self._holding is None:
            self._arrive(file, file.written)
            return
        self.held = [other for other in self.held if other.path != file.path] + [file]
        if self._holding.half:
            content = render(file)
            self._put(file.path, content[: len(content) // 2], file.written)
            self.half.add(file.path)
            self._read.discard(file.path)
            self.landed[file.path] = file

    def _arrive(self, file: SourceFile, mtime: datetime) -> None:
        self._put(file.path, render(file), mtime)
        self.half.discard(file.path)
        self._read.discard(file.path)
        self.landed[file.path] = file
        self._delivered.append(file)

    def _put(self, path: str, content: bytes, mtime: datetime) -> None:
        write_file(self.root, path, content, mtime)
        self._mtimes[path] = mtime

    def _clear(self) -> None:
        """Delete every file of the table, those not yet delivered as well."""
        self.held = []
        for path in list(self.landed):
            self._remove(path)

    def _remove(self, path: str) -> None:
        """Delete a file; a folder that is empty then is gone, as in an object store."""
        file = self.root / path
        file.unlink()
        for folder in file.parents:
            if folder == self.root or any(folder.iterdir()):
                break
            folder.rmdir()
        del self.landed[path], self._mtimes[path]
        self.half.discard(path)
        self._read.discard(path)
