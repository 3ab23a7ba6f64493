"""Which snapshots may go: never the state that held when the window began, nor what a branch or a tag needs."""

import pytest

from lakeward.iceberg.cleanup import expirable, is_iceberg_file, why_not_own
from lakeward.iceberg.metadata import Snapshot

APPLIED = "lakeward.applied-op"


def history(*times: int, stamped: tuple[int, ...] | None = None) -> dict[int, Snapshot]:
    """One snapshot after another, numbered from 1; those in ``stamped`` end an op, all if it is not given."""
    return {
        number: Snapshot(
            number,
            number - 1 if number > 1 else None,
            {APPLIED: str(number)} if stamped is None or number in stamped else {},
            at,
        )
        for number, at in enumerate(times, start=1)
    }


def gone(snapshots: dict[int, Snapshot], before: int, **references: dict[str, int]) -> list[int]:
    found = {"branches": {"main": max(snapshots)}, "tags": {}, **references}
    return expirable(snapshots, before_ms=before, stamps=(APPLIED,), **found)


def test_the_state_at_the_beginning_of_the_window_is_kept():
    assert gone(history(10, 20, 30, 40), before=35) == [1, 2]
    assert gone(history(10, 20, 30, 40), before=100) == [1, 2, 3]
    assert gone(history(10, 20, 30, 40), before=10) == []


def test_a_commit_in_the_middle_of_an_op_is_not_a_state():
    assert gone(history(10, 20, 30, 40, stamped=(1, 2, 4)), before=35) == [1]


def test_snapshots_of_tags_and_other_branches_stay():
    snapshots = history(10, 20, 30, 40, 50)
    assert gone(snapshots, before=100, tags={"kept": 2}) == [1, 3, 4]
    assert gone(snapshots, before=100, branches={"main": 5, "load-1": 3}) == [1, 2, 4]


def test_old_snapshots_outside_all_branches_expire():
    snapshots = history(10, 20, 30)
    left = Snapshot(9, 2, {}, 25)
    assert gone({**snapshots, 9: left}, before=28, branches={"main": 3}) == [1, 9]
    assert gone({**snapshots, 9: left}, before=22, branches={"main": 3}) == [1]


def test_a_commit_with_the_only_copy_of_a_stamp_is_kept():
    snapshots = history(10, 20, 30, stamped=(1,))
    assert gone(snapshots, before=100) == []


def test_a_folder_that_others_may_use_is_reported():
    own = "/lake/sales/product"
    assert why_not_own(own, "product", ["/lake/sales/product2", "/lake/sales_changes/product"]) is None
    assert why_not_own("s3://b/lake/sales.db/Product-1f2e/", "product", []) is None
    assert why_not_own("/lake/sales", "product", []) is not None
    assert why_not_own(own, "product", ["/lake/sales/product/inner"]) is not None
    assert why_not_own(own, "product", [own + "/"]) is not None


UUID = "0c2ba1b0-5f5c-4c7e-8f6b-4a4f1f4a2f10"


@pytest.mark.parametrize(
    ("path", "is_own"),
    [
        (f"data/00000-12-{UUID}-00001.parquet", True),
        (f"data/dept=Tools/sold_day=2020-01-01/00003-1-{UUID}-0-00001.parquet", True),
        (f"data/00000-12-{UUID}-00001-deletes.puffin", True),
        (f"metadata/snap-12-1-{UUID}.avro", True),
        (f"metadata/{UUID}-m0.avro", True),
        (f"metadata/00012-{UUID}.metadata.json", True),
        (f"data/backup/00000-12-{UUID}-00001.parquet", False),
        (f"elsewhere/00000-12-{UUID}-00001.parquet", False),
        (f"data/part-00000-{UUID}-c000.snappy.parquet", False),
        (f"metadata/notes-{UUID}.avro", False),
        ("data/notes.txt", False),
        (f"00000-12-{UUID}-00001.parquet", False),
    ],
)
def test_only_files_named_and_placed_as_by_iceberg_count_as_its_own(path, is_own):
    for location in ("/lake/sales/product", "s3://b/lake/product/"):
        assert is_iceberg_file(f"{location.rstrip('/')}/{path}", location) is is_own
        assert not is_iceberg_file(f"{location.rstrip('/')}2/{path}", location)
    assert is_iceberg_file(f"file:/lake/t/{path}", "file:///lake/t") is is_own
    assert is_iceberg_file(f"s3a://b/t/{path}", "s3://b/t") is is_own
