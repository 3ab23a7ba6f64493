from __future__ import annotations

import hashlib
import os
import pickle
from typing import TYPE_CHECKING

import pytest

from lakeward.errors import ConfigurationError, DataError
from lakeward.storage.landing import Landing, content_hash, open_landing

if TYPE_CHECKING:
    from pathlib import Path


def _write(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(path)


def test_walk_yields_relative_paths_in_name_order_with_identity(tmp_path: Path) -> None:
    _write(tmp_path, "s/t/b.csv", "s/t/a.csv", "s/t/2024/01/x.csv", "s/u/c.csv")
    found = list(Landing(tmp_path).walk("s/t"))
    assert [file.path for file in found] == ["s/t/2024/01/x.csv", "s/t/a.csv", "s/t/b.csv"]
    status = (tmp_path / "s/t/a.csv").stat()
    assert (found[1].size, found[1].mtime_us) == (status.st_size, status.st_mtime_ns // 1000)
    assert found[1].identity == Landing(tmp_path).identity("s/t/a.csv")


def test_walk_is_lazy_and_sees_more_than_a_thousand_files(tmp_path: Path) -> None:
    _write(tmp_path, *(f"s/t/{number:05}.csv" for number in range(1203)))
    walk = Landing(tmp_path).walk("s/t")
    assert next(walk).path == "s/t/00000.csv"
    assert sum(1 for _ in walk) == 1202


@pytest.mark.parametrize("name", ["_x.csv", ".x.csv", "x.csv.tmp", "_d/x.csv", ".d/x.csv", "d.tmp/x.csv"])
def test_hidden_and_temporary_names_are_not_seen(tmp_path: Path, name: str) -> None:
    _write(tmp_path, f"s/t/{name}")
    storage = Landing(tmp_path)
    assert list(storage.walk("s/t")) == []
    assert not storage.exists("s/t")


def test_missing_folders_are_empty(tmp_path: Path) -> None:
    storage = Landing(tmp_path / "nowhere")
    assert list(storage.walk("s")) == []
    assert list(storage.children("")) == []
    assert not storage.exists("s")
    with pytest.raises(FileNotFoundError):
        storage.identity("s/t/a.csv")


def test_exists_needs_an_entry(tmp_path: Path) -> None:
    (tmp_path / "s/t").mkdir(parents=True)
    storage = Landing(tmp_path)
    assert not storage.exists("s/t")
    _write(tmp_path, "s/t/a.csv")
    assert storage.exists("s/t")
    assert storage.exists("s/t/")
    assert not storage.exists("s/t/a.csv")


def test_folders_are_immediate(tmp_path: Path) -> None:
    _write(tmp_path, "s/t/a.csv", "s/b/c/d.csv", "s/_h/x.csv", "s/file.csv")
    storage = Landing(tmp_path)
    assert [path for path, is_folder in storage.children("s") if is_folder] == ["s/b", "s/t"]
    assert list(storage.children("")) == [("s", True)]


def test_links_are_followed_and_loops_end(tmp_path: Path) -> None:
    _write(tmp_path, "s/t/a.csv", "elsewhere/b.csv")
    (tmp_path / "s/t/link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "s/t/loop").symlink_to(tmp_path / "s")
    (tmp_path / "elsewhere/self").symlink_to(tmp_path / "elsewhere")
    assert [file.path for file in Landing(tmp_path).walk("s/t")] == ["s/t/a.csv", "s/t/link/b.csv"]


def test_a_file_that_vanishes_while_listing_is_left_out(tmp_path: Path) -> None:
    _write(tmp_path, "s/t/a.csv", "s/t/b.csv")
    walk = Landing(tmp_path).walk("s/t")
    next(walk)
    (tmp_path / "s/t/b.csv").unlink()
    assert list(walk) == []


def test_spool_returns_path_and_hash(tmp_path: Path) -> None:
    _write(tmp_path, "s/a.csv")
    with Landing(tmp_path).spool("s/a.csv") as (path, digest):
        assert path == str(tmp_path / "s/a.csv")
        assert digest == hashlib.blake2b(b"s/a.csv", digest_size=16).hexdigest()
    with pytest.raises(FileNotFoundError), Landing(tmp_path).spool("s/b.csv"):
        pass


def test_hash_of_a_large_file_is_streamed(tmp_path: Path) -> None:
    content = os.urandom(3_000_001)
    (tmp_path / "x").write_bytes(content)
    assert content_hash(str(tmp_path / "x")) == hashlib.blake2b(content, digest_size=16).hexdigest()


def test_storage_is_picklable(tmp_path: Path) -> None:
    _write(tmp_path, "s/a.csv")
    again = pickle.loads(pickle.dumps(Landing(tmp_path)))
    assert [file.path for file in again.walk("")] == ["s/a.csv"]


def test_paths_cannot_leave_the_root(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="leads out of"):
        Landing(tmp_path).identity("../x")


def test_open_landing(tmp_path: Path) -> None:
    folder = tmp_path / "with blank"
    _write(folder, "s/a.csv")
    for uri in (str(folder), folder.as_uri()):
        assert [file.path for file in open_landing(uri).walk("")] == ["s/a.csv"]
    for uri in ("gs://bucket/x", "hdfs://host/x", "file://host/x"):
        with pytest.raises(ConfigurationError, match=r"not supported by this version.*local path"):
            open_landing(uri)


def test_a_landing_with_a_password_is_refused_without_showing_it():
    with pytest.raises(ConfigurationError, match=r"landing s3://AK:\*\*\*@bucket/x holds a password") as refused:
        open_landing("s3://AK:hush@bucket/x")
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize("link", ["s/t/LOAD1.csv", "s/t/sub", "s/t", "s"])
def test_a_link_that_leaves_landing_is_refused_unless_allowed(tmp_path: Path, link: str) -> None:
    landing, outside = tmp_path / "landing", tmp_path / "outside"
    _write(outside, "t/x.csv")
    (landing / link).parent.mkdir(parents=True)
    (landing / link).symlink_to({"s": outside, "s/t/LOAD1.csv": outside / "t/x.csv"}.get(link, outside / "t"))
    refusing, allowing = Landing(landing), Landing(landing, "allow")
    with pytest.raises(DataError, match="outside the landing folder") as refused:
        list(refusing.walk("s/t"))
    assert "landing_symlinks: allow" in (refused.value.hint or "")
    [found] = allowing.walk("s/t")
    assert allowing.identity(found.path) == found.identity
    uses = (refusing.identity, lambda path: refusing.spool(path).__enter__(), lambda path: refusing.replace(path, "x"))
    for use in uses:
        with pytest.raises(DataError, match="outside the landing folder"):
            use(found.path)


def test_a_linked_schema_folder_is_not_listed_but_a_linked_landing_is(tmp_path: Path, caplog) -> None:
    landing, outside = tmp_path / "landing", tmp_path / "outside"
    _write(outside, "secret/x.csv")
    landing.mkdir()
    (landing / "s").symlink_to(outside)
    assert list(Landing(landing).children("s")) == []
    assert "leads out of landing" in caplog.text
    (tmp_path / "other").symlink_to(outside)
    assert [file.path for file in Landing(tmp_path / "other").walk("secret")] == ["secret/x.csv"]
    assert [file.path for file in pickle.loads(pickle.dumps(Landing(landing, "allow"))).walk("s/secret")]
