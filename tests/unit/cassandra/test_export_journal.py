"""An export under way on disk: which files count, who may work on it, and when it is resumed."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

import psutil
import pytest

from lakeward.cassandra import range_files
from lakeward.cassandra.export_folder import require_free_minute, snapshot_folder
from lakeward.cassandra.export_journal import ExportPlan, Journal, Ownership, is_too_old, require_same
from lakeward.cassandra.range_files import ArrowTaskFolder, RangeGroup, StoreTaskFolder, task_folder
from lakeward.cassandra.read_plan import TokenRange
from lakeward.errors import ConfigurationError, ConflictError, RefusedInputError
from lakeward.spark.marks import TaskError
from lakeward.storage.filesystem import LocalFileSystem

if TYPE_CHECKING:
    from pathlib import Path

_RANGES = [(TokenRange(-10, 0), TokenRange(0, 10)), (TokenRange(10, 20),)]
_WANTED = {"where": None, "columns": ["a"], "schema": {"columns": ["a"]}}


def _note(folder: Path, group: RangeGroup, file: str | None, size: int, **other: object) -> None:
    times = {"started": "a", "ended": "b"}
    note = {"export": group.export, "number": group.number, "file": file, "bytes": size, "rows": [1, 2], **times}
    (folder / group.note).write_text(json.dumps({**note, **other}))


def test_a_plan_is_read_back_and_damaged_notes_do_not_count(tmp_path: Path) -> None:
    journal = Journal(LocalFileSystem(), str(tmp_path))
    plan = ExportPlan.new(_WANTED, [*_RANGES, (TokenRange(20, 30),)])
    assert journal.plan() is None

    journal.begin(plan)
    folder = tmp_path / ".export-in-progress"
    whole, cut = (f"{group.name}-{'a' * 8}.parquet" for group in plan.groups[:2])
    (folder / whole).write_bytes(b"12345")
    (folder / cut).write_bytes(b"123")
    (folder / f".{cut}.{'b' * 8}").write_bytes(b"1")
    _note(folder, plan.groups[0], whole, 5)
    _note(folder, plan.groups[1], cut, 5)
    _note(folder, plan.groups[2], None, 0)

    assert journal.plan() == plan
    assert sorted(journal.done(plan)) == [0, 2]
    journal.remove()
    assert journal.plan() is None
    assert not folder.exists()


def test_files_of_others_in_the_folder_of_an_export_under_way_stay(tmp_path: Path) -> None:
    folder = tmp_path / ".export-in-progress"
    theirs = {folder / name: name for name in ("notes.txt", "deep/group-1.parquet", "group-00000.txt", ".hidden")}
    for path, text in theirs.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    journal, plan = Journal(LocalFileSystem(), str(tmp_path)), ExportPlan.new(_WANTED, _RANGES)
    journal.begin(plan)
    _note(folder, plan.groups[0], None, 0)
    journal.remove()
    assert {path: path.read_text() for path in folder.rglob("*") if path.is_file()} == theirs
    (folder / "plan.json").write_text("my plan for the week")
    with pytest.raises(RefusedInputError, match=r"plan\.json is not the plan of an export"):
        journal.plan()
    (tmp_path / ".export-owner.json").write_text("the owner of this folder is me")
    with pytest.raises(ConfigurationError, match="it is not replaced"):
        Ownership(LocalFileSystem(), str(tmp_path)).require_free()
    assert (tmp_path / ".export-owner.json").read_text() == "the owner of this folder is me"


def test_late_writes_of_a_process_considered_dead_are_not_treated_as_own(tmp_path: Path) -> None:
    journal, other = Journal(LocalFileSystem(), str(tmp_path)), ExportPlan.new(_WANTED, _RANGES)
    plan = ExportPlan.new(_WANTED, [(TokenRange(-10, 5), TokenRange(5, 10)), (TokenRange(10, 20),)])
    journal.begin(plan)
    folder = tmp_path / ".export-in-progress"

    _note(folder, other.groups[0], None, 0)
    assert journal.done(plan) == {}
    _note(folder, plan.groups[0], None, 0, export=other.id)
    assert journal.done(plan) == {}
    _note(folder, plan.groups[0], None, 0)
    assert list(journal.done(plan)) == [0]


def test_a_plan_of_an_unknown_version_does_not_count(tmp_path: Path) -> None:
    journal = Journal(LocalFileSystem(), str(tmp_path))
    (tmp_path / ".export-in-progress").mkdir()
    (tmp_path / ".export-in-progress" / "plan.json").write_text('{"version": 99}')

    assert journal.plan() is None


def test_another_request_is_refused_with_the_differences() -> None:
    plan = ExportPlan.new(_WANTED, _RANGES)

    require_same(plan, dict(_WANTED), "here")
    with pytest.raises(RefusedInputError, match='where was null, is now "a > 3"') as refused:
        require_same(plan, {**_WANTED, "where": "a > 3"}, "here")
    assert "--restart" in str(refused.value)
    with pytest.raises(RefusedInputError, match="the schema of the table has changed since"):
        require_same(plan, {**_WANTED, "schema": {"columns": ["a", "b"]}}, "here")


def test_an_export_of_yesterday_is_too_old() -> None:
    plan = ExportPlan.new(_WANTED, _RANGES)

    assert not is_too_old(plan)
    assert is_too_old(ExportPlan(plan.id, plan.started - timedelta(hours=25), plan.wanted, plan.groups))


def _owner(folder: Path, **known: object) -> None:
    usual = {"run": "other", "host": socket.gethostname(), "pid": os.getpid(), "heard": datetime.now(UTC).isoformat()}
    document = {**usual, "process_started": psutil.Process().create_time(), **known}
    (folder / ".export-owner.json").write_text(json.dumps(document))


def test_a_live_process_excludes_others_and_a_dead_one_does_not(tmp_path: Path) -> None:
    other = Ownership(LocalFileSystem(), str(tmp_path))
    with Ownership(LocalFileSystem(), str(tmp_path)) as own:
        with pytest.raises(ConflictError, match=f"process {os.getpid()} on"):
            other.require_free()
        own.require_own()
    other.require_free()
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass
    _owner(tmp_path, pid=gone.pid)
    other.require_free()
    # The number is in use again, by a process that began later.
    _owner(tmp_path, process_started=1.0)
    other.require_free()


def test_a_process_on_another_machine_is_dead_when_it_has_been_silent_for_long(tmp_path: Path) -> None:
    own = Ownership(LocalFileSystem(), str(tmp_path))

    _owner(tmp_path, host="elsewhere")
    with pytest.raises(ConflictError, match="on elsewhere"):
        own.require_free()
    _owner(tmp_path, host="elsewhere", heard=(datetime.now(UTC) - timedelta(minutes=11)).isoformat())
    own.require_free()


def test_an_export_taken_over_by_another_process_is_not_published(tmp_path: Path) -> None:
    with Ownership(LocalFileSystem(), str(tmp_path)) as own:
        _owner(tmp_path)
        with pytest.raises(ConflictError):
            own.require_own()
    assert (tmp_path / ".export-owner.json").exists()


@pytest.mark.parametrize("by_arrow", [False, True])
def test_a_file_appears_complete_or_not_at_all(tmp_path: Path, *, by_arrow: bool) -> None:
    folder = f"file://{tmp_path}/a"
    place = ArrowTaskFolder(folder) if by_arrow else StoreTaskFolder(LocalFileSystem(), folder)

    with place.new_file("whole") as stream:
        stream.write(b"12345")
        assert not (tmp_path / "a" / "whole").exists()
    with pytest.raises(TypeError), place.new_file("half") as stream:
        stream.write(None)

    assert (tmp_path / "a" / "whole").read_bytes() == b"12345"
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["whole"]


def test_a_place_that_tasks_cannot_write_to_is_refused() -> None:
    assert isinstance(task_folder(LocalFileSystem(), "/tmp/x"), StoreTaskFolder)
    with pytest.raises(ConfigurationError, match="tasks cannot write to ftp"):
        task_folder(_NoStore(), "ftp://host/x")  # type: ignore[arg-type]


class _NoStore:
    """A file system that only Spark supports."""


def test_a_full_disk_is_reported_from_within_a_task(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(range_files, "read_group", full)
    with pytest.raises(TaskError, match=f"RetriableError.*{tmp_path}: the disk is full"):
        range_files._in_task(cast("Any", None), StoreTaskFolder(LocalFileSystem(), str(tmp_path)), RangeGroup(0, ()))


def test_the_second_export_of_a_minute_is_refused_and_names_the_first(tmp_path: Path) -> None:
    moment = datetime(2026, 11, 15, 10, 30, 59, tzinfo=UTC)
    folder = snapshot_folder(str(tmp_path), moment)
    assert folder == f"{tmp_path}/snapshot/year=2026/month=11/day=15/hour=10/minute=30"
    require_free_minute(LocalFileSystem(), folder, "e")
    made = tmp_path / "snapshot" / "year=2026" / "month=11" / "day=15" / "hour=10" / "minute=30"
    made.mkdir(parents=True)
    (made / "_manifest.json").write_text(json.dumps({"id": "abc123", "created": "2026-11-15T10:30:58"}))
    with pytest.raises(RefusedInputError, match="exists already and is not overwritten"):
        require_free_minute(LocalFileSystem(), folder, "e")
    (made / "_SUCCESS").touch()

    with pytest.raises(RefusedInputError, match=r"minute=30 already holds the export abc123 of 2026-11-15T10:30:58;"):
        require_free_minute(LocalFileSystem(), folder, "e")
