"""What a commit that changes no row repeats: the newest of everything, and that of a load only at the load itself."""

from types import SimpleNamespace

from lakeward.iceberg.attempt import ROWS_STAMP
from lakeward.iceberg.define import APPLIED_STAMP, LOAD_STAMP, REPAIRED_STAMP
from lakeward.iceberg.metadata import Snapshot
from lakeward.mirror.op.apply import carried_stamps

LOAD = Snapshot(1, None, {APPLIED_STAMP: "1", LOAD_STAMP: "1", ROWS_STAMP: "9"})
REPAIR = Snapshot(2, 1, {APPLIED_STAMP: "2", REPAIRED_STAMP: "2", ROWS_STAMP: "9"})
DELETE = Snapshot(3, 2, {"operation": "delete"})
BATCH = Snapshot(4, 3, {APPLIED_STAMP: "3", ROWS_STAMP: "8"})


def carried(snapshot: Snapshot) -> dict[str, str]:
    kept = {found.id: found for found in (LOAD, REPAIR, DELETE, BATCH)}
    return carried_stamps(SimpleNamespace(snapshots=lambda: kept), snapshot.id)


def test_the_newest_of_each_is_repeated():
    assert carried(BATCH) == {APPLIED_STAMP: "3", ROWS_STAMP: "8", REPAIRED_STAMP: "2"}


def test_the_load_stamp_is_not_inherited():
    assert carried(LOAD)[LOAD_STAMP] == "1"
    assert LOAD_STAMP not in carried(REPAIR)
