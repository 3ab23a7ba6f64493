from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeward.columns import parse_ddl
from lakeward.config import parse_config
from lakeward.formats.base import ReadSpec
from lakeward.formats.dms.listing import list_files
from lakeward.formats.dms.reader import read_file
from lakeward.model import FileClass
from lakeward.storage.landing import Landing
from lakeward.testing.replication import (
    Deliver,
    Expire,
    Flush,
    FullLoad,
    HoldBack,
    Pause,
    Recopy,
    Reload,
    Replication,
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
from lakeward.testing.replication.strategies import replication_options, replication_steps

FOLDER = "sales/product"
SOME = Write(((1, "a"), (2, "b"), (3, "c")))


class Reader:
    """Reads what lands with Lakeward's own readers, and replays it in a few lines of plain Python."""

    def __init__(self, replication):
        config = parse_config(replication.configuration(), base=replication.root)
        self.replication = replication
        self.storage = Landing(replication.root)
        self.settings = config.tables[str(replication.table.id)]
        self.spec = ReadSpec(replication.table.id, parse_ddl("id int, name string"), self.settings)
        self.loads, self.changes = {}, {}

    def look(self):
        """Read every whole file that landing shows now, once for each load that it belongs to."""
        listed = {file.path: file for file in list_files(self.storage, FOLDER, self.settings)}
        assert listed.keys() == self.replication.landed.keys()
        for path, file in listed.items():
            truly = (self.replication.landed[path].generation, file.time, path)
            target = self.loads if file.file_class is FileClass.LOAD else self.changes
            if path not in self.replication.half and truly not in target:
                target[truly] = self.records(file)

    def records(self, file):
        *batches, last = read_file(self.storage, file, self.spec)
        assert last.to_pylist()[0]["_lw_kind"] == "file"
        found = [record for batch in batches for record in batch.to_pylist()]
        assert {record["_lw_kind"] for record in found} == {"change"}
        return sorted(found, key=lambda record: record["_lw_row"])

    def replay(self):
        """Fold the load rows of the visible load, then its changes in the order of files and rows."""
        number = self.replication.visible.number
        rows = [row for truly, part in self.loads.items() if truly[0] == number for row in part]
        state = [(row["id"], row["name"]) for row in rows]
        later = sorted((truly[1:], rows) for truly, rows in self.changes.items() if truly[0] >= number)
        for _, changes in later:
            for row in changes:
                if not self.replication.options.keyless:
                    state = [pair for pair in state if pair[0] != row["id"]]
                if row["_lw_operation"] != "D":
                    state.append((row["id"], row["name"]))
        return sorted(state)


@contextmanager
def replicating(**options):
    with tempfile.TemporaryDirectory() as folder:
        yield Replication(Path(folder), ReplicationOptions(**options))


@pytest.fixture
def replication(tmp_path):
    return Replication(tmp_path)


def truth(replication):
    return [(row["id"], row["name"]) for row in replication.truth()]


def names(replication):
    return sorted(path.removeprefix(f"{FOLDER}/") for path in replication.landed)


def content(replication, name):
    return (replication.root / FOLDER / name).read_bytes()


def parts(replication):
    return [file for file in replication.landed.values() if file.file_class is FileClass.LOAD]


def changes(replication):
    return [file for file in replication.landed.values() if file.file_class is FileClass.CHANGES]


@settings(max_examples=100, deadline=None)
@given(options=replication_options(op_in_load=False), steps=replication_steps(most_steps=10))
def test_files_of_any_story_read_back_and_replayed_equal_its_truth(options, steps):
    with replicating(**vars(options)) as replication:
        reader = Reader(replication)
        for step in steps:
            replication.play(step)
            reader.look()
            assert replication.visible is None or reader.replay() == truth(replication)
            if isinstance(step, RunLakeward):
                replication.mark_read()
        replication.play(ResumeLoad(), Flush())
        assert replication.is_whole
        assert replication.unrecorded or truth(replication) == sorted(replication.source.items())


@given(replication_steps(without=(Restart, Expire, HoldBack, TruncateSource, Touch, Recopy)))
def test_kinds_of_steps_can_be_left_out(steps):
    kinds = {type(step) for step in steps}
    assert kinds <= {Write, Flush, FullLoad, Reload, ResumeLoad, ResumeTask, Pause, Deliver, RunLakeward}


@given(replication_steps(), st.data())
def test_a_story_stays_playable_when_steps_are_taken_out(steps, data):
    kept = data.draw(st.lists(st.booleans(), min_size=len(steps), max_size=len(steps)))
    with replicating() as replication:
        replication.play(*(step for step, keep in zip(steps, kept, strict=True) if keep))


def test_the_clock_orders_commits_load_rows_and_files_as_dms_does(replication):
    during = ((1, "read before"), (3, "read after"), (4, "new"))
    replication.play(SOME, FullLoad(parts=2, during=during), Write(((2, "later"),)), Flush())
    (file,) = changes(replication)
    loaded = {row["id"]: row["name"] for part in parts(replication) for row in part.load}
    assert loaded == {1: "a", 2: "b", 3: "read after"}
    assert [change.key[0] for change in file.changes] == [1, 3, 4, 2]
    times = [time for part in parts(replication) for time in part.load_times]
    assert times == sorted(times) and len(set(times)) == 3
    commits = [change.commit for change in file.changes]
    assert times[1] < commits[0] < commits[1] < times[2] < commits[-1] < file.written
    assert all(part.written < file.written for part in parts(replication))
    assert replication.loads[0].cut < file.time
    assert truth(replication) == [(1, "read before"), (2, "later"), (3, "read after"), (4, "new")]


@pytest.mark.parametrize(
    ("pending", "sequence"), [("flushed", ["before", "load"]), ("carried", ["load", "after"]), ("dropped", ["load"])]
)
def test_pending_changes_at_a_reload_are_written_carried_or_dropped(replication, pending, sequence):
    replication.play(SOME, FullLoad(), Write(((1, "x"),)), Reload(pending=pending), Flush())
    cut = replication.loads[-1].cut
    found = ["before" if file.time < cut else "after" for file in changes(replication)]
    assert found == [step for step in sequence if step != "load"]
    assert [file.generation for file in changes(replication)] == [1 if entry == "before" else 2 for entry in found]
    assert truth(replication) == [(1, "x"), (2, "b"), (3, "c")]


@pytest.mark.parametrize("timestamp_column", [None, "cdc_timestamp"])
def test_contents_that_return_have_the_same_bytes_only_without_a_timestamp_column(tmp_path, timestamp_column):
    replication = Replication(tmp_path, ReplicationOptions(timestamp_column=timestamp_column, form="csv.gz"))
    versions = []
    for text in ("a", "b", "a"):
        replication.play(Write(((1, text),), captured=False), Reload())
        versions.append(content(replication, "LOAD00000001.csv.gz"))
    assert versions[0] != versions[1]
    assert (versions[0] == versions[2]) == (timestamp_column is None)
    assert [part.generation for part in parts(replication)] == [3]


def test_a_reload_replaces_parts_of_its_names_and_leaves_every_other_file(replication):
    replication.play(SOME, FullLoad(parts=3), Write(((1, "x"),)), Flush(), Reload(parts=2))
    generations = {name: replication.landed[f"{FOLDER}/{name}"].generation for name in names(replication)}
    change_file = changes(replication)[0].path.rpartition("/")[2]
    assert generations == {
        change_file: 1, "LOAD00000001.csv": 2, "LOAD00000002.csv": 2, "LOAD00000003.csv": 1,
    }  # fmt: skip
    replication.play(Reload(form="csv.gz"), Reload(form="parquet", segments="prefix", parts=3))
    assert {"LOAD00000001.csv", "LOAD00000001.csv.gz", "SEGMENT1_LOAD00000001.parquet"} < set(names(replication))
    assert {"SEGMENT2_LOAD00000001.parquet", "SEGMENT1_LOAD00000002.parquet"} < set(names(replication))
    assert content(replication, "LOAD00000001.csv.gz").startswith(b"\x1f\x8b")
    assert content(replication, "SEGMENT1_LOAD00000001.parquet").startswith(b"PAR1")


def test_a_restart_clears_its_target_and_what_was_not_delivered(replication):
    replication.play(SOME, FullLoad(parts=3), Write(((1, "x"),)), HoldBack(), Flush(), Restart(parts=2), Deliver())
    assert names(replication) == ["LOAD00000001.csv", "LOAD00000002.csv"]
    assert truth(replication) == [(1, "x"), (2, "b"), (3, "c")]


def test_an_empty_load_writes_nothing_and_changes_follow(replication):
    replication.play(FullLoad(), RunLakeward())
    assert names(replication) == [] and truth(replication) == []
    replication.play(Write(((1, "a"),)), Flush())
    assert truth(replication) == [(1, "a")]


def test_a_reload_of_an_emptied_table_leaves_no_files(replication):
    replication.play(SOME, FullLoad(), Write(((1, None), (2, None), (3, None)), captured=False), Reload())
    assert len(replication.loads) == 2 and replication.visible is replication.loads[0]
    assert replication.unrecorded and len(truth(replication)) == 3


def test_a_resumed_load_adds_higher_numbers_of_other_keys_before_any_change_file(replication):
    replication.play(SOME, FullLoad(parts=3, unfinished=2), Write(((1, "x"), (3, "y"))), Flush())
    assert names(replication) == ["LOAD00000001.csv"] and not replication.is_whole
    replication.play(ResumeLoad())
    assert [(part.path[-12:], part.load[0]) for part in parts(replication)] == [
        ("00000001.csv", {"id": 1, "name": "a"}),
        ("00000002.csv", {"id": 2, "name": "b"}),
        ("00000003.csv", {"id": 3, "name": "y"}),
    ]
    replication.play(Flush())
    assert replication.is_whole and truth(replication) == [(1, "x"), (2, "b"), (3, "y")]


@pytest.mark.parametrize("removes_folder", [True, False])
def test_a_truncate_removes_the_folder_or_leaves_no_trace(replication, removes_folder):
    replication.play(SOME, FullLoad(), Write(((1, "x"),)), Flush(), TruncateSource(removes_folder))
    assert (replication.root / FOLDER).exists() != removes_folder
    replication.play(Write(((4, "new"),)), Flush())
    assert replication.source == {4: "new"}
    assert replication.unrecorded != removes_folder
    kept = [] if removes_folder else [(1, "x"), (2, "b"), (3, "c")]
    assert truth(replication) == [*kept, (4, "new")]


def test_changes_from_before_an_unrecorded_truncate_may_follow_the_load_after_it(replication):
    replication.play(FullLoad(during=((1, "a"),)), TruncateSource(removes_folder=False), Restart(pending="carried"))
    replication.play(Flush())
    assert replication.unrecorded and replication.source == {} and truth(replication) == [(1, "a")]


def test_only_files_that_were_read_and_are_old_enough_expire(replication):
    replication.play(SOME, FullLoad(parts=2))
    replication.mark_read()
    replication.play(Pause(60), Touch(1), Write(((1, "x"),)), Flush(), Expire(30))
    assert names(replication)[1:] == ["LOAD00000002.csv"]
    replication.play(Pause(60), Expire())
    assert [file.file_class for file in replication.landed.values()] == [FileClass.CHANGES]
    assert truth(replication) == [(1, "x"), (2, "b"), (3, "c")]


@pytest.mark.parametrize("kind", [Touch, Recopy])
@pytest.mark.parametrize("file", [None, 4])
def test_touches_and_copies_change_times_and_no_bytes(replication, kind, file):
    replication.play(SOME, FullLoad(parts=3))
    before = {name: (content(replication, name), replication.mtime(f"{FOLDER}/{name}")) for name in names(replication)}
    replication.play(kind(file))
    changed = []
    for name, (data, mtime) in before.items():
        path = replication.root / FOLDER / name
        assert path.read_bytes() == data
        found = datetime.fromtimestamp(path.stat().st_mtime_ns // 1_000_000 / 1000, tz=mtime.tzinfo)
        assert found == replication.mtime(f"{FOLDER}/{name}") >= mtime
        changed += [name] if found > mtime else []
    assert changed == (names(replication) if file is None else ["LOAD00000002.csv"])


def test_held_files_arrive_late_in_another_order_with_their_own_times_or_new_ones(replication):
    replication.play(SOME, FullLoad(parts=3), HoldBack(), Write(((1, "x"),)), Flush(), Reload(parts=3))
    assert truth(replication) == [(1, "a"), (2, "b"), (3, "c")]
    written = [file.path for file in replication.held]
    replication.play(Deliver(1, shuffle=1), Pause(), Deliver(1, new_times=True))
    arrived = [path for path in written if path not in {file.path for file in replication.held}]
    assert len(arrived) == 2 and not replication.is_whole
    ages = sorted(replication.now - replication.mtime(path) for path in arrived)
    assert ages[0] < timedelta(seconds=1) and ages[1] > timedelta(minutes=30)
    replication.play(Deliver())
    assert replication.is_whole and truth(replication) == [(1, "x"), (2, "b"), (3, "c")]


def test_changes_that_arrive_in_another_order_keep_their_place(replication):
    replication.play(SOME, FullLoad(), HoldBack(), Write(((1, "x"),)), Flush(), Write(((1, "y"),)), Flush())
    replication.play(Deliver(1, shuffle=3))
    assert truth(replication)[0] == (1, "y") and len(replication.held) == 1
    replication.play(Deliver())
    assert truth(replication)[0] == (1, "y")


def test_of_a_held_file_that_is_written_again_only_the_newest_version_arrives(replication):
    replication.play(SOME, FullLoad(), HoldBack())
    replication.play(Write(((1, "x"),), captured=False), Reload(), Write(((1, "y"),), captured=False), Reload())
    replication.play(Deliver())
    assert [(part.generation, part.load[0]["name"]) for part in parts(replication)] == [(3, "y")]


def test_a_slow_upload_shows_half_of_a_file_and_runs_between(replication):
    replication.play(SOME, FullLoad(parts=2))
    seen = []
    for step in slowly(Reload(parts=2), half=True):
        replication.play(step)
        if isinstance(step, RunLakeward):
            seen.append(sorted(path[-12:] for path in replication.half))
    assert seen == [["00000001.csv", "00000002.csv"], ["00000002.csv"], []]
    assert replication.visible is replication.loads[1] and replication.is_whole


@pytest.mark.parametrize("stamp", ["row", "load", "task"])
def test_load_rows_have_the_time_of_the_row_the_load_or_the_task(tmp_path, stamp):
    replication = Replication(tmp_path, ReplicationOptions(load_stamp=stamp))
    replication.play(SOME, FullLoad())
    first = parts(replication)[0].load_times
    replication.play(Pause(), Reload())
    second = parts(replication)[0].load_times
    assert len(set(second)) == (3 if stamp == "row" else 1)
    assert (first == second) == (stamp == "task")
    assert stamp != "load" or second[0] == replication.loads[1].started
    replication.play(Restart())
    assert min(parts(replication)[0].load_times) > max(second)


def test_commit_times_may_be_coarse_and_of_a_clock_that_is_behind(tmp_path):
    replication = Replication(tmp_path, ReplicationOptions(commit_unit_ms=1000, source_lag_ms=5000))
    replication.play(SOME, FullLoad(), Write(((1, "x"),)), Write(((1, "y"),)), Flush())
    (file,) = changes(replication)
    assert all(change.commit.microsecond == 0 for change in file.changes)
    assert file.changes[0].commit < max(parts(replication)[0].load_times)
    assert truth(replication)[0] == (1, "y")


def test_a_table_without_a_key_shows_only_inserts_and_no_row_twice(tmp_path):
    replication = Replication(tmp_path, ReplicationOptions(keyless=True))
    replication.play(
        SOME, FullLoad(during=((3, None), (4, "d"))), Write(((1, "x"), (5, "e"))), Reload(pending="carried")
    )
    assert [change.letter for file in changes(replication) for change in file.changes] == ["I", "I"]
    assert all(file.generation == 1 for file in changes(replication))
    assert truth(replication) == [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e")]


def test_an_abandoned_load_of_a_table_without_a_key_doubles_nothing(tmp_path):
    replication = Replication(tmp_path, ReplicationOptions(keyless=True))
    replication.play(SOME, FullLoad(parts=3, unfinished=1), Write(((4, "d"),)), Reload(pending="carried"), Flush())
    assert truth(replication) == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_loads_may_have_operations(tmp_path, form):
    replication = Replication(tmp_path, ReplicationOptions(op_in_load=True, form=form, change_sequence=True))
    reader = Reader(replication)
    replication.play(SOME, FullLoad(), Write(((1, None),)), Flush())
    reader.look()
    assert reader.replay() == truth(replication) == [(2, "b"), (3, "c")]


def test_what_is_not_a_step_is_refused(replication):
    with pytest.raises(TypeError, match="not a step"):
        replication.play("reload")


def test_the_same_story_writes_the_same_files(tmp_path):
    steps = (SOME, FullLoad(parts=2), Write(((1, "x"),)), Flush(), Reload(form="parquet"), Touch())
    trees = []
    for _ in range(2):
        replication = Replication(tmp_path / "landing")
        replication.play(*steps)
        trees.append(
            {name: (content(replication, name), replication.mtime(f"{FOLDER}/{name}")) for name in names(replication)}
        )
        shutil.rmtree(tmp_path / "landing")
    assert trees[0] == trees[1]
