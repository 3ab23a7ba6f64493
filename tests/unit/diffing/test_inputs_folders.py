"""Which folder is one whole snapshot, and which one a word picks."""

import pytest

from lakeward.diffing.stored.files import format_of_name, plain_files
from lakeward.diffing.stored.folders import Listing, choose, require_one, require_outside
from lakeward.errors import RefusedInputError
from lakeward.storage.filesystem import LocalFileSystem

MINUTE = "year=2026/month=11/day={day:02d}/hour=10/minute={minute:02d}"


def listing(*paths: str, location: str = "/data/x") -> Listing:
    return Listing(location, dict.fromkeys(paths, 1))


@pytest.mark.parametrize(
    "found",
    [
        listing("a.parquet", "b.parquet"),
        listing("dept=1/a.parquet", "dept=2/b.parquet"),
        listing("_SUCCESS", "a.parquet"),
        listing("_SUCCESS", "year=2026/month=1/a.parquet"),
        listing("_SUCCESS", "a.parquet", location="/data/day=01"),
        listing("_SUCCESS", "_manifest.json", "a.parquet"),
        listing("_SUCCESS", "a.parquet", "_attempt/_SUCCESS", ".staging/_manifest.json"),
    ],
)
def test_complete_snapshots(found):
    require_one(found, incomplete_ok=False)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (listing("_manifest.json", "a.parquet"), "has a _manifest.json but no _SUCCESS"),
        (listing("a.parquet", location="/data/minute=05"), "minute=05 is the name"),
        (listing("a.parquet", location="/data/version=7"), "version=7 is the name"),
        (listing("day=01/a.parquet"), "day=01 below it is the name"),
        (listing("a.parquet", "_temporary/0/b.parquet"), "_temporary"),
        (listing("a.parquet", "_lakeward-writing-0123456789ab.json"), "a writer that has not finished"),
    ],
)
def test_unfinished_snapshots_are_refused_by_default(found, reason):
    with pytest.raises(RefusedInputError, match=reason) as refused:
        require_one(found, incomplete_ok=False)
    assert "--incomplete-ok" in str(refused.value.hint)
    require_one(found, incomplete_ok=True)


def test_the_hint_omits_incomplete_ok_where_it_does_not_apply():
    for found in (listing("_manifest.json", "a.parquet"), listing("a.parquet", location="/data/minute=05")):
        with pytest.raises(RefusedInputError) as refused:
            require_one(found, incomplete_ok=None)
        assert "incomplete-ok" not in str(refused.value.hint)


@pytest.mark.parametrize("incomplete_ok", [False, True])
@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (listing("a.parquet", "_delta_log/00000.json"), "/data/x is or contains a Delta table"),
        (listing("_SUCCESS", "dept=1/a.parquet", ".hoodie/hoodie.properties"), "a Hudi table"),
        (listing("t/a.parquet", "t/_delta_log/00000.json"), "a Delta table"),
    ],
)
def test_folders_in_which_not_all_files_count_are_refused(found, reason, incomplete_ok):
    with pytest.raises(RefusedInputError, match=reason):
        require_one(found, incomplete_ok=incomplete_ok)


@pytest.mark.parametrize("incomplete_ok", [False, True])
def test_a_folder_above_several_is_refused_with_the_complete_ones(incomplete_ok):
    found = ["minute=01/_SUCCESS", "minute=02/_manifest.json", "minute=03/_SUCCESS", "minute=04/a.parquet"]
    with pytest.raises(RefusedInputError, match=r"2 complete snapshots: minute=01, minute=03\n") as refused:
        require_one(listing(*found), incomplete_ok=incomplete_ok)
    assert refused.value.hint == "/data/x/minute=03", "no word picks one, without a time"
    hour = "/data/x/year=2026/month=11/day=15/hour=10"
    with pytest.raises(RefusedInputError) as refused:
        require_one(listing(*found, location=hour), incomplete_ok=incomplete_ok)
    assert refused.value.hint == f"{hour}/minute=03   (or {hour}/latest)"


def test_nothing_is_proposed_that_would_be_refused():
    """Of two tables no word picks one, and a change set is no snapshot."""
    tables = [*snapshots((14, 5), prefix="a/snapshot/"), *snapshots((14, 5), prefix="b/snapshot/")]
    changes = snapshots((15, 5), prefix="c/incremental/")
    with pytest.raises(RefusedInputError) as refused:
        require_one(listing(*tables, *changes), incomplete_ok=None)
    hint = str(refused.value.hint)
    assert hint == f"/data/x/b/snapshot/{MINUTE.format(day=14, minute=5)}"
    with pytest.raises(RefusedInputError, match="several things") as refused:
        choose(listing(*tables, *changes), "latest")
    assert str(refused.value.hint) == "name one of them: /data/x/b/snapshot/latest"
    with pytest.raises(RefusedInputError) as refused:
        require_one(listing(*tables, *changes), incomplete_ok=None, is_change_set=True)
    assert str(refused.value.hint) == f"/data/x/c/incremental/{MINUTE.format(day=15, minute=5)}"
    with pytest.raises(RefusedInputError) as refused:
        require_one(listing(*tables), incomplete_ok=None, is_change_set=True)
    assert str(refused.value.hint).startswith("lakeward diff")
    with pytest.raises(RefusedInputError) as refused:
        require_one(listing(*changes), incomplete_ok=None)
    assert str(refused.value.hint).startswith("those are change sets: lakeward patch")


def test_files_that_spark_would_pass_over_are_refused():
    with pytest.raises(
        RefusedInputError, match=r"files in the folder sub, which is no partition .*: sub/b\.parquet"
    ) as refused:
        plain_files(LocalFileSystem(), "/data/x", {"a.parquet": 1, "dept=1/c.parquet": 1, "sub/b.parquet": 1}, None)
    assert str(refused.value.hint).endswith(": /data/x/sub")
    with pytest.raises(RefusedInputError, match="files in the folder dept=1/sub,"):
        plain_files(LocalFileSystem(), "/data/x", {"dept=1/sub/b.parquet": 1}, None)
    assert plain_files(LocalFileSystem(), "/data/x", {"dept=1/b.parquet": 1}, None).format == "parquet"


@pytest.mark.parametrize("location", ["/data/incremental", "/data"])
def test_change_sets_are_named_by_their_whole_path(location):
    below = "minute=01/_SUCCESS" if location.endswith("incremental") else "incremental/minute=01/_SUCCESS"
    with pytest.raises(RefusedInputError) as refused:
        require_one(listing(below, location=location), incomplete_ok=False, is_change_set=True)
    assert str(refused.value.hint) == "/data/incremental/minute=01"


def test_only_unfinished_snapshots_below():
    with pytest.raises(RefusedInputError, match="those below it were not finished: minute=02"):
        require_one(listing("minute=02/_manifest.json"), incomplete_ok=False)


def snapshots(*moments: tuple[int, int], prefix: str = "snapshot/") -> list[str]:
    return [f"{prefix}{MINUTE.format(day=day, minute=minute)}/_SUCCESS" for day, minute in moments]


def test_words_pick_a_snapshot():
    unfinished = f"snapshot/{MINUTE.format(day=17, minute=1)}/a.parquet"
    increments = snapshots((18, 1), prefix="incremental/")
    found = listing(*snapshots((14, 5), (15, 7), (15, 30), (16, 2)), unfinished, *increments)
    assert choose(found, "latest") == f"snapshot/{MINUTE.format(day=16, minute=2)}"
    assert choose(found, "previous") == f"snapshot/{MINUTE.format(day=15, minute=30)}"
    assert choose(found, "2026-11-14") == f"snapshot/{MINUTE.format(day=14, minute=5)}"
    assert choose(found, "2026-11-15T10:07") == f"snapshot/{MINUTE.format(day=15, minute=7)}"
    with pytest.raises(RefusedInputError, match="2 complete snapshots of 2026-11-15"):
        choose(found, "2026-11-15")
    with pytest.raises(RefusedInputError, match="no complete snapshot of 2026-11-17"):
        choose(found, "2026-11-17")


def test_a_result_beside_the_snapshots_is_not_listed_among_them():
    found = listing("restored/_SUCCESS", *snapshots((14, 5), (15, 7)))
    assert choose(found, "latest") == f"snapshot/{MINUTE.format(day=15, minute=7)}"
    with pytest.raises(RefusedInputError, match=r"several things: \., a") as refused:
        choose(listing("version=2020-11-14/_SUCCESS", "a/version=2020-11-14/_SUCCESS"), "latest")
    assert str(refused.value.hint).endswith("/data/x/a/latest")


def test_words_are_recognised_in_any_folder_of_the_path():
    found = listing("hour=10/minute=01/_SUCCESS", "hour=10/minute=02/_SUCCESS", location="/d/year=2026/month=11/day=15")
    assert choose(found, "2026-11-15T10:01") == "hour=10/minute=01"
    assert choose(found, "latest") == "hour=10/minute=02"


def test_published_versions_are_picked_by_their_labels():
    labels = ("2020-11-14", "2020-11-15", "2020-11-15T103000Z")
    found = listing(*[f"version={label}/{mark}" for label in labels for mark in ("_SUCCESS", "_manifest.json")])
    assert choose(found, "latest") == "version=2020-11-15T103000Z"
    assert choose(found, "2020-11-14") == "version=2020-11-14"
    with pytest.raises(RefusedInputError, match="the time of version=op-4"):
        choose(listing("version=op-4/_SUCCESS"), "latest")


def test_words_pick_nothing_from_an_empty_folder_or_several_tables():
    with pytest.raises(RefusedInputError, match="no complete snapshot"):
        choose(listing("a.parquet"), "latest")
    with pytest.raises(RefusedInputError, match="one complete snapshot only"):
        choose(listing("version=2020-11-14/_SUCCESS"), "previous")
    with pytest.raises(RefusedInputError, match=r"several things: a\.b, a\.c"):
        choose(listing("a.b/version=2020-11-14/_SUCCESS", "a.c/version=2020-11-14/_SUCCESS"), "latest")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a/part-0.snappy.parquet", "parquet"),
        ("a.csv.gz", "csv"),
        ("A.JSONL", "json"),
        ("x.orc", "orc"),
        ("part-00000", None),
        ("v1.2/data", None),
        ("a.txt", None),
    ],
)
def test_formats_by_name(name, expected):
    assert format_of_name(name) == expected


def test_nothing_is_written_into_a_snapshot():
    for to in ("/exports", "/exports/monday2", "/result"):
        require_outside(to, ["/exports/monday", "s3://bucket/exports/tuesday/"])
    for to in ("/exports/monday", "/exports/monday/", "/exports/monday/changes", "s3://bucket/exports/tuesday"):
        with pytest.raises(RefusedInputError, match="which could no longer be read"):
            require_outside(to, ["/exports/monday", "s3://bucket/exports/tuesday/"])


# Where the published recipe has put snapshots and change sets, in the order of its versions.


def test_snapshots_and_change_sets_of_a_day_are_told_apart():
    found = listing(
        "2023-08-01/full-snapshot/_SUCCESS",
        "2023-08-02/full-snapshot/_SUCCESS",
        "2023-08-02/incremental-snapshot/_SUCCESS",
        "2023-08-02/patched/_SUCCESS",
        "2023-08-03/full-snapshot/part-0.json",
    )
    assert choose(found, "latest") == "2023-08-02/full-snapshot"
    assert choose(found, "previous") == "2023-08-01/full-snapshot"
    assert choose(found, "2023-08-01") == "2023-08-01/full-snapshot"
    with pytest.raises(RefusedInputError) as refused:
        require_one(found, incomplete_ok=False)
    assert "2023-08-02/full-snapshot" in str(refused.value.hint)
    day = Listing("/data/2023-08-02", dict.fromkeys(("full-snapshot/_SUCCESS", "incremental-snapshot/_SUCCESS"), 0))
    for is_change_set, name in ((True, "incremental-snapshot"), (False, "full-snapshot")):
        with pytest.raises(RefusedInputError, match="holds 2 complete") as refused:
            require_one(day, incomplete_ok=False, is_change_set=is_change_set)
        assert str(refused.value.hint).startswith(f"/data/2023-08-02/{name}")


def test_snapshots_are_named_by_their_time():
    found = listing(
        "shop/orders/snapshot/2023-10-25T14:09:00Z/_SUCCESS",
        "shop/orders/snapshot/2023-10-25T19:57:00Z/_SUCCESS",
        "shop/orders/snapshot/2023-10-26T19:57:00Z/part-0.json",
    )
    assert choose(found, "latest") == "shop/orders/snapshot/2023-10-25T19:57:00Z"
    assert choose(found, "2023-10-25T14:09") == "shop/orders/snapshot/2023-10-25T14:09:00Z"
    with pytest.raises(RefusedInputError, match="several things"):
        choose(listing("a/b/snapshot/2023-10-25T14:09:00Z/_SUCCESS", "a/c/snapshot/2023-10-25/_SUCCESS"), "latest")


@pytest.mark.parametrize(
    ("location", "is_refused"),
    [
        ("/data/2023-08-02/full-snapshot", True),
        ("/data/2023-08-02/incremental-snapshot", True),
        ("/data/2023-08-02", False),
        ("/data/snapshot/2023-10-25T14:09:00Z", True),
        ("/data/2023-10-25T14:09", True),
    ],
)
def test_one_without_success_is_unfinished_where_only_snapshots_have_such_names(location, is_refused):
    found = Listing(location, {"part-0.json": 1})
    if is_refused:
        with pytest.raises(RefusedInputError, match="is the name of a snapshot's folder"):
            require_one(found, incomplete_ok=False)
    else:
        require_one(found, incomplete_ok=False)


def test_versions_of_a_schedule_are_chosen_by_their_day_or_hour_also_in_another_folder():
    days = listing("version=2020-11-14.2/_SUCCESS", "version=2020-11-15/_SUCCESS")
    assert (choose(days, "previous"), choose(days, "2020-11-15")) == ("version=2020-11-14.2", "version=2020-11-15")
    hours = listing("version=2020-11-14T09Z/_SUCCESS", "version=2020-11-14T08Z.10/_SUCCESS")
    assert (choose(hours, "latest"), choose(hours, "2020-11-14T08:00")) == (
        "version=2020-11-14T09Z", "version=2020-11-14T08Z.10",
    )  # fmt: skip
