"""Hypothesis strategies: small simulations, and histories of model changes spread over files in any order."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from lakeward.model import Operation, OrderBy, Place
from lakeward.testing.oracle import ModelChange, Row, move
from lakeward.testing.simulator.options import CHOICES, compatible

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

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
class History:
    """What happened to one table: ``changes`` as the source made them, ``files`` as the capture wrote them."""

    load: tuple[Row, ...]
    changes: tuple[ModelChange, ...]
    files: tuple[ModelFile, ...]
    order_by: OrderBy
    columns: tuple[str, ...] = COLUMNS
    key: tuple[str, ...] = KEY


def small_options(**fixed: Any) -> SearchStrategy[SimulatorOptions]:
    """Give options of simulations that take milliseconds; ``fixed`` ones are kept where nothing rules them out."""
    wishes = {name: st.sampled_from(values) for name, values in CHOICES.items() if name not in fixed}
    seeds = {} if "seed" in fixed else {"seed": st.integers(0, 10_000)}
    return st.fixed_dictionaries({**seeds, **wishes}).map(lambda drawn: compatible({**drawn, **fixed}))


@st.composite
def histories(draw: DrawFn, most_changes: int = 12) -> History:
    """Give a random history of few keys, so that changes meet, in files placed by any of the order columns."""
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
    return History(load, tuple(changes), files_of(changes), order_by)


def arrivals(files: tuple[ModelFile, ...]) -> SearchStrategy[list[ModelFile]]:
    """Give the files in any order, some of them more than once."""
    if not files:
        return st.just([])
    again = st.lists(st.sampled_from(files), max_size=3)
    return again.flatmap(lambda repeated: st.permutations([*files, *repeated]))


def batches(files: list[ModelFile]) -> SearchStrategy[list[list[ModelFile]]]:
    """Cut an arrival into batches."""
    cuts = st.sets(st.integers(0, len(files))).map(lambda chosen: sorted({0, *chosen, len(files)}))
    return cuts.map(lambda ends: [files[start:end] for start, end in itertools.pairwise(ends)])


def file_path(number: int) -> str:
    """Name the model's files so that their paths sort against their times."""
    return f"shop/product/{chr(ord('z') - number)}.csv"


def files_of(changes: list[ModelChange]) -> tuple[ModelFile, ...]:
    """Gather placed changes into the files they lie in."""
    by_file: dict[tuple[str, str], list[ModelChange]] = {}
    for change in changes:
        by_file.setdefault((change.place.file, change.place.file_time), []).append(change)
    return tuple(ModelFile(path, time, tuple(rows)) for (path, time), rows in by_file.items())


def split_file(file: ModelFile, at: int) -> tuple[ModelFile, ModelFile]:
    """Give two files with the rows before and from row ``at``, the second named just after the first."""
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
    """Give values that never fall: all different for a sequence, with ties for a timestamp."""
    if order_by is OrderBy.NONE:
        return st.just([""] * count)
    if order_by is OrderBy.SEQUENCE:
        return st.just([f"{number:035}" for number in range(count)])
    ticks = st.lists(st.integers(0, 3), min_size=count, max_size=count).map(sorted)
    return ticks.map(lambda numbers: [f"2024-01-01 00:00:0{number}.000000" for number in numbers])


def _file_numbers(order_by: OrderBy, count: int) -> SearchStrategy[list[int]]:
    """A change may lie in any file if a sequence places it, else files follow each other."""
    numbers = st.lists(st.integers(0, MOST_FILES - 1), min_size=count, max_size=count)
    return numbers if order_by is OrderBy.SEQUENCE else numbers.map(sorted)


@st.composite
def _changes(draw: DrawFn, place: Place) -> tuple[ModelChange, ...]:
    """Give one change, a key change as its two steps."""
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
