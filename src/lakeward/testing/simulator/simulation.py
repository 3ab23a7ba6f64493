"""A simulation in memory: stages of landing files, and what the mirror must hold after each."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from lakeward.arguments import PATH, instance, takes
from lakeward.documents import Document
from lakeward.errors import ConfigurationError
from lakeward.model import FileClass
from lakeward.testing.oracle import fold, fold_commits, fold_keyless
from lakeward.testing.simulator.files import name_time
from lakeward.testing.simulator.options import LANDING, SimulatorOptions, configuration_of, schema_is_declared
from lakeward.testing.simulator.stream import Capture, assign_stages, with_truncates
from lakeward.testing.simulator.tables import lake_row
from lakeward.testing.simulator.writers import render_csv, render_parquet, render_rows

if TYPE_CHECKING:
    from lakeward.columns import Column
    from lakeward.model import TableId
    from lakeward.testing.oracle import Row
    from lakeward.testing.simulator.files import SourceFile
    from lakeward.testing.simulator.source import SimulatedTable
    from lakeward.testing.simulator.tables import TableSpec


REDELIVERED_AFTER = timedelta(hours=1)


@dataclass(frozen=True)
class Landing:
    """One file that lands: ``path`` counts from the landing root, ``mtime`` is simulated like everything else."""

    path: str
    file: SourceFile
    mtime: datetime

    def content(self) -> bytes:
        """Return the file's bytes."""
        return render(self.file)

    def write(self, root: Path) -> Path:
        """Put the file under the landing root, in place of one that was there."""
        return write_file(root, self.path, self.content(), self.mtime)


@dataclass(frozen=True)
class LandingStage:
    """Files that land together, between two runs of Lakeward, or a folder under landing that vanishes."""

    number: int
    landings: tuple[Landing, ...]
    vanished: str | None = None

    def land(self, root: Path) -> list[Path]:
        """Put every file of the stage under the landing root."""
        if self.vanished is not None:
            shutil.rmtree(root / self.vanished, ignore_errors=True)
        return [landing.write(root) for landing in self.landings]


class Simulation:
    """A seeded workload with its truth, held in memory: for tests, not for millions of changes."""

    def __init__(self, options: SimulatorOptions) -> None:
        self.options = options
        capture = Capture(options)
        files = list(capture.files())
        self.tables: tuple[TableSpec, ...] = tuple(table.spec for table in capture.tables)
        self._staged, self._vanished = with_truncates(assign_stages(files, options), options)
        self._files = files
        self._source = {table.spec: table.truth.rows() for table in capture.tables}

    @property
    def truth(self) -> dict[TableId, list[Row]]:
        """The source's tables at the end, as a reader of the mirror must see them.

        A table that never wrote a file has no mirror and is left out. Folders that vanish do not concern the source.
        """
        return {
            table.id: [lake_row(self._columns(table, files), row) for row in rows]
            for table, rows in self._source.items()
            if (files := _of(table, self._files))
        }

    @cached_property
    def _stages(self) -> list[LandingStage]:
        seen: set[str] = set()
        stages = []
        for number, files in enumerate(self._staged):
            landings = []
            for file in files:
                again = file.file_class is not FileClass.LOAD and file.path in seen
                landings.append(Landing(file.path, file, file.written + (REDELIVERED_AFTER if again else timedelta())))
                seen.add(file.path)
            gone = self._vanished.get(number)
            stages.append(LandingStage(number, tuple(landings), f"{gone.id.schema}/{gone.id.name}" if gone else None))
        return stages

    def stages(self) -> list[LandingStage]:
        """Return the stages in which files land."""
        return list(self._stages)

    def configuration(self) -> dict[str, Any]:
        """Return the tables' configuration in the shape of ``lakeward.yaml``, landing in ``./landing``."""
        return configuration_of(self.tables, self.options)

    def truth_after(self, stage: LandingStage | int) -> dict[TableId, list[Row]]:
        """Return what each mirror must hold once this and all earlier stages have landed and run.

        It is the fold of what has landed, not the source's state. A table of which nothing has landed is left out.
        """
        landed = self._landed(stage)
        return {
            table.id: self._expected(table, files, since=self._since(table, _number(stage)))
            for table in self.tables
            if (files := _of(table, landed))
        }

    def _landed(self, stage: LandingStage | int) -> list[SourceFile]:
        """Return the files that have landed with this and earlier stages."""
        return [file for files in self._staged[: _number(stage) + 1] for file in files]

    def _since(self, table: TableSpec, number: int) -> list[SourceFile] | None:
        """Return what has landed of a table since its folder vanished, None where it never did."""
        stages = [key for key, gone in self._vanished.items() if gone is table and key <= number]
        if not stages:
            return None
        return _of(table, [file for files in self._staged[max(stages) : number + 1] for file in files])

    def truth_as_of(self, stage: LandingStage | int, moment: datetime) -> dict[TableId, list[Row]]:
        """Return what each table was at the end of a moment, by all that has landed with this and earlier stages."""
        landed = self._landed(stage)
        return {
            table.id: self._expected(table, files, moment) for table in self.tables if (files := _of(table, landed))
        }

    def commits(self, stage: LandingStage | int) -> list[datetime]:
        """Return the commit times of all changes that have landed with this and earlier stages, in order."""
        return sorted({change.commit for file in self._landed(stage) for change in file.changes})

    def beginnings(self, stage: LandingStage | int) -> list[datetime]:
        """Return the moments at which reloads that have landed with this and earlier stages begin, in order."""
        begun: dict[tuple[TableSpec | None, int], datetime] = {}
        for file in self._landed(stage):
            if file.file_class is FileClass.LOAD and file.generation > 1:
                load = (file.table, file.generation)
                begun[load] = min(file.written, begun.get(load, file.written))
        return sorted(begun.values())

    def _expected(
        self,
        table: TableSpec,
        landed: list[SourceFile],
        moment: datetime | None = None,
        *,
        since: list[SourceFile] | None = None,
    ) -> list[Row]:
        shown = self._columns(table, landed)
        landed = landed if since is None else since
        cuts = _cuts(landed)
        begun = [key for key, cut in cuts.items() if moment is None or cut <= name_time(moment)]
        generation = max(begun, default=1)
        parts = [file for file in landed if file.file_class is FileClass.LOAD and file.generation == generation]
        # Changes named before a reload belong to the generation it replaced.
        cut = cuts.get(generation, "")
        later = [file for file in landed if file.file_class is not FileClass.LOAD and file.time >= cut]
        changes = [change for file in later for change in file.model_changes(table, until=moment)]
        load = [row for part in parts for row in part.load]
        names = [column.name for column in table.all_columns]
        together = fold_commits if self.options.shuffle_keys else fold
        rows = (
            list(together(changes, names, table.key, load).values())
            if table.key
            else fold_keyless(changes, names, load)
        )
        return [lake_row(shown, row) for row in rows]

    def _columns(self, table: TableSpec, landed: list[SourceFile]) -> tuple[Column, ...]:
        """Return the mirror's columns: the declared ones, else those that landed files have."""
        if schema_is_declared(self.options):
            return table.all_columns
        seen = {column for file in landed for column in file.columns_of(table)}
        return tuple(column for column in table.all_columns if column in seen)


def _number(stage: LandingStage | int) -> int:
    return stage if isinstance(stage, int) else stage.number


def _cuts(landed: list[SourceFile]) -> dict[int, str]:
    """Return the name time that each loaded generation begins with; the first has no beginning."""
    loads = [file for file in landed if file.file_class is FileClass.LOAD]
    numbers = {file.generation for file in loads}
    firsts = {number: min(file.written for file in loads if file.generation == number) for number in numbers}
    return {key: name_time(first) if key > 1 else "" for key, first in firsts.items()}


def render(file: SourceFile) -> bytes:
    """Return a file's bytes in its own format."""
    return render_csv(file) if file.format == "csv" else render_parquet(file)


def write_file(root: Path, path: str, content: bytes, mtime: datetime) -> Path:
    """Write a file with a simulated time of modification."""
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    set_mtime(target, mtime)
    return target


def set_mtime(path: Path, mtime: datetime) -> None:
    """Set a file's time of modification, exact to the microsecond."""
    nanoseconds = (mtime - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000
    os.utime(path, ns=(nanoseconds, nanoseconds))


def _of(table: TableSpec, landed: list[SourceFile]) -> list[SourceFile]:
    return [file for file in landed if table.id in file.tables()]


# A simulation on disk: landing tree, truth and a configuration with which ``lakeward run`` works.


TRUTH = "truth"
CONFIGURATION = "lakeward.yaml"
_OPTIONS = instance("SimulatorOptions", SimulatorOptions)


def _by_name(rows: dict[TableId, int]) -> dict[str, int]:
    return {str(table): number for table, number in rows.items()}


@dataclass(frozen=True)
class SimulationResult(
    Document,
    write={"directory": str, "landing": str, "truth": str, "configuration": str, "rows": _by_name},
):
    """The files that were written, and their folders. ``rows`` counts each table's rows at the end."""

    directory: Path
    landing: Path
    truth: Path
    configuration: Path
    files: int
    changes: int
    rows: dict[TableId, int]


@takes(directory=PATH, options=_OPTIONS)
def write_simulation(directory: str | Path, options: SimulatorOptions) -> SimulationResult:
    """Write a whole simulation, all files landed, with the truth beside it. Any number of changes fits.

    Raises:
        ConfigurationError: the folder has a simulation or other landing files already, or the options leave old load
            parts among new ones, which can be distinguished only while they land.
    """
    root = Path(directory)
    _require_usable(root, options)
    capture = Capture(options)
    files = changes = 0
    seen: dict[TableId, set[Column]] = {}
    for file in capture.files():
        write_file(root / LANDING, file.path, render(file), file.written)
        files, changes = files + 1, changes + len(file.changes)
        if file.table is not None:
            seen.setdefault(file.table.id, set()).update(file.columns)
    specs = [table.spec for table in capture.tables]
    _write_truth(root / TRUTH, capture.tables, options, seen)
    text = yaml.safe_dump(configuration_of(specs, options), sort_keys=False, allow_unicode=True)
    (root / CONFIGURATION).write_text(text, encoding="utf-8")
    rows = {table.spec.id: len(table.truth.rows()) for table in capture.tables}
    return SimulationResult(root, root / LANDING, root / TRUTH, root / CONFIGURATION, files, changes, rows)


def _write_truth(
    folder: Path, tables: list[SimulatedTable], options: SimulatorOptions, seen: dict[TableId, set[Column]]
) -> None:
    """Write every table's rows with the columns its mirror has: undeclared ones show once a file has them."""
    folder.mkdir(parents=True, exist_ok=True)
    for table in tables:
        all_columns = table.spec.all_columns
        declared = schema_is_declared(options) or table.spec.id not in seen
        columns = all_columns if declared else [column for column in all_columns if column in seen[table.spec.id]]
        (folder / f"{table.spec.id}.parquet").write_bytes(render_rows(columns, table.truth.rows()))


def _require_usable(root: Path, options: SimulatorOptions) -> None:
    if options.reload_fewer_parts and options.reloads:
        msg = "reload_fewer_parts cannot be written at once: an old load part would lie beside the new ones"
        raise ConfigurationError(msg)
    for name in (LANDING, TRUTH, CONFIGURATION):
        if (root / name).exists() and not ((root / name).is_dir() and not any((root / name).iterdir())):
            msg = f"{root / name} exists already; a simulation is written into an empty folder"
            raise ConfigurationError(msg, hint="lakeward simulate OTHER_FOLDER")
