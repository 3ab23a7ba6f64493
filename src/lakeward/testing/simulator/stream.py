"""The capture: runs the source's transactions, and yields files in writing order with the stage each lands in.

Nothing is kept but the source's present rows and the changes not yet flushed, so a million changes fit.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Literal

from lakeward.model import FileClass, TableId
from lakeward.testing.simulator.files import (
    ChangeRow,
    SimulatedClock,
    SourceFile,
    change_path,
    load_paths,
    name_time,
    transaction_path,
)
from lakeward.testing.simulator.source import SimulatedTable
from lakeward.testing.simulator.tables import random_tables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.testing.simulator.options import SimulatorOptions
    from lakeward.testing.simulator.tables import TableSpec


LARGEST_TRANSACTION = 6
SHUFFLE_SHARE = 0.2
TRANSACTION_BUFFER = TableId("", "")


class Capture:
    """One run of source and capture; ``files()`` may be walked once, afterwards the tables hold the final truth."""

    def __init__(self, options: SimulatorOptions) -> None:
        self.options = options
        # One generator for everything would let an added draw in one place change all others.
        self._random = Random(f"capture:{options.seed}")
        self._clock = SimulatedClock(Random(f"clock:{options.seed}"))
        specs = random_tables(Random(f"tables:{options.seed}"), options)
        self.tables = [SimulatedTable(spec, options, Random(f"{spec.id}:{options.seed}")) for spec in specs]
        self._buffers: dict[TableId, list[ChangeRow]] = {}
        self._load_format = {spec.id: self._pick_format() for spec in specs}
        self._gzip_suffix = {spec.id: self._random.random() < 0.5 for spec in specs}

    def files(self) -> Iterator[SourceFile]:
        """Run the simulation and yield its files as they are written."""
        overlap = min(self.options.overlap, self.options.changes)
        for table in self.tables:
            table.fill(self.options.rows)
        self._run(overlap, [table for table in self.tables if table.spec.key])
        for table in self.tables:
            yield from self._load(table)
        per_batch, rest = divmod(self.options.changes - overlap, self.options.batches)
        reloads = self._event_batches(self.options.reloads)
        additions = self._event_batches(len(self.tables) * 2 if self.options.add_columns else 0)
        drops = self._event_batches(len(self.tables) * 2 if self.options.drop_columns else 0)
        for batch in range(self.options.batches):
            count = per_batch + (batch < rest)
            self._run(count // 2, self.tables)
            for _ in range(additions.count(batch)):
                yield from self._add_column()
            for _ in range(drops.count(batch)):
                yield from self._drop_column()
            for _ in range(reloads.count(batch)):
                yield from self._reload()
            self._run(count - count // 2, self.tables)
            yield from self._flush_all()

    def _event_batches(self, count: int) -> list[int]:
        return [self._random.randrange(self.options.batches) for _ in range(count)]

    def _run(self, changes: int, tables: list[SimulatedTable]) -> None:
        """Make so many changes in transactions over several tables; a transaction has one commit time."""
        while changes > 0 and tables:
            size = min(changes, self._random.randint(1, LARGEST_TRANSACTION))
            commit = self._clock.commit()
            for _ in range(size):
                table = self._random.choice(tables)
                if self.options.shuffle_keys and self._random.random() < SHUFFLE_SHARE:
                    for draft in table.shuffle():
                        self._write(table, ChangeRow(table.spec, *draft, commit, self._clock.change_sequence()))
                row = ChangeRow(table.spec, *table.change(), commit, self._clock.change_sequence())
                self._write(table, row)
                if self.options.bad_rows and self._random.random() < self.options.bad_rows:
                    bad = row._replace(sequence=self._clock.change_sequence(), is_bad=True)
                    self._buffers[self._buffer_of(table)].append(bad)
            changes -= size

    def _write(self, table: SimulatedTable, row: ChangeRow) -> None:
        self._buffers.setdefault(self._buffer_of(table), []).append(row)

    def _buffer_of(self, table: SimulatedTable) -> TableId:
        return TRANSACTION_BUFFER if self.options.transactions else table.spec.id

    def _load(self, table: SimulatedTable) -> Iterator[SourceFile]:
        """Write the table's present rows as load parts."""
        rows = table.truth.rows()
        table.parts = table.parts or min(self.options.load_parts, len(rows))
        form = self._load_format[table.spec.id]
        parts = self._part_count(table)
        paths = load_paths(table.spec.id, self.options, parts, self._suffix(table.spec.id, form))
        for part, path in enumerate(paths):
            written = self._clock.write_file()
            yield SourceFile(
                self.options, FileClass.LOAD, path, written, "", form, table.spec, table.columns,
                table.generation, load=tuple(rows[part::parts]),
            )  # fmt: skip

    def _part_count(self, table: SimulatedTable) -> int:
        """Return the parts of a reload: as many as the load has or one more; with one fewer an old part stays."""
        if table.generation == 1:
            return table.parts
        if self.options.reload_fewer_parts:
            return max(1, table.parts - 1)
        table.parts += self._random.randrange(2)
        return table.parts

    def _reload(self) -> Iterator[SourceFile]:
        """Reload one table. Changes not yet flushed are then both in the load and in a later file."""
        candidates = [table for table in self.tables if table.parts and table.truth.rows()]
        if not candidates:
            return
        table = self._random.choice(candidates)
        if not table.spec.key:
            # Without a key a row that occurs twice stays twice.
            yield from self._flush(table)
        table.generation += 1
        table.forget_dropped()
        yield from self._load(table)

    def _add_column(self) -> Iterator[SourceFile]:
        candidates = [table for table in self.tables if table.pending_columns]
        if candidates:
            table = self._random.choice(candidates)
            yield from self._flush(table)
            table.add_column()

    def _drop_column(self) -> Iterator[SourceFile]:
        table = self._random.choice(self.tables)
        yield from self._flush(table)
        table.drop_column()

    def _flush_all(self) -> Iterator[SourceFile]:
        if self.options.transactions:
            yield from self._flush(self.tables[0])
            return
        for table in self.tables:
            yield from self._flush(table)
            if self._random.random() < self.options.empty_files and not self.options.add_columns:
                yield self._change_file(table, [])

    def _flush(self, table: SimulatedTable) -> Iterator[SourceFile]:
        """Write the buffered changes: as one file, as several, or as one file and some of its rows once more."""
        rows = self._buffers.pop(self._buffer_of(table), [])
        if not rows:
            return
        if self._random.random() < self.options.split:
            yield from (self._change_file(table, piece) for piece in self._pieces(rows))
            return
        yield self._change_file(table, rows)
        if table.spec.key and self.options.has_order_column and self._random.random() < self.options.duplicate:
            yield self._change_file(table, self._repeated(rows))

    def _repeated(self, rows: list[ChangeRow]) -> list[ChangeRow]:
        """Choose rows to deliver again: any range if each has its own sequence, else all of the file.

        Part of a transaction would be ordered behind the rest of it where only the commit time orders.
        """
        if not self.options.change_sequence:
            return rows
        start = self._random.randrange(len(rows))
        return rows[start : start + self._random.randint(1, len(rows))]

    def _pieces(self, rows: list[ChangeRow]) -> list[list[ChangeRow]]:
        cuts = sorted({0, len(rows), *(self._random.randrange(len(rows) + 1) for _ in range(3))})
        return [rows[start:end] for start, end in pairwise(cuts)]

    def _change_file(self, table: SimulatedTable, rows: list[ChangeRow]) -> SourceFile:
        digits = self._random.choice((3, 4, 6)) if self.options.odd_widths and not self.options.transactions else 3
        written = self._clock.write_file(digits)
        if self.options.transactions:
            path = transaction_path(written, self._suffix(self.tables[0].spec.id, "csv"))
            kind, time = FileClass.TRANSACTIONS, name_time(written)
            return SourceFile(self.options, kind, path, written, time, "csv", None, changes=tuple(rows))
        form = self._pick_format()
        commit = rows[0].commit if rows else written
        suffix = self._suffix(table.spec.id, form)
        path = change_path(table.spec.id, self.options, written, commit, suffix, digits)
        return SourceFile(
            self.options, FileClass.CHANGES, path, written, name_time(written), form, table.spec, table.columns,
            changes=tuple(rows),
        )  # fmt: skip

    def _pick_format(self) -> Literal["csv", "parquet"]:
        if self.options.format == "mixed":
            return self._random.choice(("csv", "parquet"))
        return self.options.format

    def _suffix(self, table: TableId, form: Literal["csv", "parquet"]) -> str:
        """Return a file's suffix; compressed CSV is named .csv.gz or .csv, as the name need not show it."""
        return ".csv.gz" if form == "csv" and self.options.gzip and self._gzip_suffix[table] else f".{form}"


# When each file lands: in order, late, shuffled, twice.
LONGEST_DELAY = 3


def assign_stages(files: list[SourceFile], options: SimulatorOptions) -> list[list[SourceFile]]:
    """Return the files that land in each stage; a file that lands again is listed again."""
    random = Random(f"staging:{options.seed}")
    preferred = _preferred_stages(files, options, random)
    stages: list[list[SourceFile]] = [[] for _ in range(options.stages)]
    floors = _Floors()
    for file, wanted in zip(files, preferred, strict=True):
        stage = floors.allow(file, wanted)
        _put(stages, stage, file)
        is_load = file.file_class is FileClass.LOAD
        # A load part that comes again with a new time is a reload, so only change files come again.
        if not is_load and random.random() < options.duplicate:
            _put(stages, stage + random.randint(1, LONGEST_DELAY), file)
    return [stage for stage in stages if stage]


def with_truncates(
    stages: list[list[SourceFile]], options: SimulatorOptions
) -> tuple[list[list[SourceFile]], dict[int, TableSpec]]:
    """Return the stages with others between them, by number, in which only a table's folder vanishes."""
    random = Random(f"truncates:{options.seed}")
    after = sorted(random.randrange(len(stages)) for _ in range(options.truncates)) if stages else []
    widened: list[list[SourceFile]] = []
    vanished: dict[int, TableSpec] = {}
    for number, files in enumerate(stages):
        widened.append(files)
        for _ in range(after.count(number)):
            landed = {table for stage in widened for file in stage for table in file.tables().values()}
            if landed:
                vanished[len(widened)] = random.choice(sorted(landed, key=lambda table: table.id))
                widened.append([])
    return widened, vanished


def _preferred_stages(files: list[SourceFile], options: SimulatorOptions, random: Random) -> list[int]:
    """Return a stage per file: spread evenly, first loads in front; then shuffled and delayed."""
    first_loads = [file for file in files if _is_first_load(file)]
    later = len(files) - len(first_loads)
    even = [place * options.stages // max(later, 1) for place in range(later)]
    if random.random() < options.reorder:
        random.shuffle(even)
    remaining, seen, preferred = iter(even), set(), []
    for file in files:
        stage = 0 if _is_first_load(file) else next(remaining)
        is_first_part = file.file_class is FileClass.LOAD and (file.table, file.generation) not in seen
        seen.add((file.table, file.generation) if file.file_class is FileClass.LOAD else None)
        if random.random() < options.delay and (options.late_load or not is_first_part):
            stage += random.randint(1, LONGEST_DELAY)
        preferred.append(stage)
    return preferred


def _is_first_load(file: SourceFile) -> bool:
    return file.file_class is FileClass.LOAD and file.generation == 1


class _Floors:
    """Earliest stages that keep a reload recognisable.

    A reload lands whole, after every part of the load before it, and no change file that belongs to it lands before
    it. Change files of the time before may well land after it.
    """

    def __init__(self) -> None:
        self._last_part: dict[object, int] = {}
        self._reload: dict[object, int] = {}
        self._generation: dict[object, int] = {}

    def allow(self, file: SourceFile, wanted: int) -> int:
        """Return the stage in which a file may land, ``wanted`` or later."""
        stage = max([wanted, *(self._reload.get(table, 0) for table in file.tables())])
        if file.file_class is not FileClass.LOAD or file.table is None:
            return stage
        table = file.table.id
        if 1 < file.generation == self._generation.get(table):
            return self._reload[table]
        if file.generation > self._generation.get(table, 1):
            stage = max(stage, self._last_part.get(table, 0) + 1)
            self._reload[table] = stage
            self._generation[table] = file.generation
        self._last_part[table] = max(stage, self._last_part.get(table, 0))
        return stage


def _put(stages: list[list[SourceFile]], stage: int, file: SourceFile) -> None:
    while len(stages) <= stage:
        stages.append([])
    stages[stage].append(file)
