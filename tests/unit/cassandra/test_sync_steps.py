"""A sync in a small world: exports and change sets are folders of JSON, tables are dictionaries, anything may crash."""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lakeward.cassandra.cql import TableName
from lakeward.cassandra.export_folder import ExportFolder, table_folder
from lakeward.cassandra.sync_rounds import SyncReport, SyncRound
from lakeward.cassandra.sync_steps import First, NextStep, Rules, SyncAction
from lakeward.errors import RefusedInputError, RetriableError
from lakeward.storage.filesystem import LocalFileSystem

START = datetime(2026, 11, 15, 10, 30, 20, tzinfo=UTC)
Rows = dict[int, str]


class CrashError(Exception):
    """The process is gone."""


@dataclass
class World:
    """A source, a target with its ledger, and a folder; ``crash_at`` counts the points where a process can die."""

    root: Path
    source: Rows = field(default_factory=dict)
    target: Rows = field(default_factory=dict)
    ledger: Mapping[str, Any] | None = None
    begun: Mapping[str, Any] | None = None
    time: datetime = START
    crash_at: int = 0
    passed: int = 0
    cluster: str = "prod"
    dropped: bool = False
    mixed: str | None = None
    lines: list[str] = field(default_factory=list)

    def point(self) -> None:
        self.passed += 1
        if self.passed == self.crash_at:
            raise CrashError

    # The target, as a sync uses it.
    def applied(self) -> Mapping[str, Any] | None:
        return self.ledger

    def under_way(self) -> Mapping[str, Any] | None:
        return self.begun

    def is_empty(self) -> bool:
        return not self.target

    def lost(self) -> str | None:
        is_emptied = self.ledger is not None and self.ledger["rows"] and not self.target
        return "what was written is gone" if self.dropped or is_emptied else None

    def unknown(self) -> str | None:
        return self.mixed

    # The work.
    def export(self) -> Mapping[str, Any]:
        self.point()
        folder = self.appear("snapshot", self.manifest())
        self.point()
        return {"folder": str(folder)}

    def manifest(self, **block: Any) -> Mapping[str, Any]:
        about = {"cassandra": {"cluster": self.cluster, **block}, "files": []}
        return {"id": f"e{self.time.isoformat()}", "rows": self.source, **about}

    def perform(self, step: NextStep) -> Mapping[str, Any]:
        self.point()
        self.time += timedelta(seconds=1)
        result = getattr(self, f"do_{step.action}")(step)
        self.point()
        return result

    def do_import(self, step: NextStep) -> Mapping[str, Any]:
        self.begun = self.identity(step)
        self.write(self.rows(step.export.folder), [])
        return self.finish(step)

    def do_assume(self, step: NextStep) -> Mapping[str, Any]:
        return self.finish(step)

    def do_record(self, step: NextStep) -> Mapping[str, Any]:
        return self.finish(step)

    def do_diff(self, step: NextStep) -> Mapping[str, Any]:
        assert step.past is not None
        past, current = self.rows(step.past.folder), self.rows(step.export.folder)
        changed = {key: value for key, value in current.items() if past.get(key) != value}
        deleted = sorted(past.keys() - current.keys())
        counts = {"inserted": 0, "changed": len(changed), "deleted": len(deleted)}
        parents = {"past": {"id": step.past.id}, "current": {"id": step.export.id}}
        document = {"kind": "change-set", "id": "c", **parents, "counts": counts, "set": changed, "deleted": deleted}
        return {"change_set": str(self.appear("incremental", document))}

    def do_apply(self, step: NextStep) -> Mapping[str, Any]:
        assert step.change_set is not None
        found = json.loads(Path(f"{step.change_set.folder}/_manifest.json").read_text())
        assert found["counts"]["changed"] or found["counts"]["deleted"]
        self.write({int(key): value for key, value in found["set"].items()}, found["deleted"])
        return self.finish(step)

    def write(self, values: Rows, deleted: list[int]) -> None:
        for key, value in values.items():
            self.target[key] = value
            self.point()
        for key in deleted:
            self.target.pop(key, None)

    def finish(self, step: NextStep) -> Mapping[str, Any]:
        self.ledger, self.begun, self.dropped, self.mixed = self.identity(step), None, False, None
        return {"rejected": 0}

    def identity(self, step: NextStep) -> Mapping[str, Any]:
        return {"location": step.export.folder, "id": step.export.id, "rows": len(self.rows(step.export.folder))}

    def rows(self, folder: str) -> Rows:
        found = json.loads(Path(f"{folder}/_manifest.json").read_text())["rows"]
        return {int(key): value for key, value in found.items()}

    def appear(self, kind: str, document: Mapping[str, Any]) -> Path:
        folder = self.root / kind / self.time.strftime("year=%Y/month=%m/day=%d/hour=%H/minute=%M")
        folder.mkdir(parents=True)
        (folder / "_manifest.json").write_text(json.dumps({"lakeward": "0", "files": [], **document}))
        self.point()
        (folder / "_SUCCESS").touch()
        return folder

    def wait(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)

    def sync(self, *, keep: int | None = None, source: bool = True, **rules: Any) -> SyncReport:
        given = Rules(source=self.cluster if source else None, **rules)
        return SyncRound(
            self.folder, self, self, given, keep, self.lines.append, lambda: self.time, self.wait
        ).run()  # fmt: skip

    @property
    def folder(self) -> ExportFolder:
        return ExportFolder(LocalFileSystem(), str(self.root))

    def forget_unfinished(self) -> None:
        """Do what the real steps do first: remove what a dead writer left."""
        for manifest in list(self.root.rglob("_manifest.json")):
            if not manifest.with_name("_SUCCESS").exists():
                manifest.unlink()
                manifest.parent.rmdir()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, source={1: "a", 2: "b", 3: "c"})


def actions(report: SyncReport) -> list[str]:
    return [str(step.action) for step in report.steps]


def test_the_first_round_imports_and_later_ones_apply_what_changed(world):
    report = world.sync()
    assert (actions(report), report.status, world.target) == (["export", "import"], "applied", world.source)
    world.time += timedelta(hours=1)
    world.source = {1: "a", 2: "x", 4: "d"}
    report = world.sync()
    assert (actions(report), world.target) == (["export", "diff", "apply"], world.source)
    assert report.holds["id"] == world.ledger["id"]


def test_nothing_changed_is_recorded_and_nothing_applied(world):
    world.sync()
    world.time += timedelta(hours=1)
    report = world.sync()
    assert (actions(report), report.status) == (["export", "diff", "record"], "nothing changed")
    assert "minute=30" in report.holds["location"] and "hour=11" in report.holds["location"]


def changes() -> Iterator[Rows]:
    yield {1: "a", 2: "x", 4: "d"}
    yield {1: "a", 2: "y"}


@pytest.mark.parametrize("crash", range(1, 28))
def test_a_round_that_dies_anywhere_is_finished_by_the_next(world, crash):
    """Three rounds, one crash: the target ends as the source, and nothing is left half done."""
    world.crash_at = crash
    for source in ({1: "a", 2: "b", 3: "c"}, *changes()):
        world.source = source
        with suppress(CrashError):
            world.sync()
        world.time += timedelta(minutes=7)
        world.forget_unfinished()
    assert world.passed >= crash
    world.crash_at = 0
    report = world.sync()
    assert world.target == world.source, actions(report)
    assert world.begun is None
    assert world.sync(source=False).steps == ()


def test_unfinished_steps_are_finished_before_the_next_export(world):
    world.sync()
    world.time += timedelta(hours=1)
    world.source = {1: "z"}
    # Dies in the middle of the apply.
    world.passed, world.crash_at = 0, 8
    with pytest.raises(CrashError):
        world.sync()
    world.crash_at = 0
    world.time += timedelta(hours=1)
    report = world.sync()
    assert actions(report)[0] == "apply"
    assert actions(report)[1:] == ["export", "diff", "record"]
    assert world.target == {1: "z"}


def test_a_half_done_first_import_is_finished_with_the_same_export(world):
    world.crash_at = 6
    with pytest.raises(CrashError):
        world.sync()
    assert world.begun is not None and 0 < len(world.target) < 3
    # Another export comes in between, without a row that is in the target already.
    world.crash_at = 0
    world.source = {2: "b"}
    world.time += timedelta(hours=1)
    world.export()
    report = world.sync(source=False)
    assert actions(report) == ["import", "diff", "apply"]
    assert world.target == {2: "b"}


def test_a_target_with_rows_of_unknown_origin_is_refused_before_the_export(world):
    world.target = {9: "?"}
    with pytest.raises(RefusedInputError, match="already has rows") as refused:
        world.sync()
    assert "--first assume" in refused.value.hint
    assert not (world.root / "snapshot").exists()
    assert actions(world.sync(first=First.IMPORT)) == ["export", "import"]
    # What was decided once needs no option any more.
    world.time += timedelta(hours=1)
    assert actions(world.sync()) == ["export", "diff", "record"]


def test_a_target_can_be_assumed_to_equal_the_export(world):
    world.target = dict(world.source)
    report = world.sync(first=First.ASSUME)
    assert (actions(report), report.status) == (["export", "assume"], "assumed")


def test_an_export_that_is_gone_is_reported(world):
    world.sync()
    world.time += timedelta(hours=1)
    [manifest] = world.root.glob("snapshot/**/_manifest.json")
    manifest.with_name("_SUCCESS").unlink()
    with pytest.raises(RefusedInputError, match="is not in"):
        world.sync()


def test_the_second_export_of_a_minute_waits_for_the_next_one(world):
    world.sync()
    world.source = {1: "q"}
    report = world.sync()
    assert world.target == {1: "q"} and report.status == "applied"
    assert any("waiting" in line for line in world.lines)


def test_the_second_change_set_of_a_minute_waits_too(world):
    world.sync()
    world.time += timedelta(hours=1)
    # A repair of live tables, made in the very minute: it has no exports for parents.
    live = {"kind": "live"}
    counts = {"inserted": 1, "changed": 0, "deleted": 0}
    world.appear("incremental", {"kind": "change-set", "id": "r", "past": live, "current": live, "counts": counts})
    world.source = {1: "q"}
    assert actions(world.sync()) == ["export", "diff", "apply"]
    assert world.target == {1: "q"}
    assert [line for line in world.lines if "already has a change set; waiting" in line]


def test_old_exports_are_removed_and_the_one_that_the_target_holds_stays(world, monkeypatch):
    for hour in range(4):
        world.source[1] = str(hour)
        report = world.sync(keep=2)
        world.time += timedelta(hours=1)
    assert [path.split("/")[-6] for path in report.removed] == ["snapshot", "incremental"]
    folder = world.folder
    assert [name.split("/")[3] for name in folder.names()] == ["hour=12", "hour=13"]
    assert not (world.root / "snapshot/year=2026/month=11/day=15/hour=10").exists()
    # A process that dies while it removes leaves the rest to the next one.
    world.source[1] = "4"
    with monkeypatch.context() as broken:
        broken.setattr("lakeward.cassandra.export_folder.remove_files", lambda *_: (_ for _ in ()).throw(CrashError))
        with pytest.raises(CrashError):
            world.sync(keep=2)
    assert world.folder.names()[0].split("/")[3] == "hour=13"
    world.time += timedelta(hours=1)
    world.sync(keep=2)
    world.time += timedelta(hours=1)
    assert not (world.root / "snapshot/year=2026/month=11/day=15/hour=12").exists()
    # Exports that are not applied yet never go.
    for _ in range(3):
        world.export()
        world.time += timedelta(hours=1)
    monkeypatch.setattr("lakeward.cassandra.sync_rounds.next_step", lambda *_: None)
    world.sync(keep=1, source=False)
    assert [name.split("/")[3] for name in folder.names()] == ["hour=15", "hour=16", "hour=17", "hour=18"]


def test_files_of_others_among_old_exports_stay(world):
    def put(folder: str, *names: str) -> dict[Path, str]:
        found = {world.root / folder / name: f"theirs {name}" for name in names}
        for path, text in found.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return found

    theirs = {
        **put("snapshot/year=2020/month=01/day=01/hour=00/minute=00", "_SUCCESS", "part-00000.parquet", "deep/x"),
        **put("snapshot/year=2020/month=01/day=01/hour=00/minute=01", "_REMOVED", "part-00000.parquet"),
        **put("snapshot/year=2020/month=01/day=01/hour=00/minute=02", "_SUCCESS", "_manifest.json", ".hidden"),
        **put("incremental/year=2020/month=01/day=01/hour=00/minute=00", "_SUCCESS", "notes.txt"),
        **put("snapshot/year=2026/month=11/day=15/hour=10/minute=30", "deep/part-00000.parquet", "_schema.json"),
    }
    folder = world.folder
    for hour in range(4):
        world.source[1] = str(hour)
        (world.root / "snapshot").mkdir(exist_ok=True)
        world.time += timedelta(hours=1)
        world.export()
    first = next(name for name in folder.names() if name.startswith("year=2026"))
    theirs |= put(f"snapshot/{first}", "inside/notes.txt", "part-00000.parquet")
    removed = folder.remove_before(folder.names()[-1])
    assert {path: path.read_text() for path in theirs} == theirs
    assert f"{world.root}/snapshot/{first}" in removed
    assert not (world.root / "snapshot" / first / "_manifest.json").exists()
    assert not [path for path in removed if "year=2020" in path]


def test_exports_of_another_job_are_applied_in_order(world):
    for rows in ({1: "a"}, {1: "b"}, {1: "c", 2: "c"}):
        world.source = rows
        world.export()
        world.time += timedelta(minutes=5)
        # The first one is imported; two more wait before the next look.
        if rows == {1: "a"}:
            assert actions(world.sync(source=False)) == ["import"]
    report = world.sync(source=False)
    assert actions(report) == ["diff", "apply", "diff", "apply"]
    assert world.target == {1: "c", 2: "c"}
    assert world.sync(source=False).status == "nothing to do"


def test_a_target_that_lost_its_rows_is_filled_again(world):
    """What is recorded survives a TRUNCATE, and a table that is dropped and created again."""
    world.sync()
    for is_dropped in (False, True):
        world.time += timedelta(hours=1)
        world.target, world.dropped = {}, is_dropped
        report = world.sync()
        assert (actions(report)[0], world.target) == ("import", world.source)
    # Nor need the export be there that it held.
    world.target, world.time = {}, world.time + timedelta(hours=1)
    for mark in list(world.root.glob("snapshot/**/_SUCCESS")):
        mark.unlink()
    assert actions(world.sync()) == ["export", "import"]
    assert world.target == world.source


def test_rows_that_had_a_time_to_live_may_be_gone(world):
    world.appear("snapshot", world.manifest(ttl=True))
    assert actions(world.sync(source=False)) == ["import"]
    world.target = {}
    assert world.sync(source=False).status == "nothing to do"


def test_an_import_that_leaves_nothing_is_reported(world, monkeypatch):
    """Rows that were deleted in the target, later than the export, stay deleted."""
    world.sync()
    world.target = {}
    monkeypatch.setattr(World, "write", lambda *_: None)
    with pytest.raises(RefusedInputError, match="still has no rows") as refused:
        world.sync(source=False)
    assert "--timestamp now" in refused.value.hint


def test_a_target_that_is_another_table_now_needs_a_decision(world):
    world.sync()
    world.time += timedelta(hours=1)
    world.target, world.dropped = {9: "?"}, True
    with pytest.raises(RefusedInputError, match="what was written is gone") as refused:
        world.sync()
    assert "--first assume" in refused.value.hint
    assert actions(world.sync(first=First.IMPORT)) == ["import", "export", "diff", "record"]


def test_a_target_that_holds_parts_of_two_states_needs_a_decision(world):
    world.sync()
    world.time += timedelta(hours=1)
    world.mixed = "what the target holds is not known: an old change set was forced"
    for source in (True, False):
        with pytest.raises(RefusedInputError, match="an old change set was forced") as refused:
            world.sync(source=source)
        assert "lakeward cassandra compare" in refused.value.hint
        assert "--timestamp" not in refused.value.hint
    assert len(world.folder.names()) == 1, "nothing was exported"
    assert actions(world.sync(first=First.ASSUME)) == ["assume", "export", "diff", "record"]
    world.time += timedelta(hours=1)
    world.mixed = "again"
    assert actions(world.sync(first=First.IMPORT))[0] == "import"


def test_exports_of_two_clusters_are_not_mixed(world):
    """A mistyped source must not write the rows and deletes of its own table."""
    world.sync()
    world.time += timedelta(hours=1)
    other = World(world.root, source={7: "other"}, cluster="test", time=world.time)
    for found in (other, World(world.root, ledger=world.ledger, target=world.target, cluster="test", time=world.time)):
        with pytest.raises(RefusedInputError, match="an export of the cluster prod, but those of test") as refused:
            found.sync()
        assert "--any-cluster" in refused.value.hint
    assert len(world.folder.names()) == 1
    # One that was put there nevertheless is not followed, with a source or without.
    other.export()
    for source in (True, False):
        with pytest.raises(RefusedInputError, match="an export of the cluster test, but those of prod"):
            world.sync(source=source)
    assert world.target == {1: "a", 2: "b", 3: "c"}
    assert actions(world.sync(source=False, any_cluster=True)) == ["diff", "apply"]


def test_the_clock_of_another_machine_may_be_ahead(world):
    world.sync()
    world.time += timedelta(minutes=10)
    world.source = {1: "later"}
    world.time += timedelta(minutes=2)
    world.export()
    world.time -= timedelta(minutes=2)
    assert actions(world.sync(source=False)) == ["diff", "apply"]
    assert len(list(world.root.glob("incremental/**/_SUCCESS"))) == 1
    # An export of now would be treated as an earlier one, without changes.
    with pytest.raises(RetriableError, match="which is in the future"):
        world.sync()
    assert len(world.folder.names()) == 2
    world.time += timedelta(days=2)
    world.export()
    world.time -= timedelta(days=2)
    with pytest.raises(RefusedInputError, match=r"more than 1 day.* in the future"):
        world.sync(source=False)


def test_only_whole_exports_of_whole_tables_are_followed(world):
    world.appear("snapshot", world.manifest(columns=["v"]))
    assert world.sync(source=False).steps == ()
    world.time += timedelta(hours=1)
    assert actions(world.sync()) == ["export", "import"]
    # Copied by a tool that takes the files of a folder in any order.
    half = world.root / "snapshot/year=2026/month=11/day=15/hour=12/minute=00"
    half.mkdir(parents=True)
    (half / "_SUCCESS").touch()
    world.time += timedelta(hours=1)
    text = json.dumps({**world.manifest(), "files": [{"path": "part-0", "size": 3}]})
    for name, content in (("_manifest.json", text[:20]), ("_manifest.json", text), ("part-0", "ab")):
        report = world.sync(source=False)
        assert (report.steps, list(report.left_out)) == ((), [str(half)]), name
        (half / name).write_text(content)
    assert [warning for warning in report.warnings if f"{half} is left out: 1 of 1 files are missing" in warning]
    (half / "part-0").write_text("abc")
    report = world.sync(source=False)
    assert (actions(report), report.warnings) == (["diff", "record"], [])


def test_a_part_in_the_target_is_not_a_past_of_the_whole(world):
    folder = world.appear("snapshot", world.manifest(where="v = 'a'"))
    world.target = {1: "a"}
    world.ledger = {"location": str(folder), "id": f"e{world.time.isoformat()}", "rows": 1}
    world.time += timedelta(hours=1)
    with pytest.raises(RefusedInputError, match="only a part of its table: the rows where v = 'a'"):
        world.sync()
    assert actions(world.sync(first=First.IMPORT)) == ["export", "import"]


def test_rejected_rows_end_the_round(world, monkeypatch):
    monkeypatch.setattr(World, "finish", lambda *_: {"rejected": 2})
    report = world.sync()
    assert (report.status, report.to_dict()["rejected"]) == ("rejected rows", 2)


def test_a_step_that_does_not_end_is_reported(world, monkeypatch):
    monkeypatch.setattr(World, "finish", lambda *_: {"rejected": 0})
    with pytest.raises(Exception, match="still pending"):
        world.sync()


def test_the_folder_of_a_table(tmp_path):
    assert table_folder(f"{tmp_path}/", TableName("shop", "orders")) == f"{tmp_path}/shop/orders"
    assert table_folder("s3://bucket/x/", TableName("shop", "orders")) == "s3://bucket/x/shop/orders"


def test_every_action_has_a_name():
    assert [str(action) for action in SyncAction] == ["export", "import", "assume", "diff", "apply", "record"]
