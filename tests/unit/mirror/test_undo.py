"""Ops that count after undos, where load branches go, and files that are fenced."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakeward.errors import DataError
from lakeward.formats.base import FileSummary
from lakeward.iceberg.metadata import EMPTY_TAG, Snapshot
from lakeward.mirror.op.apply import applied_stamps, loads_at, undone_tag
from lakeward.mirror.op.changelog import FileRecord, OpRecord
from lakeward.mirror.op.checkpoints import is_undone
from lakeward.mirror.op.undone import kept_note
from lakeward.model import Disposition, FileClass, FileIdentity, Generation, Progress, TableId

TABLE = TableId("sales", "product")
EMPTY = Snapshot(1, None, {})


class Kept:
    """A mirror's metadata: kept snapshots of loads, and the heads of branches."""

    def __init__(self, *loads: Snapshot, **branches: Snapshot) -> None:
        self._loads = {found.id: found for found in loads}
        self._branches = {name.replace("_", "-"): branch for name, branch in branches.items()}

    def snapshots(self) -> dict[int, Snapshot]:
        return self._loads

    def head(self, reference: str) -> Snapshot | None:
        return EMPTY if reference == EMPTY_TAG else self._branches.get(reference)


def load(snapshot: int, op: int, generation: int) -> Snapshot:
    return Snapshot(snapshot, None, {"lakeward.load-op": str(op), "lakeward.generation": str(generation)})


def undo(before: dict[int, Progress], back_to: int) -> None:
    op = max(before) + 1
    before[op] = before.get(back_to, Progress()).after_undoing(op, back_to=back_to)


def standing(progress: Progress) -> list[int]:
    return [op for op in range(1, progress.op + 1) if not is_undone(op, progress.undone)]


def test_ops_that_count_after_undos_of_undos() -> None:
    at = {op: Progress(op) for op in range(1, 5)}
    undo(at, 2)
    assert standing(at[5]) == [1, 2, 5]
    at[6] = replace(at[5], op=6)
    undo(at, 4)
    assert standing(at[7]) == [1, 2, 3, 4, 7]
    undo(at, 6)
    assert standing(at[8]) == [1, 2, 5, 6, 8]
    undo(at, 0)
    assert standing(at[9]) == [9]


@pytest.mark.parametrize("back_to", [1, 3])
def test_load_branches_go_back_to_what_they_were(back_to: int) -> None:
    first, grown, reload = load(11, 1, 1), load(12, 3, 1), load(13, 4, 2)
    mirror = Kept(first, grown, reload, load_1=grown, load_2=reload)
    then = Progress(back_to, (Generation(1),)).after_undoing(6, back_to=back_to)
    found = loads_at(mirror, TABLE, then, {1: back_to})  # type: ignore[arg-type]
    assert found == {"load-1": first.id if back_to == 1 else grown.id}


def test_a_reused_generation_does_not_get_the_load_of_the_undone_one() -> None:
    undone, again = load(13, 4, 2), load(14, 7, 2)
    progress = Progress(8, (Generation(1), Generation(2)), undone=((2, 5),))
    assert loads_at(Kept(undone, again), TABLE, progress, {2: 7}) == {"load-2": again.id}  # type: ignore[arg-type]
    emptied = Progress(8, (Generation(1), Generation(2, emptied=True)), undone=((2, 5),))
    assert loads_at(Kept(undone), TABLE, emptied, {}) == {"load-2": EMPTY.id}  # type: ignore[arg-type]
    with pytest.raises(DataError, match="generation 2 as op 7 left it is no longer kept"):
        loads_at(Kept(undone), TABLE, progress, {2: 7})  # type: ignore[arg-type]


def test_a_load_that_was_rewritten_for_an_erasure_stays() -> None:
    old, cleaned = load(11, 1, 1), load(15, 1, 1)
    mirror, progress = Kept(old, cleaned, load_1=cleaned), Progress(5, (Generation(1),))
    found = loads_at(mirror, TABLE, progress, {1: 1})  # type: ignore[arg-type]
    assert found == {"load-1": cleaned.id}


def test_an_undo_records_what_no_longer_applies() -> None:
    record = OpRecord(9, "undo", 0, Progress().after_undoing(9, back_to=0), back_to=0)  # type: ignore[arg-type]
    stamps = applied_stamps(record)
    assert stamps == {"lakeward.applied-op": "9", "lakeward.generation": "0", "lakeward.newest-commit": "0"}
    assert (undone_tag(9), undone_tag(9, "load-2")) == ("undone-9", "undone-9-load-2")


def test_a_fenced_file_counts_as_not_read() -> None:
    summary = FileSummary("a.csv", FileClass.CHANGES, "2024", FileIdentity(1, 2), "hash", rows=5)
    fenced = FileRecord(summary, Disposition.FENCED)
    assert not fenced.was_read and FileRecord(summary, Disposition.CONSUMED).was_read
    assert FileRecord.from_json(fenced.to_json()) == fenced
    assert fenced.ledger_entry(7, 2).disposition is Disposition.FENCED


def row(op: int, disposition: str, content: str, generation: int = 1) -> tuple[str, int, int, str]:
    summary = FileSummary("LOAD.csv", FileClass.LOAD, "", FileIdentity(1, op), content, rows=5)
    return ("LOAD.csv", op, generation, FileRecord(summary, Disposition(disposition)).to_json())


# As after an undo of everything and a run.
AGAIN = Progress(5, undone=((1, 2),))
READ, COPIED = row(1, "consumed", "a"), row(3, "redelivered", "c")


@pytest.mark.parametrize(
    ("rows", "before", "back_to", "kept"),
    [
        ([READ, COPIED], Progress(4), 2, "c"),
        ([READ, row(2, "redelivered", "b"), COPIED], Progress(4), 2, "c"),
        ([READ, COPIED], Progress(4), 0, None),
        ([READ, row(2, "consumed", "b", 2), row(3, "redelivered", "c", 2)], Progress(4), 1, None),
        ([READ, row(2, "redelivered", "b"), COPIED], Progress(4), 3, None),
        # An undo repeated it, and is undone itself.
        ([READ, COPIED, row(5, "redelivered", "c")], Progress(5, undone=((2, 4),)), 4, "c"),
        # The reload of op 2 counts again, and the copy of the first load does not contain it.
        ([READ, row(2, "consumed", "b", 2), row(4, "redelivered", "c")], Progress(4, undone=((2, 2),)), 2, None),
        # It had been undone before the copy came.
        ([READ, row(2, "consumed", "b", 2), row(4, "redelivered", "c")], Progress(4, undone=((2, 2),)), 3, "c"),
        # All was undone, and the same content read again: by itself, and as an erasure had left it.
        ([READ, row(4, "consumed", "a"), row(5, "redelivered", "c")], AGAIN, 1, "c"),
        ([READ, row(2, "redelivered", "b"), row(4, "consumed", "b"), row(5, "redelivered", "c")], AGAIN, 1, "c"),
        ([READ, row(4, "consumed", "b"), row(5, "redelivered", "c")], AGAIN, 1, None),
    ],
    ids=[
        "copied", "newest", "read anew", "of a reload", "still known", "redone", "reload again", "reload undone",
        "read twice", "read as rewritten", "read with other content",
    ],
)  # fmt: skip
def test_notes_on_a_file_outlive_the_op_that_recorded_them(
    rows: list[tuple[str, int, int, str]], before: Progress, back_to: int, kept: str | None
) -> None:
    # The progress that the op gone back to left.
    then = Progress(back_to, undone=((2, 2),) if before.undone == ((2, 2),) and back_to == 3 else ())
    found = kept_note(rows, before, then.after_undoing(before.op + 1, back_to=back_to))
    assert (found.summary.content_hash if found else None) == kept
    if found is not None:
        assert found.ledger_entry(9, 7).generation == 1, "the file's generation is not that of the undo"
        assert FileRecord.from_json(found.to_json()) == found
