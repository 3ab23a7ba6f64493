"""The folder watcher on a real folder."""

import os
import queue
import shutil
from contextlib import contextmanager

import pytest

from lakeward.errors import ConfigurationError
from lakeward.runner.watch.requests import PathFilter
from lakeward.runner.watch.triggers import FolderWatcher


@contextmanager
def watching(root, accepts=None):
    requests = queue.Queue()
    watcher = FolderWatcher(str(root), requests.put, accepts)
    watcher.start()
    try:
        yield requests
    finally:
        watcher.stop()


def noticed(requests):
    return requests.get(timeout=300)


def silent(requests, seconds=0.4):
    with pytest.raises(queue.Empty):
        requests.get(timeout=seconds)
    return True


def test_files_written_moved_and_touched_are_noticed(tmp_path):
    folder = tmp_path / "landing/sales/product"
    folder.mkdir(parents=True)
    with watching(tmp_path / "landing") as requests:
        (folder / "1.csv").write_text("x")
        assert noticed(requests).folders == {"sales/product"}
        (folder / ".2.csv.tmp").write_text("x")
        assert silent(requests)
        (folder / ".2.csv.tmp").rename(folder / "2.csv")
        assert noticed(requests).folders == {"sales/product"}
        os.utime(folder / "1.csv")
        assert noticed(requests).folders == {"sales/product"}
        (folder / "1.csv").unlink()
        assert silent(requests)


def test_a_new_folder_is_noticed_with_its_files(tmp_path):
    landing = tmp_path / "landing"
    landing.mkdir()
    with watching(landing) as requests:
        (landing / "sales/new/2024").mkdir(parents=True)
        (landing / "sales/new/2024/1.csv").write_text("x")
        assert "sales" in noticed(requests).trees
        (tmp_path / "made").mkdir()
        (tmp_path / "made/1.csv").write_text("x")
        while not requests.empty():
            requests.get()
        (tmp_path / "made").rename(landing / "sales/moved")
        # Events of the first folder may still arrive.
        while "sales/moved" not in noticed(requests).trees:
            pass
        (landing / "sales/moved/2.csv").write_text("x")
        while noticed(requests).folders != {"sales/moved"}:
            pass


def test_filters_exclude_other_files(tmp_path):
    (tmp_path / "hr").mkdir()
    with watching(tmp_path, PathFilter(prefixes=("sales/",))) as requests:
        (tmp_path / "hr/1.csv").write_text("x")
        (tmp_path / "hr/new").mkdir()
        assert silent(requests)


def test_a_landing_folder_that_disappears_and_returns_is_watched_again(tmp_path, caplog):
    landing = tmp_path / "landing"
    landing.mkdir()
    with watching(landing) as requests:
        shutil.rmtree(landing)
        (landing / "sales").mkdir(parents=True)
        request = noticed(requests)
        while not request.everything:
            request = noticed(requests)
        # One file, once: the full listing is requested once nothing can be missed any more.
        (landing / "sales/1.csv").write_text("x")
        while "sales" not in request.folders:
            request = noticed(requests)
    assert "is gone; waiting for it" in caplog.text


def test_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="is not a folder"):
        FolderWatcher(str(tmp_path / "none"), print).start()


def test_a_system_that_cannot_watch_is_reported(tmp_path, monkeypatch):
    def refuse(*_paths, **_options):
        raise OSError("OS file watch limit reached")  # noqa: EM101
        yield

    monkeypatch.setattr("watchfiles.watch", refuse)
    watcher = FolderWatcher(str(tmp_path), print)
    with pytest.raises(ConfigurationError, match="OS file watch limit reached") as refused:
        watcher.start()
    assert "max_user_watches" in (refused.value.hint or "")
    watcher.stop()
