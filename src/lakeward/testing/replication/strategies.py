"""Hypothesis strategies: small simulations, histories of model changes spread over files, scenarios of replications."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from lakeward.model import Operation, OrderBy, Place
from lakeward.testing.oracle import ModelChange, Row, move
from lakeward.testing.replication import (
    Deliver,
    Expire,
    Flush,
    FullLoad,
    HoldBack,
    Pause,
    Recopy,
    Reload,
    ReplicationOptions,
    Restart,
    ResumeLoad,
    ResumeTask,
    RunLakeward,
    Touch,
    TruncateSource,
    Write,
    slowly,
)
from lakeward.testing.simulator.options import CHOICES, compatible

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

    from lakeward.testing.replication import Step
    from lakeward.testing.simulator.options import SimulatorOptions

KEY = ("id",)
COLUMNS = ("id", "a", "b", "c")
FEW_KEYS = 4
MOST_FILES = 5


@dataclass(frozen=True)
class ModelFile:
    """A change file as the oracle sees it: its changes, each at its place."""

    path: str
    time: str
    changes: tuple[ModelChange, ...]


@dataclass(frozen=True)
class ChangeHistory:
    """The events of one table: ``changes`` as the source made them, ``files`` as the capture wrote them."""

    load: tuple[Row, ...]
    changes: tuple[ModelChange, ...]
    files: tuple[ModelFile, ...]
    order_by: OrderBy
    columns: tuple[str, ...] = COLUMNS
    key: tuple[str, ...] = KEY


def small_options(**fixed: Any) -> SearchStrategy[SimulatorOptions]:
    """Return options of simulations that take milliseconds; ``fixed`` options are kept unless others exclude them."""
    choices = {name: st.sampled_from(values) for name, values in CHOICES.items() if name not in fixed}
    seeds = {} if "seed" in fixed else {"seed": st.integers(0, 10_000)}
    return st.fixed_dictionaries({**seeds, **choices}).map(lambda drawn: compatible({**drawn, **fixed}))


@st.composite
def histories(draw: DrawFn, most_changes: int = 12) -> ChangeHistory:
    """Return a random history of few keys, so that changes collide, in files placed by any of the order columns."""
    order_by = draw(st.sampled_from(OrderBy))
    load = tuple({**row, "id": key} for key, row in draw(_loads()).items())
    count = draw(st.integers(0, most_changes))
    order_values = draw(_order_values(order_by, count))
    file_numbers = draw(_file_numbers(order_by, count))
    rows_in_file = [0] * MOST_FILES
    changes: list[ModelChange] = []
    for order_value, number in zip(order_values, file_numbers, strict=True):
        time = f"2024010100000{number}000000"
        place = Place(order_value, time, file_path(number), rows_in_file[number])
        rows_in_file[number] += 1
        changes.extend(draw(_changes(place)))
    return ChangeHistory(load, tuple(changes), files_of(changes), order_by)


def arrivals(files: tuple[ModelFile, ...]) -> SearchStrategy[list[ModelFile]]:
    """Return the files in any order, some of them more than once."""
    if not files:
        return st.just([])
    again = st.lists(st.sampled_from(files), max_size=3)
    return again.flatmap(lambda repeated: st.permutations([*files, *repeated]))


def batches(files: list[ModelFile]) -> SearchStrategy[list[list[ModelFile]]]:
    """Return an arrival split into batches."""
    cuts = st.sets(st.integers(0, len(files))).map(lambda chosen: sorted({0, *chosen, len(files)}))
    return cuts.map(lambda ends: [files[start:end] for start, end in itertools.pairwise(ends)])


def replication_options(**fixed: Any) -> SearchStrategy[ReplicationOptions]:
    """Return ways in which DMS is set up; ``fixed`` options are kept."""
    choices: dict[str, SearchStrategy[Any]] = {
        "form": st.sampled_from(("csv", "csv.gz", "gzipped csv", "parquet")),
        "timestamp_column": st.sampled_from(("cdc_timestamp", None)),
        "change_sequence": st.booleans(),
        "keyless": st.booleans(),
        "load_stamp": st.sampled_from(("row", "load", "task")),
        "commit_unit_ms": st.sampled_from((1, 1000)),
        "source_lag_ms": st.sampled_from((0, 5000)),
    }
    drawn = st.fixed_dictionaries({name: values for name, values in choices.items() if name not in fixed})
    return drawn.map(lambda chosen: ReplicationOptions(**{**chosen, **fixed}))


def replication_steps(most_steps: int = 8, without: tuple[type, ...] = ()) -> SearchStrategy[tuple[Step, ...]]:
    """Return scenarios of one table: some rows, a load, a run, then any steps, some of them followed by a run.

    Every scenario ends with the delivery of all files and a run. Kinds of steps in ``without`` do not occur.
    """
    kinds = {kind: steps for kind, steps in _steps().items() if kind not in without}
    # Commits and their files are the most frequent steps.
    captured = st.tuples(_writes(st.just(value=True)), st.just(Flush()))
    slow = [_slowly(kinds[kind]) for kind in (Reload, Restart) if kind in kinds and HoldBack in kinds]
    bursts = st.one_of(*(steps.map(lambda step: (step,)) for steps in kinds.values()), captured, captured, *slow)
    runs = st.sampled_from(((), (RunLakeward(),)))
    middle = st.lists(st.tuples(bursts, runs).map(lambda pair: (*pair[0], *pair[1])), max_size=most_steps)
    first = _load_steps(FullLoad).map(lambda load: (load,))
    beginning = st.tuples(
        _writes(st.just(value=False)), st.one_of(first, _slowly(_load_steps(FullLoad))) if HoldBack in kinds else first
    )
    return st.tuples(beginning, middle).map(
        lambda parts: (parts[0][0], *parts[0][1], RunLakeward(), *itertools.chain(*parts[1]), Deliver(), RunLakeward())
    )


def _slowly(loads: SearchStrategy[FullLoad]) -> SearchStrategy[tuple[Step, ...]]:
    return st.builds(slowly, loads, st.integers(1, 3), half=st.booleans())


def _steps() -> dict[type, SearchStrategy[Any]]:
    files = st.one_of(st.none(), st.integers(0, 5))
    return {
        Write: _writes(st.booleans()),
        Flush: st.just(Flush()),
        Reload: _load_steps(Reload),
        Restart: _load_steps(Restart),
        ResumeLoad: st.just(ResumeLoad()),
        ResumeTask: st.just(ResumeTask()),
        TruncateSource: st.builds(TruncateSource, st.booleans()),
        Expire: st.builds(Expire, st.sampled_from((0, 15, 60))),
        Pause: st.builds(Pause, st.sampled_from((1, 30))),
        Touch: st.builds(Touch, files),
        Recopy: st.builds(Recopy, files),
        HoldBack: st.builds(HoldBack, st.booleans()),
        Deliver: st.builds(Deliver, st.sampled_from((1, 2, None)), st.integers(0, 3), st.booleans()),
    }


def _writes(captured: SearchStrategy[bool]) -> SearchStrategy[Write]:
    return st.builds(Write, _source_changes(4), captured)


def _source_changes(most: int) -> SearchStrategy[tuple[tuple[int, str | None], ...]]:
    """Return changes of few keys and few values, so that contents return to what they were."""
    change = st.tuples(st.integers(1, 6), st.sampled_from(("a", "b", "c", None)))
    return st.lists(change, max_size=most).map(tuple)


def _load_steps(kind: type[FullLoad]) -> SearchStrategy[FullLoad]:
    return st.builds(
        kind,
        parts=st.integers(1, 3),
        unfinished=st.sampled_from((0, 0, 0, 1)),
        form=st.sampled_from((None, None, "csv", "csv.gz", "gzipped csv", "parquet")),
        segments=st.sampled_from(("none", "none", "prefix", "folder")),
        during=_source_changes(2),
        pending=st.sampled_from(("flushed", "carried", "dropped")),
    )


def file_path(number: int) -> str:
    """Return the path of a model's file; paths sort in reverse to times."""
    return f"shop/product/{chr(ord('z') - number)}.csv"


def files_of(changes: list[ModelChange]) -> tuple[ModelFile, ...]:
    """Return placed changes grouped by their files."""
    by_file: dict[tuple[str, str], list[ModelChange]] = {}
    for change in changes:
        by_file.setdefault((change.place.file, change.place.file_time), []).append(change)
    return tuple(ModelFile(path, time, tuple(rows)) for (path, time), rows in by_file.items())


def split_file(file: ModelFile, at: int) -> tuple[ModelFile, ModelFile]:
    """Return two files with the rows before and from row ``at``, the second named just after the first."""
    later = file.time[:-1] + "1"
    moved = [
        replace(change, place=replace(change.place, file_time=later, row=change.place.row - at))
        for change in file.changes
        if change.place.row >= at
    ]
    kept = tuple(change for change in file.changes if change.place.row < at)
    return ModelFile(file.path, file.time, kept), ModelFile(file.path, later, tuple(moved))


def _values() -> SearchStrategy[Row]:
    value = st.one_of(st.none(), st.integers(0, 9))
    return st.fixed_dictionaries({name: value for name in COLUMNS if name not in KEY})


def _loads() -> SearchStrategy[dict[int, Row]]:
    return st.dictionaries(st.integers(0, FEW_KEYS - 1), _values(), max_size=FEW_KEYS)


def _order_values(order_by: OrderBy, count: int) -> SearchStrategy[list[str]]:
    """Return non-decreasing values: all different for a sequence, with ties for a timestamp."""
    if order_by is OrderBy.NONE:
        return st.just([""] * count)
    if order_by is OrderBy.SEQUENCE:
        return st.just([f"{number:035}" for number in range(count)])
    ticks = st.lists(st.integers(0, 3), min_size=count, max_size=count).map(sorted)
    return ticks.map(lambda numbers: [f"2024-01-01 00:00:0{number}.000000" for number in numbers])


def _file_numbers(order_by: OrderBy, count: int) -> SearchStrategy[list[int]]:
    """Return the file of each change: any file if a sequence orders changes, otherwise files in order."""
    numbers = st.lists(st.integers(0, MOST_FILES - 1), min_size=count, max_size=count)
    return numbers if order_by is OrderBy.SEQUENCE else numbers.map(sorted)


@st.composite
def _changes(draw: DrawFn, place: Place) -> tuple[ModelChange, ...]:
    """Return one change, a key change as its two steps."""
    key, values = draw(st.integers(0, FEW_KEYS - 1)), draw(_values())
    unchanged = draw(st.frozensets(st.sampled_from([name for name in COLUMNS if name not in KEY])))
    match draw(st.sampled_from(["insert", "update", "update", "delete", "move"])):
        case "insert":
            return (ModelChange(place, Operation.INSERT, (key,), {"id": key, **values}),)
        case "delete":
            return (ModelChange(place, Operation.DELETE, (key,)),)
        case "move":
            new = (key + draw(st.integers(1, FEW_KEYS - 1))) % FEW_KEYS
            return move(place, (key,), (new,), {"id": new, **values}, unchanged)
        case _:
            return (ModelChange(place, Operation.UPDATE, (key,), {"id": key, **values}, unchanged),)
