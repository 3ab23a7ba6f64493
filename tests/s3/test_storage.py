"""Landing files in a real S3 server: listing, identity, copies, and what goes wrong."""

from __future__ import annotations

import hashlib
import os
import pickle
import socket
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lakeward.config.services import S3Settings
from lakeward.errors import ConfigurationError, RetriableError
from lakeward.storage import s3
from lakeward.storage.landing import open_landing
from tests.s3.bucket import PART_BYTES
from tests.servers.moto import moto_client
from tests.servers.s3 import READER_KEY, READER_SECRET

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.s3.bucket import Bucket

ODD_NAMES = (
    "a b+c.csv",
    "per%cent%20.csv",
    "ünï-日本.csv",
    "hash#tag.csv",
    "what?x=1&y=2.csv",
    "quote'\"<>.csv",
    "a=1;b,c.csv",
)


def test_walk_gives_relative_paths_folder_by_folder_with_identity(bucket: Bucket) -> None:
    for path in ("s/t/b.csv", "s/t/a.csv", "s/t/2024/01/x.csv", "s/t/2024/02/y.csv", "s/tt/c.csv"):
        bucket.put(f"landing/{path}", path.encode())
    storage = bucket.storage("landing/")
    found = list(storage.walk("s/t"))
    assert [file.path for file in found] == ["s/t/2024/01/x.csv", "s/t/2024/02/y.csv", "s/t/a.csv", "s/t/b.csv"]
    assert all(file.identity == storage.identity(file.path) for file in found)
    assert found[2].size == len("s/t/a.csv")
    assert found[2].etag == hashlib.md5(b"s/t/a.csv").hexdigest()
    assert storage.location("s/t/a.csv") == f"s3://{bucket.name}/landing/s/t/a.csv"
    assert [file.path for file in bucket.storage().walk("landing/s/tt/")] == ["landing/s/tt/c.csv"]


def test_more_than_a_thousand_objects_and_folders_are_all_seen(bucket: Bucket) -> None:
    for number in range(1005):
        bucket.put(f"s/t/{number:05}.csv")
        bucket.put(f"wide/folder {number:05}/x.csv")
    storage = bucket.storage()
    walk = storage.walk("s/t")
    assert next(walk).path == "s/t/00000.csv"
    assert [file.path for file in walk] == [f"s/t/{number:05}.csv" for number in range(1, 1005)]
    assert list(storage.children("wide")) == [(f"wide/folder {number:05}", True) for number in range(1005)]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_keys_that_need_escaping_stay_exact(bucket: Bucket, name: str) -> None:
    folder = f"sch {name}/täb+le"
    bucket.put(f"land ing/{folder}/{name}", name.encode())
    storage = bucket.storage("land ing")
    [found] = storage.walk(folder)
    assert found.path == f"{folder}/{name}"
    assert storage.identity(found.path) == found.identity
    assert list(storage.children("")) == [(f"sch {name}", True)]
    with storage.spool(found.path) as (path, _):
        assert Path(path).read_bytes() == name.encode()


@pytest.mark.parametrize("name", ["_x.csv", ".x.csv", "x.csv.tmp", "_d/x.csv", ".d/x.csv", "d.tmp/x.csv"])
def test_hidden_and_temporary_names_are_not_seen(bucket: Bucket, name: str) -> None:
    bucket.put(f"s/t/{name}")
    storage = bucket.storage()
    assert list(storage.walk("s/t")) == list(storage.children("s/t")) == []
    assert not storage.exists("s/t")


def test_folder_markers_are_folders_and_no_files(bucket: Bucket) -> None:
    bucket.put("landing/", b"")
    storage = bucket.storage("landing")
    assert not storage.exists("")
    bucket.put("landing/s/", b"")
    bucket.put("landing/s/t/", b"")
    assert storage.exists("") and storage.exists("s") and not storage.exists("s/t")
    assert list(storage.children("s")) == [("s/t", True)]
    assert list(storage.walk("")) == []


def test_missing_folders_are_empty_and_missing_files_are_missing(bucket: Bucket) -> None:
    bucket.put("s/t/a.csv")
    storage = bucket.storage()
    assert list(storage.walk("s/tt")) == list(storage.walk("s/t/a.csv")) == list(storage.children("x")) == []
    assert not storage.exists("s/t/a.csv") and storage.exists("s/t/")
    with pytest.raises(FileNotFoundError):
        storage.identity("s/t/b.csv")
    with pytest.raises(FileNotFoundError), storage.spool("s/t/b.csv"):
        pass


def test_copy_is_hashed_while_it_comes_and_is_gone_afterwards(bucket: Bucket) -> None:
    content = os.urandom(3_000_001)
    bucket.put("s/a.csv", content)
    with bucket.storage().spool("s/a.csv") as (path, digest):
        assert Path(path).read_bytes() == content
        assert digest == hashlib.blake2b(content, digest_size=16).hexdigest()
    assert not Path(path).exists()
    with pytest.raises(ZeroDivisionError), bucket.storage().spool("s/a.csv") as (path, _):
        raise ZeroDivisionError
    assert not Path(path).exists()


def test_upload_in_parts_has_one_identity_however_it_is_asked_for(bucket: Bucket) -> None:
    content = os.urandom(PART_BYTES + 17)
    bucket.put_in_parts("s/t/parts.csv", content)
    bucket.put("s/t/whole.csv", content)
    storage = bucket.storage()
    parts, whole = storage.walk("s/t")
    assert "-" in (parts.etag or "") and parts.etag != whole.etag
    assert (storage.identity("s/t/parts.csv"), storage.identity("s/t/whole.csv")) == (parts.identity, whole.identity)
    with storage.spool("s/t/parts.csv") as (_, one), storage.spool("s/t/whole.csv") as (_, other):
        assert one == other


def test_other_content_of_the_same_size_in_the_same_second_is_another_file(bucket: Bucket) -> None:
    bucket.put("a.csv", b"one")
    before = bucket.storage().identity("a.csv")
    bucket.put("a.csv", b"two")
    assert bucket.storage().identity("a.csv") != before


def test_storage_travels_into_tasks_with_its_keys(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket.put("s/a.csv")
    pickled = pickle.dumps(bucket.storage())
    monkeypatch.delenv("TEST_S3_SECRET")
    again = pickle.loads(pickled)
    assert [file.path for file in again.walk("")] == ["s/a.csv"]


def test_open_landing_knows_both_schemes(bucket: Bucket) -> None:
    bucket.put("landing/s/a.csv")
    for scheme in ("s3", "s3a"):
        storage = open_landing(f"{scheme}://{bucket.name}/landing", bucket.settings)
        assert storage.location("s/a.csv") == f"s3://{bucket.name}/landing/s/a.csv"
        assert storage.exists("s")


def test_wrong_keys_are_refused_with_the_remedy(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket.put("a.csv")
    for name, wrong in (("TEST_S3_SECRET", "wrong"), ("TEST_S3_KEY", "nobody")):
        monkeypatch.setenv(name, wrong)
        storage = bucket.storage()
        with pytest.raises(ConfigurationError, match="the keys are refused") as refused:
            storage.exists("")
        assert "lakeward doctor" in (refused.value.hint or "")
        for ask in (lambda s=storage: list(s.walk("")), lambda s=storage: s.identity("a.csv")):
            with pytest.raises(ConfigurationError):
                ask()


def test_no_keys_at_all_are_a_mistake_in_the_configuration(bucket: Bucket, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    storage = open_landing(f"s3://{bucket.name}", S3Settings(endpoint=bucket.settings.endpoint))
    with pytest.raises(ConfigurationError, match="Unable to locate credentials"):
        storage.exists("")


def test_keys_of_a_reader_suffice_for_landing(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket.put("s/t/a.csv")
    monkeypatch.setenv("TEST_S3_KEY", READER_KEY)
    monkeypatch.setenv("TEST_S3_SECRET", READER_SECRET)
    storage = bucket.storage()
    assert [file.path for file in storage.walk("")] == ["s/t/a.csv"]
    with storage.spool("s/t/a.csv") as (path, _):
        assert Path(path).read_bytes() == b"x"


def test_missing_bucket_is_named(bucket: Bucket) -> None:
    storage = open_landing("s3://no-such-bucket/landing", bucket.settings)
    with pytest.raises(ConfigurationError, match="there is no bucket 'no-such-bucket'"):
        storage.exists("")


@contextmanager
def answering(status: int, code: str, *, promised: int | None = None) -> Iterator[str]:
    """A server that answers everything alike; with ``promised`` it breaks off before so many bytes."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = f"<Error><Code>{code}</Code><Message>the reason</Message></Error>".encode()
            self.send_response(status)
            self.send_header("Content-Length", str(promised or len(body)))
            self.end_headers()
            self.wfile.write(body)
            self.close_connection = True

        def log_message(self, *arguments: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (503, "SlowDown", RetriableError),
        (500, "InternalError", RetriableError),
        (429, "TooManyRequests", RetriableError),
        (400, "RequestTimeout", RetriableError),
        (403, "AccessDenied", ConfigurationError),
        (400, "ExpiredToken", ConfigurationError),
    ],
)
def test_errors_are_retriable_where_asking_again_helps(bucket: Bucket, monkeypatch, status, code, kind) -> None:
    monkeypatch.setattr(s3, "_ATTEMPTS", 1)
    with answering(status, code) as endpoint:
        storage = open_landing("s3://bucket", bucket.settings.model_copy(update={"endpoint": endpoint}))
        with pytest.raises(kind, match=f"{code} the reason") as refused:
            storage.exists("")
    assert refused.value.hint


def test_interrupted_copy_is_not_reported_as_a_bad_file(bucket: Bucket, monkeypatch) -> None:
    monkeypatch.setattr(s3, "_ATTEMPTS", 1)
    with answering(200, "half a file", promised=1000) as endpoint:
        storage = open_landing("s3://bucket", bucket.settings.model_copy(update={"endpoint": endpoint}))
        with pytest.raises(RetriableError, match=r"s3://bucket/s/a\.csv: S3 does not answer"), storage.spool("s/a.csv"):
            pass


def test_full_disk_is_not_reported_as_a_bad_file(bucket: Bucket, monkeypatch) -> None:
    bucket.put("s/a.csv", b"x" * 100)
    storage = bucket.storage()
    for place in ("/dev/full", "/no/such/folder/copy"):

        def make(buffering: int, place: str = place, **_: Any) -> Any:
            return Path(place).open("wb", buffering=buffering)

        monkeypatch.setattr("tempfile.NamedTemporaryFile", make)
        with pytest.raises(RetriableError, match="cannot be copied") as refused, storage.spool("s/a.csv"):
            pass
        assert "TMPDIR" in (refused.value.hint or "")


@pytest.mark.parametrize("listens", [False, True])
def test_server_that_is_not_there_or_never_answers_is_worth_another_try(bucket: Bucket, monkeypatch, listens) -> None:
    monkeypatch.setattr(s3, "_ATTEMPTS", 1)
    monkeypatch.setattr(s3, "_READ_SECONDS", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        if listens:
            silent.listen()
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        storage = open_landing("s3://bucket", bucket.settings.model_copy(update={"endpoint": endpoint}))
        with pytest.raises(RetriableError, match="does not answer") as refused:
            list(storage.walk(""))
    assert refused.value.exit_code == 3


def test_https_to_a_server_without_it_is_a_mistake_in_the_configuration(bucket: Bucket, monkeypatch) -> None:
    monkeypatch.setattr(s3, "_ATTEMPTS", 1)
    endpoint = (bucket.settings.endpoint or "").replace("http:", "https:")
    storage = open_landing("s3://bucket", bucket.settings.model_copy(update={"endpoint": endpoint}))
    with pytest.raises(ConfigurationError, match="WRONG_VERSION_NUMBER"):
        storage.exists("")


def test_listing_and_head_request_agree_on_another_server_too(moto_endpoint: str, bucket: Bucket) -> None:
    client = moto_client("s3", moto_endpoint)
    try:
        client.create_bucket(Bucket="agree", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
        client.put_object(Bucket="agree", Key="s/t/a b+ü.csv", Body=b"1")
    finally:
        client.close()
    storage = open_landing("s3://agree/s", bucket.settings.model_copy(update={"endpoint": moto_endpoint}))
    [found] = storage.walk("t")
    assert storage.identity("t/a b+ü.csv") == found.identity
