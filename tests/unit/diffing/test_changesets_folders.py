"""A folder appears complete or not at all, wherever its writer dies."""

from __future__ import annotations

import os
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lakeward.errors import RefusedInputError
from lakeward.lake import folders
from lakeward.lake.folders import appear
from lakeward.lake.stores import LocalStore


class ObjectStore(LocalStore):
    """A disk that behaves like a store without folders."""

    can_rename = False

    def move(self, source: str, target: str) -> None:
        msg = "an object store has no rename"
        raise AssertionError(msg)


STORES = pytest.mark.parametrize("store", [LocalStore(), ObjectStore()], ids=["disk", "objects"])


def fill(text: str):
    def write(folder: str) -> str:
        Path(folder).mkdir(parents=True)
        (Path(folder) / "part-0").write_text(text)
        return f'{{"text": "{text}"}}'

    return write


def visible(root: Path) -> list[str]:
    """What a reader sees: nothing hidden, and folders only by what is in them."""
    files = [one.relative_to(root) for one in root.rglob("*") if one.is_file()]
    return sorted(str(one) for one in files if not any(part.startswith(".") for part in one.parts))


@STORES
def test_a_folder_appears_with_manifest_and_mark(store, tmp_path):
    appear(store, f"{tmp_path}/a/b/set", fill("x"))
    assert visible(tmp_path) == ["a/b/set/_SUCCESS", "a/b/set/_manifest.json", "a/b/set/part-0"]
    assert (tmp_path / "a/b/set/_manifest.json").read_text() == '{"text": "x"}'
    assert [one.name for one in (tmp_path / "a/b").iterdir()] == ["set"]


@STORES
def test_a_folder_that_is_there_is_refused_and_stays(store, tmp_path):
    appear(store, f"{tmp_path}/set", fill("x"))
    with pytest.raises(RefusedInputError, match="exists already"):
        appear(store, f"{tmp_path}/set", fill("y"))
    assert (tmp_path / "set/part-0").read_text() == "x"


@STORES
def test_what_fails_leaves_nothing(store, tmp_path):
    (tmp_path / "kept").mkdir()

    def write(folder: str) -> str:
        fill("x")(folder)
        msg = "the disk is full"
        raise OSError(msg)

    with pytest.raises(OSError, match="the disk is full"):
        appear(store, f"{tmp_path}/kept/a/b/set", write)
    assert visible(tmp_path) == []
    assert (tmp_path / "kept").is_dir()
    if store.can_rename:
        assert list((tmp_path / "kept").iterdir()) == []


@STORES
@pytest.mark.parametrize("step", ["_manifest.json", "_SUCCESS", "move"])
def test_a_crash_at_any_step_leaves_nothing_complete_and_the_next_writer_clears_up(store, tmp_path, monkeypatch, step):
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
    monkeypatch.setattr(type(store), "delete", lambda self, path: None)
    monkeypatch.setattr(folders, "_writer", lambda: f"20261115T000000Z@{socket.gethostname()}@{2**22 + 1}@0")
    if store.can_rename or step != "move":
        with pytest.raises(DeadError):
            appear(store, f"{tmp_path}/set", fill("x"))
        assert "set/_SUCCESS" not in visible(tmp_path)
    monkeypatch.undo()
    if not store.can_rename and step == "move":
        return
    appear(store, f"{tmp_path}/set", fill("y"))
    assert visible(tmp_path) == ["set/_SUCCESS", "set/_manifest.json", "set/part-0"]
    assert (tmp_path / "set/part-0").read_text() == "y"
    assert [one.name for one in tmp_path.iterdir()] == ["set"]


def test_only_dead_writers_of_the_same_folder_are_cleared_away(tmp_path):
    now, old = (f"{moment:%Y%m%dT%H%M%SZ}" for moment in (datetime.now(UTC), datetime.now(UTC) - timedelta(days=2)))
    here = socket.gethostname()
    names = {
        "dead": f".staging-set@{old}@{here}@{2**22 + 1}@aa",
        "alive": f".staging-set@{old}@{here}@{os.getpid()}@aa",
        "elsewhere": f".staging-set@{now}@another-machine@1@aa",
        "long gone": f".staging-set@{old}@another-machine@1@aa",
        "other": f".staging-other@{old}@{here}@{2**22 + 1}@aa",
        "odd": ".staging-set@by-hand",
    }
    for name in names.values():
        (tmp_path / name).mkdir()
    appear(LocalStore(), f"{tmp_path}/set", fill("x"))
    left = {one.name for one in tmp_path.iterdir()}
    assert left == {"set", *(names[one] for one in ("alive", "elsewhere", "other", "odd"))}


def test_a_folder_that_comes_up_meanwhile_is_not_replaced(tmp_path):
    def write(folder: str) -> str:
        fill("mine")(folder)
        appear(LocalStore(), f"{tmp_path}/set", fill("theirs"))
        return "{}"

    with pytest.raises(RefusedInputError, match="exists already"):
        appear(LocalStore(), f"{tmp_path}/set", write)
    assert (tmp_path / "set/part-0").read_text() == "theirs"
