"""A folder appears complete or not at all, wherever its writer dies."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

from lakeward.errors import ConflictError, RefusedInputError
from lakeward.storage import claims
from lakeward.storage.claims import Claim, Writer
from lakeward.storage.filesystem import LocalFileSystem
from lakeward.storage.publish import publish_folder


class ObjectStore(LocalFileSystem):
    """A disk that behaves like a store without folders."""

    can_rename = False

    def move(self, source: str, target: str) -> None:
        msg = "an object store has no rename"
        raise AssertionError(msg)


OLD = datetime.now(UTC) - timedelta(days=2)
STORES = pytest.mark.parametrize("store", [LocalFileSystem(), ObjectStore()], ids=["disk", "objects"])


def fill(text: str) -> Callable[[Claim], tuple[str, str]]:
    def write(claim: Claim) -> tuple[str, str]:
        (Path(claim.folder) / f"{claim.store.signature}-0").write_text(text)
        return text, f'{{"text": "{text}"}}'

    return write


def content_of(folder: Path) -> str:
    [part] = folder.glob("part-*")
    return part.read_text()


def visible(root: Path) -> list[str]:
    """What a reader sees: nothing hidden, and folders only by what is in them."""
    files = [path.relative_to(root) for path in root.rglob("*") if path.is_file()]
    shown = sorted(str(file) for file in files if not any(part.startswith(".") for part in file.parts))
    return [re.sub("part-w[0-9a-f]{12}-", "part-", found) for found in shown]


@STORES
def test_a_folder_appears_with_manifest_and_mark(store, tmp_path):
    publish_folder(store, f"{tmp_path}/a/b/set", fill("x"))
    assert visible(tmp_path) == ["a/b/set/_SUCCESS", "a/b/set/_manifest.json", "a/b/set/part-0"]
    assert (tmp_path / "a/b/set/_manifest.json").read_text() == '{"text": "x"}'
    assert [path.name for path in (tmp_path / "a/b").iterdir()] == ["set"]


@STORES
def test_an_existing_folder_is_refused_and_stays(store, tmp_path):
    publish_folder(store, f"{tmp_path}/set", fill("x"))
    with pytest.raises(RefusedInputError, match="exists already"):
        publish_folder(store, f"{tmp_path}/set", fill("y"))
    assert content_of(tmp_path / "set") == "x"


@STORES
def test_a_failed_write_leaves_nothing(store, tmp_path):
    (tmp_path / "kept").mkdir()

    def write(claim: Claim) -> tuple[str, str]:
        fill("x")(claim)
        msg = "the disk is full"
        raise OSError(msg)

    with pytest.raises(OSError, match="the disk is full"):
        publish_folder(store, f"{tmp_path}/kept/a/b/set", write)
    assert visible(tmp_path) == []
    assert (tmp_path / "kept").is_dir()
    if store.can_rename:
        assert list((tmp_path / "kept").iterdir()) == []


@STORES
@pytest.mark.parametrize("step", ["_manifest.json", "_SUCCESS", "move"])
def test_a_crash_at_any_step_leaves_nothing_complete_and_the_next_writer_cleans_up(store, tmp_path, monkeypatch, step):
    class DeadError(BaseException):
        """The process is gone: nothing runs after it, not even clearing up."""

    def die(*_: object) -> None:
        raise DeadError

    write_text = type(store).write_text
    monkeypatch.setattr(
        type(store), "write_text",
        lambda self, path, text: die() if path.endswith(step) else write_text(self, path, text), raising=False,
    )  # fmt: skip
    monkeypatch.setattr(type(store), "move", die if step == "move" else type(store).move)
    monkeypatch.setattr(type(store), "remove", lambda self, folder, paths: None)
    monkeypatch.setattr(Writer, "here", classmethod(lambda cls: cls(socket.gethostname(), 2**22 + 1, 1.0, OLD)))
    if store.can_rename or step != "move":
        with pytest.raises(DeadError):
            publish_folder(store, f"{tmp_path}/set", fill("x"))
        assert "set/_SUCCESS" not in visible(tmp_path)
    monkeypatch.undo()
    if not store.can_rename and step == "move":
        return
    publish_folder(store, f"{tmp_path}/set", fill("y"))
    assert visible(tmp_path) == ["set/_SUCCESS", "set/_manifest.json", "set/part-0"]
    assert content_of(tmp_path / "set") == "y"
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


def claimed(folder: Path, writer: Writer) -> Path:
    """Make a hidden folder as a writer leaves it that was killed."""
    folder.mkdir()
    claim = Claim(LocalFileSystem(), str(folder), folder.name.rpartition("@")[2], writer, {"_manifest.json"})
    claim._write()
    (folder / f"part-w{claim.id}-00000-x.parquet").write_text("rows")
    return folder


def test_only_dead_writers_of_the_same_folder_are_cleared_away(tmp_path):
    here, gone, now = socket.gethostname(), 2**22 + 1, datetime.now(UTC)
    own = psutil.Process(os.getppid())
    dead = claimed(tmp_path / ".staging-set@aaaaaaaaaaa1", Writer(here, gone, 1.0, OLD))
    reused = claimed(tmp_path / ".staging-set@aaaaaaaaaaa2", Writer(here, own.pid, 1.0, OLD))
    long_gone = claimed(tmp_path / ".staging-set@aaaaaaaaaaa3", Writer("another-machine", 1, 1.0, OLD))
    kept = [
        claimed(tmp_path / ".staging-set@aaaaaaaaaaa4", Writer(here, own.pid, own.create_time(), OLD)),
        claimed(tmp_path / ".staging-set@aaaaaaaaaaa5", Writer("another-machine", 1, 1.0, now)),
        claimed(tmp_path / ".staging-other@aaaaaaaaaaa6", Writer(here, gone, 1.0, OLD)),
        tmp_path / ".staging-set@by-hand",
        tmp_path / ".staging-set@aaaaaaaaaaa7",
    ]
    for folder in kept[3:]:
        folder.mkdir()
        (folder / "part-00000-0c2ba1b0-5f5c-4c7e-8f6b-4a4f1f4a2f10-c000.parquet").write_text("theirs")
    before = {path: path.read_bytes() for folder in kept for path in folder.rglob("*")}
    theirs = dead / "deep/notes.txt"
    theirs.parent.mkdir()
    theirs.write_text("theirs")
    publish_folder(LocalFileSystem(), f"{tmp_path}/set", fill("x"))
    assert {path: path.read_bytes() for path in before} == before
    assert not reused.exists() and not long_gone.exists()
    assert [path for path in dead.rglob("*") if path.is_file()] == [theirs]
    assert theirs.read_text() == "theirs"


def test_a_folder_that_appears_meanwhile_is_not_replaced(tmp_path):
    def write(claim: Claim) -> tuple[str, str]:
        fill("mine")(claim)
        publish_folder(LocalFileSystem(), f"{tmp_path}/set", fill("theirs"))
        return "mine", "{}"

    with pytest.raises(RefusedInputError, match="exists already"):
        publish_folder(LocalFileSystem(), f"{tmp_path}/set", write)
    assert content_of(tmp_path / "set") == "theirs"


FOREIGN = (
    "notes.txt",
    "deep/er/part-00000.parquet",
    ".hidden",
    "_SUCCESS",
    "_manifest.json",
    "part-00000-0c2ba1b0-5f5c-4c7e-8f6b-4a4f1f4a2f10-c000.snappy.parquet",
    "part-waaaaaaaaaaaa-00000-0c2ba1b0-5f5c-4c7e-8f6b-4a4f1f4a2f10-c000.snappy.parquet",
    "_temporary/0/task/part-00000",
    "_lakeward-writing-aaaaaaaaaaaa.json",
    "_writing",
)


@STORES
@pytest.mark.parametrize("name", FOREIGN)
def test_files_of_others_are_refused_and_stay(store, tmp_path, name):
    theirs = tmp_path / "set" / name
    theirs.parent.mkdir(parents=True)
    theirs.write_text('{"not": "ours"}')
    with pytest.raises(RefusedInputError, match=r"not empty, and nothing shows|exists already") as refused:
        publish_folder(store, f"{tmp_path}/set", fill("x"))
    assert refused.value.exit_code == 2
    assert theirs.read_text() == '{"not": "ours"}'
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [theirs]


@STORES
def test_files_that_others_put_there_meanwhile_stay_and_are_not_listed(store, tmp_path):
    theirs = "part-00000-0c2ba1b0-5f5c-4c7e-8f6b-4a4f1f4a2f10-c000.snappy.parquet"

    def write(claim: Claim) -> tuple[str, str]:
        fill("x")(claim)
        (Path(claim.folder) / theirs).write_text("theirs")
        found = claims.written_files(claim.store, claim.folder)
        assert [entry.startswith("part-w") for entry in found] == [True]
        msg = "the disk is full"
        raise OSError(msg)

    with pytest.raises(OSError, match="the disk is full"):
        publish_folder(store, f"{tmp_path}/set", write)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [file.name for file in files] == [theirs]
    assert files[0].read_text() == "theirs"


def left_by_a_dead_writer(folder: Path, *, host: str, last_seen: datetime) -> list[Path]:
    folder.mkdir(parents=True)
    claim = Claim(ObjectStore(), str(folder), "a" * 12, Writer(host, 2**22 + 1, 1.0, last_seen), {"_manifest.json"})
    claim._write()
    names = ("_manifest.json", f"part-w{claim.id}-00000-x.parquet", f"_temporary/0/a/part-w{claim.id}-00001-x.parquet")
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("unfinished")
    return [folder / name for name in (*names, claim.file)]


def test_an_interrupted_write_in_place_is_cleared_away_by_the_next_one(tmp_path):
    left_by_a_dead_writer(tmp_path / "set", host=socket.gethostname(), last_seen=OLD)
    publish_folder(ObjectStore(), f"{tmp_path}/set", fill("y"))
    assert visible(tmp_path) == ["set/_SUCCESS", "set/_manifest.json", "set/part-0"]


def test_an_interrupted_write_in_place_with_files_of_others_is_refused_and_they_stay(tmp_path):
    left_by_a_dead_writer(tmp_path / "set", host=socket.gethostname(), last_seen=OLD)
    theirs = tmp_path / "set" / "part-00000-0c2ba1b0-5f5c-4c7e-8f6b-4a4f1f4a2f10-c000.snappy.parquet"
    theirs.write_text("theirs")
    with pytest.raises(RefusedInputError, match="nothing shows that Lakeward wrote what is there: part-00000-0c2"):
        publish_folder(ObjectStore(), f"{tmp_path}/set", fill("y"))
    assert theirs.read_text() == "theirs"


def test_a_writer_elsewhere_that_may_be_alive_is_not_disturbed(tmp_path):
    files = left_by_a_dead_writer(tmp_path / "set", host="another-machine", last_seen=datetime.now(UTC))
    with pytest.raises(ConflictError, match="is being written by process"):
        publish_folder(ObjectStore(), f"{tmp_path}/set", fill("y"))
    assert all(file.exists() for file in files)


def test_a_claim_that_was_copied_or_damaged_proves_nothing(tmp_path):
    left_by_a_dead_writer(tmp_path / "set", host=socket.gethostname(), last_seen=OLD)
    (tmp_path / "set").rename(tmp_path / "copy")
    before = {path: path.read_bytes() for path in (tmp_path / "copy").rglob("*") if path.is_file()}
    with pytest.raises(RefusedInputError, match="nothing shows that Lakeward wrote"):
        publish_folder(ObjectStore(), f"{tmp_path}/copy", fill("y"))
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize("path", ["../victim", "/etc/victim", "a/../../victim", "", "a//b", "a\\b", None, 7])
def test_documents_name_no_file_outside_of_their_folder(tmp_path, path):
    document = {"id": "x", "lakeward": "0", "files": [{"path": path, "size": 1}]}
    assert claims.listed_files(json.dumps(document)) is None
    victim, folder = tmp_path / "victim", tmp_path / "set"
    folder.mkdir()
    victim.write_text("v")
    (folder / "_manifest.json").write_text(json.dumps(document))
    assert claims.remove_listed(LocalFileSystem(), str(folder), json.dumps(document)) == ["_manifest.json"]
    assert victim.read_text() == "v"


@pytest.mark.parametrize("text", [None, "", "0", "[]", "{}", '{"id": "x", "files": []}', '{"id": 1, "lakeward": 1}'])
def test_a_manifest_that_is_not_of_this_program_proves_nothing(text):
    assert claims.listed_files(text) is None


@STORES
def test_only_files_that_a_manifest_lists_are_removed(store, tmp_path):
    folder = tmp_path / "set"
    for name, text in {"a=1/x.parquet": "own", "a=1/theirs": "t", "y.parquet": "changed", "_SUCCESS": ""}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    listed = [{"path": "a=1/x.parquet", "size": 3}, {"path": "y.parquet", "size": 3}, {"path": "gone", "size": 3}]
    text = json.dumps({"id": "x", "lakeward": "0", "files": listed})
    (folder / "_manifest.json").write_text(text)
    assert claims.remove_listed(store, str(folder), text) == ["a=1/theirs", "y.parquet"]
    assert visible(tmp_path) == ["set/a=1/theirs", "set/y.parquet"]


def test_a_store_removes_files_by_name_and_never_a_folder_with_content(tmp_path):
    store = LocalFileSystem()
    (tmp_path / "f/named-like-ours").mkdir(parents=True)
    (tmp_path / "f/named-like-ours/theirs").write_text("t")
    (tmp_path / "f/link").symlink_to(tmp_path / "f/named-like-ours")
    store.remove(f"{tmp_path}/f", ["named-like-ours", "link", "missing", "a/b/missing"])
    assert (tmp_path / "f/named-like-ours/theirs").read_text() == "t"
    assert not (tmp_path / "f/link").is_symlink()
    (tmp_path / "f/e/e").mkdir(parents=True)
    store.prune(f"{tmp_path}/f")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["f", "named-like-ours", "theirs"]
