"""Stores in folders that others write to, and the messages of their errors."""

import os
import threading
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError

from lakeward.errors import ConfigurationError, RetriableError
from lakeward.spark.errors import store_errors
from lakeward.storage.filesystem import LocalFileSystem, open_filesystem


def test_files_that_vanish_while_being_listed_are_left_out(tmp_path):
    """A folder is filled under another name and renamed, again and again."""
    (tmp_path / "stays").write_text("abc")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    over = threading.Event()

    def write() -> None:
        while not over.is_set():
            draft = tmp_path / "draft"
            for number in range(20):
                (draft / str(number)).mkdir(parents=True)
                (draft / str(number) / "file").touch()
            for folder in list(draft.iterdir()):
                (folder / "file").unlink()
                folder.rmdir()
            draft.rmdir()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(200):
            assert LocalFileSystem().files(str(tmp_path))["stays"] == 3
    finally:
        over.set()
        writer.join()
    assert LocalFileSystem().files(str(tmp_path)) == {"stays": 3}
    assert LocalFileSystem().files(str(tmp_path / "stays")) == {"": 3}
    assert LocalFileSystem().files(str(tmp_path / "absent")) == {}


def test_a_place_that_cannot_be_written_to_is_reported(tmp_path):
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(ConfigurationError, match=f"{file}.*Not a directory") as refused:
        LocalFileSystem().write_text(f"{file}/below/note", "x")
    assert "permissions" in refused.value.hint
    with pytest.raises(RetriableError, match="the disk is full"), store_errors("/lake"):
        raise OSError(28, os.strerror(28), "/lake/x")


class JavaError(Py4JJavaError):
    """An error of the JVM, without a JVM."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("UnknownStoreException: `s3a://typo/': Bucket does not exist", ConfigurationError, "no such bucket"),
        ("AccessDeniedException: s3a://b/x: getFileStatus", ConfigurationError, "refuses the keys"),
        ("AWSClientIOException: Unable to execute HTTP request: Connection refused", RetriableError, "does not answer"),
        ("java.io.FileNotFoundException: No such file or directory: s3a://b/x", RetriableError, "is gone since"),
    ],
)
def test_errors_of_hadoop_have_a_remedy(text, kind, words):
    with pytest.raises(kind, match=f"s3://b/x.*{words}"), store_errors("s3://b/x"):
        raise JavaError(text)


def test_other_errors_of_hadoop_stay_as_they_are():
    error = JavaError("java.lang.IllegalStateException")
    with pytest.raises(JavaError), store_errors("s3://b/x"):
        raise error


def test_a_forbidden_listing_is_not_an_empty_one(tmp_path, monkeypatch):
    def refuse(path: Path) -> None:
        raise PermissionError(13, os.strerror(13), str(path))

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(ConfigurationError, match="Permission denied"):
        LocalFileSystem().files(str(tmp_path))


def test_a_place_with_a_password_is_refused_without_showing_it():
    with pytest.raises(ConfigurationError, match=r"s3://AK:\*\*\*@bucket/x holds a password") as refused:
        open_filesystem(None, None, "s3://AK:hush@bucket/x")
    assert "hush" not in str(refused.value)
