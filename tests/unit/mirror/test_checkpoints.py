"""Which kept state serves a question about the past."""

from __future__ import annotations

from typing import Any

import pytest

from lakeward.errors import DataError
from lakeward.iceberg.metadata import MAIN, Snapshot
from lakeward.mirror.op.checkpoints import (
    Checkpoint,
    best_checkpoint,
    file_moment,
    is_undone,
    load_at,
    op_moment,
    parse_moment,
    require_load,
)
from lakeward.model import Progress, TableId

TABLE = TableId("sales", "product")
DAY = 24 * 3600 * 1_000_000
NINE_OPS = Progress(9)
AT = parse_moment("1970-01-10T00:00:00Z")  # nine days after the epoch


class Kept:
    """A mirror's metadata: ``main`` goes through the snapshots in order, tags are where they were set."""

    def __init__(self, *summaries: dict[str, Any], tags: dict[str, dict[str, Any]] | None = None) -> None:
        self._main = [_snapshot(number, summary) for number, summary in enumerate(summaries, start=1)]
        self._tagged = {name: _snapshot(100 + at, found) for at, (name, found) in enumerate((tags or {}).items())}

    def snapshots(self) -> dict[int, Snapshot]:
        return {found.id: found for found in (*self._main, *self._tagged.values())}

    def tags(self) -> dict[str, int]:
        return {name: value.id for name, value in self._tagged.items()}

    def head(self, reference: str = MAIN) -> Snapshot | None:
        return self._main[-1] if self._main else None

    def stamp_at(self, name: str, snapshot_id: int) -> str | None:
        found = [found.summary[name] for found in self._main if found.id <= snapshot_id and name in found.summary]
        return found[-1] if found else None


def _snapshot(number: int, summary: dict[str, Any]) -> Snapshot:
    parent = number - 1 if 1 < number < 100 else None
    return Snapshot(number, parent, {name: str(value) for name, value in summary.items()})


def applied(op: int, *, commit: int = 0, generation: int = 1, **more: Any) -> dict[str, Any]:
    stamps = {"lakeward.applied-op": op, "lakeward.generation": generation, "lakeward.newest-commit": commit}
    return {**stamps, **{f"lakeward.{name.replace('_', '-')}": value for name, value in more.items()}}


def best(kept: Kept, moment: Any = AT, *, progress: Progress = NINE_OPS, load: Snapshot | None = None) -> Any:
    return best_checkpoint(kept, moment, 1, progress, load)  # type: ignore[arg-type]


def test_the_newest_state_without_later_commits_serves() -> None:
    kept = Kept(applied(1, commit=1 * DAY), applied(2, commit=8 * DAY), applied(3, commit=10 * DAY))
    assert best(kept) == Checkpoint(2, 2)


def test_no_state_serves_where_all_hold_later_commits() -> None:
    assert best(Kept(applied(3, commit=10 * DAY))) is None


def test_an_op_is_served_by_states_up_to_it() -> None:
    kept = Kept(applied(1), applied(2), applied(3))
    assert best(kept, op_moment(2), progress=Progress(2)) == Checkpoint(2, 2)


def test_the_end_of_a_file_is_served_by_states_that_read_no_later_file() -> None:
    kept = Kept(applied(1), applied(2), applied(3), tags={"t": applied(2, as_of=DAY)})
    ends = file_moment("20240401000000000000")
    assert best_checkpoint(kept, ends, 1, NINE_OPS, None, newest_op=2) == Checkpoint(2, 2)  # type: ignore[arg-type]
    assert best_checkpoint(kept, ends, 1, NINE_OPS, None, newest_op=0) is None  # type: ignore[arg-type]


def test_states_of_another_generation_do_not_serve() -> None:
    assert best(Kept(applied(1, generation=2))) is None


def test_a_state_of_an_op_that_was_undone_does_not_serve() -> None:
    kept = Kept(applied(1), applied(2))
    assert best(kept, progress=Progress(9, undone=((2, 8),))) == Checkpoint(1, 1)


def test_nothing_older_than_the_last_load_part_serves() -> None:
    load = _snapshot(50, {"lakeward.load-op": 3})
    assert best(Kept(applied(1), applied(2)), load=load) is None
    assert best(Kept(applied(1), applied(4)), load=load) == Checkpoint(2, 4)


def test_nothing_older_than_the_last_repair_serves() -> None:
    kept = Kept(applied(1), applied(2, commit=10 * DAY, repaired_op=2))
    assert best(kept) is None


def test_a_tag_made_for_a_time_serves_later_times_and_no_ops() -> None:
    tags = {"day": applied(5, commit=20 * DAY, as_of=7 * DAY), "later": applied(5, as_of=20 * DAY)}
    kept = Kept(applied(1, commit=1 * DAY), tags=tags)
    assert best(kept) == Checkpoint(100, 5, 7 * DAY)
    assert best(kept, op_moment(5), progress=Progress(5)) == Checkpoint(1, 1)


def test_commits_without_stamps_of_progress_are_passed_over() -> None:
    assert best(Kept(applied(1), {"added-records": 3})) == Checkpoint(1, 1)


def test_a_tag_on_a_load_does_not_serve_as_it_lacks_the_changes() -> None:
    tags = {"early": applied(3, commit=5 * DAY, load_op=3), "undone-4-load-1": applied(3, commit=5 * DAY, load_op=3)}
    assert best(Kept(applied(2, commit=1 * DAY), tags=tags)) == Checkpoint(1, 2)


def loads(*ops: int) -> Kept:
    return Kept(*[applied(op, load_op=op) for op in ops])


def test_the_load_is_used_as_it_was_at_the_op() -> None:
    found = load_at(loads(1, 5), 1, Progress(4))  # type: ignore[arg-type]
    assert found is not None and found.id == 1
    found = load_at(loads(1, 5), 1, Progress(5))  # type: ignore[arg-type]
    assert found is not None and found.id == 2


def test_a_load_part_that_was_undone_is_not_taken() -> None:
    found = load_at(loads(1, 5), 1, Progress(9, undone=((5, 8),)))  # type: ignore[arg-type]
    assert found is not None and found.id == 1


def test_before_the_first_load_part_there_is_no_load() -> None:
    found = load_at(loads(5), 1, Progress(3))  # type: ignore[arg-type]
    assert found is None
    require_load(TABLE, 1, found, None)


@pytest.mark.parametrize("kept", [(), (1,), (5,)], ids=["none", "an earlier part", "a later part"])
def test_a_load_that_is_no_longer_kept_as_it_was_is_refused(kept: tuple[int, ...]) -> None:
    found = load_at(loads(*kept), 1, Progress(4))  # type: ignore[arg-type]
    with pytest.raises(DataError, match="generation 1 as op 3 left it is no longer kept"):
        require_load(TABLE, 1, found, 3)
    require_load(TABLE, 1, load_at(loads(1, 3, 5), 1, Progress(4)), 3)  # type: ignore[arg-type]


def test_undone_ranges_include_both_ends() -> None:
    assert [op for op in range(8) if is_undone(op, [(2, 3), (5, 5)])] == [2, 3, 5]
