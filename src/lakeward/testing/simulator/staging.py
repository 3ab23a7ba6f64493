"""When each file lands: in order, late, shuffled, twice."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from lakeward.model import FileClass

if TYPE_CHECKING:
    from lakeward.testing.simulator.files import SourceFile
    from lakeward.testing.simulator.options import SimulatorOptions
    from lakeward.testing.simulator.tables import TableSpec

LONGEST_DELAY = 3


def assign_stages(files: list[SourceFile], options: SimulatorOptions) -> list[list[SourceFile]]:
    """Give the files that land in each stage; a file that lands again is listed again."""
    random = Random(f"staging:{options.seed}")
    wished = _wished_stages(files, options, random)
    stages: list[list[SourceFile]] = [[] for _ in range(options.stages)]
    floors = _Floors()
    for file, wish in zip(files, wished, strict=True):
        stage = floors.allow(file, wish)
        _put(stages, stage, file)
        is_load = file.file_class is FileClass.LOAD
        # A load part that comes again with a new time is a reload, so only change files come again.
        if not is_load and random.random() < options.duplicate:
            _put(stages, stage + random.randint(1, LONGEST_DELAY), file)
    return [stage for stage in stages if stage]


def with_truncates(
    stages: list[list[SourceFile]], options: SimulatorOptions
) -> tuple[list[list[SourceFile]], dict[int, TableSpec]]:
    """Put stages in between in which nothing lands and a table's folder vanishes; give these by their number."""
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


def _wished_stages(files: list[SourceFile], options: SimulatorOptions, random: Random) -> list[int]:
    """Spread the files evenly over the stages, first loads in front; then shuffle and delay."""
    first_loads = [file for file in files if _is_first_load(file)]
    later = len(files) - len(first_loads)
    even = [place * options.stages // max(later, 1) for place in range(later)]
    if random.random() < options.reorder:
        random.shuffle(even)
    remaining, seen, wished = iter(even), set(), []
    for file in files:
        stage = 0 if _is_first_load(file) else next(remaining)
        is_first_part = file.file_class is FileClass.LOAD and (file.table, file.generation) not in seen
        seen.add((file.table, file.generation) if file.file_class is FileClass.LOAD else None)
        if random.random() < options.delay and (options.late_load or not is_first_part):
            stage += random.randint(1, LONGEST_DELAY)
        wished.append(stage)
    return wished


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

    def allow(self, file: SourceFile, wish: int) -> int:
        """Give the stage in which a file lands that would land in stage ``wish``."""
        stage = max([wish, *(self._reload.get(table, 0) for table in file.tables())])
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
