"""One file system, two places: what holds for the local disk holds for S3, and the other way round."""

from __future__ import annotations

import hashlib
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakeward.errors import BugError, ConfigurationError, RetriableError
from lakeward.storage.filesystem import Entry, LocalFileSystem, TaskFileSystem, task_filesystem
from lakeward.storage.s3 import S3FileSystem
from tests.servers.moto import moto_client

if TYPE_CHECKING:
    from tests.s3.bucket import Bucket


@dataclass
class Place:
    """A file system, and a folder in it that is empty."""

    system: TaskFileSystem
    root: str


@pytest.fixture(params=["disk", "S3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "disk":
        return Place(LocalFileSystem(), str(tmp_path / "root é"))
    bucket: Bucket = request.getfixturevalue("bucket")
    return Place(S3FileSystem(bucket.settings, normalizes=True), f"s3://{bucket.name}/root é")


def test_text_is_written_replaced_and_read(place: Place) -> None:
    system, file = place.system, f"{place.root}/a b/note+1%20#x?.json"
    assert (system.read_text(file), system.exists(file), system.exists(place.root)) == (None, False, False)
    for text in ("first", "second ü"):
        system.write_text(file, text)
        assert system.read_text(file) == text
    assert system.exists(file) and system.exists(place.root) and system.exists(f"{place.root}/a b")
    assert not system.exists(f"{place.root}/a")
    assert system.files(place.root) == {"a b/note+1%20#x?.json": len("second ü".encode())}


def test_listings_agree_with_each_other_and_with_the_identity_of_each_file(place: Place) -> None:
    system, root = place.system, place.root
    for path in ("x=1/b", "x=1/a", "_hidden/.file", "top"):
        system.write_text(f"{root}/{path}", path)
    found = {file.path: file for file in system.walk(root)}
    assert system.files(root) == {path: len(path) for path in ("x=1/b", "x=1/a", "_hidden/.file", "top")}
    assert {path: file.identity for path, file in found.items()} == {
        path: system.identity(f"{root}/{path}") for path in found
    }
    assert system.folders(root) == ["_hidden", "x=1"]
    assert sorted(system.entries(root)) == [Entry("_hidden", True), Entry("top", False), Entry("x=1", True)]
    absent = f"{root}/absent"
    assert (system.files(absent), system.folders(absent), list(system.entries(absent))) == ({}, [], [])
    with pytest.raises(FileNotFoundError):
        system.identity(absent)


def test_only_named_files_are_removed_and_folders_never_with_what_they_hold(place: Place) -> None:
    system, root = place.system, place.root
    for path in ("a/own", "a/theirs", "b/own", "b/deep/theirs"):
        system.write_text(f"{root}/{path}", path)
    system.remove(root, ["a/own", "b/own", "b/deep", "a/missing", "c/missing"])
    assert set(system.files(root)) == {"a/theirs", "b/deep/theirs"}
    system.prune(root)
    assert set(system.files(root)) == {"a/theirs", "b/deep/theirs"}
    system.remove(root, ["a/theirs"])
    system.remove(root, [])
    assert set(system.files(root)) == {"b/deep/theirs"} and not system.exists(f"{root}/a")


def test_files_are_linked_fetched_and_replaced(place: Place, tmp_path: Path) -> None:
    system, root = place.system, place.root
    system.write_text(f"{root}/from/a", "content")
    system.link({f"{root}/from/a": f"{root}/to/x=1/b"})
    digest = hashlib.blake2b(digest_size=16)
    with system.fetch(f"{root}/to/x=1/b", digest) as local:
        assert Path(local).read_text() == "content"
    assert digest.digest() == hashlib.blake2b(b"content", digest_size=16).digest()
    before = system.identity(f"{root}/to/x=1/b")
    (tmp_path / "other").write_text("other content")
    system.replace(f"{root}/to/x=1/b", str(tmp_path / "other"))
    assert system.read_text(f"{root}/to/x=1/b") == "other content"
    assert system.identity(f"{root}/to/x=1/b") != before
    assert system.files(root).keys() == {"from/a", "to/x=1/b"}
    with pytest.raises(RetriableError):
        system.link({f"{root}/absent": f"{root}/to/c"})
    with pytest.raises(FileNotFoundError), system.fetch(f"{root}/absent"):
        pass


def test_a_file_is_put_under_another_name_and_known_by_its_content(place: Place) -> None:
    system, root = place.system, place.root
    for name, text in (("one", "first"), ("two", "second, and longer")):
        system.write_text(f"{root}/v/{name}", text)
        system.put(f"{root}/v/{name}", f"{root}/final é.csv")
        assert system.read_text(f"{root}/final é.csv") == text
        assert system.digest(f"{root}/final é.csv") == system.digest(f"{root}/v/{name}") is not None
    system.put(f"{root}/v/two", f"{root}/final é.csv")
    assert set(system.files(root)) == {"v/one", "v/two", "final é.csv"}
    digest = system.digest(f"{root}/final é.csv")
    system.write_text(f"{root}/final é.csv", "somebody else's")
    assert system.digest(f"{root}/final é.csv") not in (digest, None)
    assert (system.digest(f"{root}/absent"), system.read_text(f"{root}/v/two")) == (None, "second, and longer")


def test_a_new_file_exists_once_it_is_complete(place: Place) -> None:
    system, root = place.system, place.root
    with system.new_file(f"{root}/a/file") as draft:
        Path(draft).write_text("whole")
        assert not system.exists(f"{root}/a/file")
    with pytest.raises(TypeError), system.new_file(f"{root}/a/half") as draft:
        Path(draft).write_text(None)  # type: ignore[arg-type]
    assert system.files(root) == {"a/file": 5}
    assert not Path(draft).exists()


def test_it_travels_into_tasks_as_that_of_one_writer(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.system.write_text(f"{place.root}/a", "x")
    signed = place.system.signed("0123456789ab")
    assert signed.options["mapreduce.output.basename"] == signed.signature == "part-w0123456789ab"
    assert "mapreduce.output.basename" not in place.system.options and not place.system.signature
    pickled = pickle.dumps(signed)
    monkeypatch.delenv("TEST_S3_SECRET", raising=False)
    again = pickle.loads(pickled)
    assert (again.files(place.root), again.options) == ({"a": 1}, signed.options)
    with again.new_file(f"{place.root}/b") as draft:
        Path(draft).write_text("xy")
    assert again.files(place.root) == {"a": 1, "b": 2}


def test_a_file_in_place_of_a_folder_is_listed_by_itself(place: Place) -> None:
    system, root = place.system, place.root
    system.write_text(f"{root}/taken/file", "theirs")
    assert system.files(f"{root}/taken/file") == {"": 6}
    assert system.files(f"{root}/taken") == system.files(f"{root}/taken/") == {"file": 6}
    assert (list(system.entries(f"{root}/taken/file")), system.folders(f"{root}/taken/file")) == ([], [])


def test_a_bucket_is_a_folder_even_when_it_is_empty(bucket: Bucket) -> None:
    system, root = S3FileSystem(bucket.settings, normalizes=True), f"s3://{bucket.name}"
    assert (system.exists(root), system.files(root), system.folders(root)) == (True, {}, [])
    bucket.put("a/b")
    assert (system.exists(root), system.files(root), system.folders(root)) == (True, {"a/b": 1}, ["a"])


def test_only_empty_marks_of_empty_folders_are_pruned(bucket: Bucket) -> None:
    for key in ("out/", "out/_temporary/", "out/_temporary/0/", "out/full/", "other/"):
        bucket.put(key, b"")
    bucket.put("out/full/theirs", b"theirs")
    bucket.put("out/content/", b"theirs")
    system = S3FileSystem(bucket.settings, normalizes=True)
    assert system.folders(f"s3://{bucket.name}/out") == ["_temporary", "content", "full"]
    assert system.exists(f"s3://{bucket.name}/out/_temporary/0")
    system.prune(f"s3://{bucket.name}/out/_temporary")
    left = bucket.keys()
    assert not any(key.startswith("out/_temporary") for key in left) and "other/" in left
    system.prune(f"s3://{bucket.name}/out")
    left = bucket.keys()
    assert {"out/", "out/full/theirs", "other/"} <= set(left)
    assert bucket.get("out/full/theirs") == b"theirs"


def test_a_path_means_the_key_that_spark_makes_of_it_or_the_key_as_it_is(moto_endpoint: str, bucket: Bucket) -> None:
    # The other server makes one slash of two by itself.
    settings = bucket.settings.model_copy(update={"endpoint": moto_endpoint})
    as_spark, as_it_is = S3FileSystem(settings, normalizes=True), S3FileSystem(settings)
    client = moto_client("s3", moto_endpoint)
    try:
        client.create_bucket(Bucket="keys", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
        for system in (as_spark, as_it_is):
            system.write_text("s3a://keys/a//./b/../c//file", "x")
        found = client.list_objects_v2(Bucket="keys")["Contents"]
        assert [each["Key"] for each in found] == ["a//./b/../c//file", "a/c/file"]
        assert as_spark.files("s3://keys//a//c/")["file"] == 1 and as_it_is.files("s3://keys/a/c") == {"file": 1}
        assert as_it_is.files("s3://keys/a/") == {"./b/../c//file": 1}
        as_spark.remove("s3://keys//a", ["c//file"])
        assert [each["Key"] for each in client.list_objects_v2(Bucket="keys")["Contents"]] == ["a//./b/../c//file"]
    finally:
        client.close()


def test_more_than_a_thousand_objects_are_removed(bucket: Bucket) -> None:
    paths = [f"{number:05}" for number in range(1003)]
    for path in paths:
        bucket.put(f"many/{path}")
    system = S3FileSystem(bucket.settings, normalizes=True)
    assert len(system.files(f"s3://{bucket.name}/many")) == 1003
    system.remove(f"s3://{bucket.name}/many", paths[1:])
    assert bucket.keys() == ["many/00000"]


def test_errors_name_the_address_and_the_remedy(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = S3FileSystem(bucket.settings, normalizes=True)
    monkeypatch.setenv("TEST_S3_SECRET", "wrong")
    refused = S3FileSystem(bucket.settings, normalizes=True)
    for use in (missing.exists, missing.files, missing.folders, lambda path: missing.write_text(path, "x")):
        with pytest.raises(ConfigurationError, match="there is no bucket 'no-such-bucket'"):
            use("s3://no-such-bucket/x")
    for use in (refused.files, refused.read_text, lambda path: refused.remove(path, ["x"])):
        with pytest.raises(ConfigurationError, match=r"s3://.*/x: the keys are refused") as error:
            use(f"s3://{bucket.name}/x")
        assert error.value.hint
    with pytest.raises(BugError, match="published in place"):
        missing.move(f"s3://{bucket.name}/a", f"s3://{bucket.name}/b")
    assert "wrong" not in repr(refused)


def test_tasks_open_files_on_disk_and_in_s3_and_nowhere_else(bucket: Bucket) -> None:
    for location in ("/lake/t", "file:/lake/t", "file:///lake/t"):
        assert isinstance(task_filesystem(bucket.settings, location), LocalFileSystem)
    assert isinstance(task_filesystem(bucket.settings, f"s3a://{bucket.name}/t"), S3FileSystem)
    assert task_filesystem(bucket.settings, "hdfs://name/t") is None
