"""Version folders on the local disk: complete or not at all, whatever a crash leaves; no JVM."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.views.manifests import manifest_of

from lakeward.errors import ConfigurationError, DataError, LeaseHeldError
from lakeward.model import TableId
from lakeward.state.leases import HeldLease, current_owner
from lakeward.state.memory import MemoryStateStore
from lakeward.storage.claims import Claim, written_files
from lakeward.storage.filesystem import LocalFileSystem
from lakeward.storage.publish import _FolderPublication
from lakeward.views.versions import folders
from lakeward.views.versions.folders import (
    VersionPlace,
    complete_manifest,
    find_version,
    publishing,
    put_in_place,
    remove_folder,
    require_free,
    tidy,
)
from lakeward.views.versions.manifest import Manifest, read_manifest
from lakeward.views.versions.places import CopyPlace, Pointer

STEPS = ("publish.written", "publish.staged", "publish.recorded", "publish.aside", "publish.moved")


class Crash(BaseException):
    """The process is gone."""


class ObjectStore(LocalFileSystem):
    """A store without renames, as publishing sees it."""

    can_rename = False

    def move(self, source: str, target: str) -> None:
        msg = f"an object store renames nothing: {source} to {target}"
        raise AssertionError(msg)


def publish(place: VersionPlace, content: str, crash_at: str | None = None, *, killed: bool = True) -> list[str]:
    """Publish a version of one file and return the ids that were recorded; nothing runs after it is killed."""
    recorded: list[str] = []

    def reached(step: str) -> None:
        if step == crash_at:
            raise Crash(step)

    def write(claim: Claim) -> Manifest:
        before = claim.store.files(claim.folder)
        claim.store.write_text(f"{claim.folder}/{claim.store.signature}-{content}.parquet", content)
        return manifest_of(content, written_files(claim.store, claim.folder, before), place.version)

    context: Any = SimpleNamespace(reached=reached)
    with contextlib.suppress(Crash), pytest.MonkeyPatch.context() as patched:
        if crash_at is not None and killed:
            patched.setattr(_FolderPublication, "take_back", lambda *_: None)
        put_in_place(context, place, "uuid", write, lambda made: recorded.append(made.id))
    return recorded


@pytest.fixture(params=[LocalFileSystem, ObjectStore])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> VersionPlace:
    return VersionPlace(request.param(), str(tmp_path / "sales.product"), "v1")


def content_of(place: VersionPlace) -> str:
    found = find_version(place.store, place.folder)
    [name] = found.manifest.files
    return Path(found.folder, name).read_text()


def test_manifest_is_read_as_it_was_written():
    manifest = manifest_of("a", {"x=1/b.parquet": 5, "a.parquet": 7})
    assert read_manifest(manifest.to_json(), "there") == manifest
    assert [load["path"] for load in json.loads(manifest.to_json())["files"]] == ["a.parquet", "x=1/b.parquet"]
    for damaged in ("", "{}", manifest.to_json()[:-20], manifest.to_json().replace('"rows"', '"lines"')):
        with pytest.raises(DataError, match="damaged"):
            read_manifest(damaged, "there")


def test_a_version_appears_complete_and_is_overwritten_only_on_request(place):
    assert publish(place, "first") == ["first"]
    assert content_of(place) == "first"
    with pytest.raises(ConfigurationError, match="exists already") as refused:
        require_free(place, replace=False)
    assert "--replace" in (refused.value.hint or "")
    require_free(place, replace=True)
    publish(place, "second")
    assert content_of(place) == "second"
    assert len(written_files(place.store, place.folder)) == 1
    assert [name for name in place.store.folders(place.root) if name.startswith(".")] == []


@pytest.mark.parametrize("step", STEPS)
def test_a_crash_leaves_the_former_version_or_the_new_one(place, step):
    publish(place, "first")
    publish(place, "second", crash_at=step)
    assert content_of(place) in ("first", "second"), "readers find nothing between the crash and the next command"
    tidy(place)
    after = content_of(place)
    assert after == ("second" if step in ("publish.aside", "publish.moved") and place.store.can_rename else after)
    assert [name for name in place.store.folders(place.root) if name.startswith(".")] == []
    [part] = written_files(place.store, place.folder)
    assert part.endswith(f"-{after}.parquet")
    assert not [path for path in place.store.files(place.root) if "writing" in path]
    publish(place, "third")
    assert content_of(place) == "third"


@pytest.mark.parametrize("step", STEPS[:-1])
def test_a_version_that_fails_is_removed_immediately(place, step):
    publish(place, "first")
    before = place.store.files(place.root)
    publish(place, "second", crash_at=step, killed=False)
    if place.store.can_rename or step in ("publish.written", "publish.recorded"):
        assert place.store.files(place.root) == before
        assert [name for name in place.store.folders(place.root) if name.startswith(".")] == []
    else:
        assert content_of(place) == "second", "objects are neither staged nor set aside"
    publish(place, "third", crash_at="publish.written", killed=False)
    publish(place, "fourth")
    assert content_of(place) == "fourth"


@pytest.mark.parametrize("step", ["publish.written", "publish.recorded"])
def test_a_crash_of_the_first_version_is_rolled_back(place, step):
    publish(place, "first", crash_at=step)
    with pytest.raises(DataError):
        find_version(place.store, place.folder)
    tidy(place)
    assert place.store.files(place.root) == {}
    publish(place, "again")
    assert content_of(place) == "again"


def test_files_of_others_are_neither_removed_nor_mixed_with_a_version(place):
    publish(place, "first")
    Path(place.folder, "_manifest.json").write_text("{}")
    others = VersionPlace(place.store, place.root, "2020-11-14")
    place.store.write_text(f"{others.folder}/part-of-another-tool.parquet", "theirs")
    for found in (place, others):
        before = place.store.files(found.folder)
        tidy(found)
        assert place.store.files(found.folder) == before
        with pytest.raises(ConfigurationError, match="exists already"):
            require_free(found, replace=False)
        with pytest.raises(ConfigurationError, match="nothing shows that Lakeward wrote"):
            publish(found, "asked for")
        with pytest.raises(ConfigurationError, match="nothing shows that Lakeward wrote"):
            remove_folder(found, "uuid")
        assert place.store.files(found.folder) == before


def test_a_removed_version_disappears_in_one_step(place):
    publish(place, "first")
    remove_folder(place, "uuid")
    assert not place.store.exists(place.folder)
    remove_folder(place, "uuid")
    assert place.store.files(place.root) == {}


def test_files_that_are_missing_or_changed_are_refused(place):
    publish(place, "first")
    [part] = written_files(place.store, place.folder)
    file = Path(place.folder, part)
    file.write_text("longer than before")
    with pytest.raises(DataError, match="1 of 1 files are missing or not as they were written"):
        find_version(place.store, place.folder)
    file.unlink()
    with pytest.raises(DataError, match=r"-first\.parquet"):
        find_version(place.store, place.folder)
    Path(place.folder, "_SUCCESS").unlink()
    with pytest.raises(DataError, match="not finished"):
        find_version(place.store, place.folder)
    assert complete_manifest(place.store, place.folder) is None


def test_an_incomplete_path_is_refused_with_the_versions_below_it(tmp_path):
    store = LocalFileSystem()
    for version in ("2020-11-13", "2020-11-14"):
        publish(VersionPlace(store, str(tmp_path / "sales.product"), version), "x")
    for partly in (tmp_path / "sales.product", tmp_path):
        with pytest.raises(DataError, match=r"holds 2: .*version=2020-11-13, .*version=2020-11-14"):
            find_version(store, str(partly))
    with pytest.raises(DataError, match="there is nothing at"):
        find_version(store, str(tmp_path / "nowhere"))
    deep = tmp_path / "sales.product/version=2020-11-13/sold=2020-01-01"
    deep.mkdir()
    with pytest.raises(DataError, match="only a part of one"):
        find_version(store, str(deep))


def test_the_local_store_links_points_and_understands_uris(tmp_path):
    store = LocalFileSystem()
    store.write_text(f"file://{tmp_path}/a b/one.txt", "1")
    assert store.read_text(f"{tmp_path}/a b/one.txt") == "1"
    store.link({f"{tmp_path}/a b/one.txt": f"{tmp_path}/c/two.txt"})
    assert (tmp_path / "c/two.txt").stat().st_ino == (tmp_path / "a b/one.txt").stat().st_ino
    for target in ("a b", "c"):
        store.point(str(tmp_path), "current", target, {"a b"}.__contains__)
    assert (tmp_path / "current").readlink() == Path("c")
    assert store.folders(str(tmp_path)) == ["a b", "c"]
    assert store.files(str(tmp_path / "nowhere")) == {}
    assert store.read_text(str(tmp_path / "nowhere")) is None
    store.remove(str(tmp_path), ["current"])
    assert (tmp_path / "c").exists() and not (tmp_path / "current").is_symlink()
    (tmp_path / "current").write_text("theirs")
    with pytest.raises(ConfigurationError, match="it is not replaced"):
        store.point(str(tmp_path), "current", "c", {"a b"}.__contains__)
    (tmp_path / "elsewhere").symlink_to(tmp_path / "a b")
    with pytest.raises(ConfigurationError, match="not a link that Lakeward made"):
        store.point(str(tmp_path), "elsewhere", "c", {"a b"}.__contains__)
    assert ((tmp_path / "current").read_text(), (tmp_path / "elsewhere").readlink()) == ("theirs", tmp_path / "a b")


def test_two_commands_that_publish_one_table_wait_for_each_other_and_not_for_its_runs(monkeypatch):
    monkeypatch.setattr(folders, "_WAIT_SECONDS", 0.0)
    table, state = TableId("sales", "product"), MemoryStateStore()
    context: Any = SimpleNamespace(table=table, state=state, config=SimpleNamespace(lease_seconds=30.0))
    with HeldLease(state, table, current_owner("run")), publishing(context) as lease:
        lease.require()
        with pytest.raises(LeaseHeldError, match="another command publishes it"), publishing(context):
            pass
    with publishing(context):
        pass


FOREIGN = (
    "notes.txt",
    ".hidden",
    "deep/er/part-00000.parquet",
    "part-00000-0c2ba1b0-5f5c-4c7e-8f6b-4a4f1f4a2f10-c000.snappy.parquet",
    "part-waaaaaaaaaaaa-00000-0c2ba1b0-5f5c-4c7e-8f6b-4a4f1f4a2f10-c000.snappy.parquet",
    "_lakeward-writing-aaaaaaaaaaaa.json",
    "_writing",
    "sold=2020-01-01/theirs.parquet",
)


def put_foreign(folder: str) -> dict[Path, str]:
    found = {Path(folder, name): f"theirs {name}" for name in FOREIGN}
    for path, text in found.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return found


def bytes_of(found: dict[Path, str]) -> dict[Path, str]:
    return {path: path.read_text() for path in found}


def test_files_of_others_in_a_version_survive_its_replacement_and_its_removal(place, caplog):
    publish(place, "first")
    theirs = put_foreign(place.folder)
    tidy(place)
    assert bytes_of(theirs) == theirs
    publish(place, "second")
    assert (bytes_of(theirs), content_of(place)) == (theirs, "second")
    remove_folder(place, "uuid")
    assert bytes_of(theirs) == theirs
    assert len(place.store.files(place.root)) == len(theirs), "something of the version was left"
    assert "files there that it does not list were left" in caplog.text


@pytest.mark.parametrize("step", STEPS)
def test_files_of_others_survive_a_crash_at_every_step(place, step):
    publish(place, "first")
    theirs = put_foreign(place.folder)
    publish(place, "second", crash_at=step)
    tidy(place)
    assert bytes_of(theirs) == theirs
    assert content_of(place) in ("first", "second")
    own = {path for path in place.store.files(place.root) if Path(place.root, path) not in theirs}
    assert len(own) == 3, "something was left by the writer that died"


def test_hidden_folders_of_others_beside_a_version_are_left_alone(place):
    publish(place, "first")
    names = (
        ".staging-x",
        ".staging-version=v1@aaaaaaaaaaaa",
        ".dropped-version=v1@aaaaaaaaaaaa",
        ".replaced-version=v1@b",
    )
    theirs = {path: text for name in names for path, text in put_foreign(f"{place.root}/{name}").items()}
    tidy(place)
    publish(place, "second")
    remove_folder(place, "uuid")
    tidy(place)
    assert bytes_of(theirs) == theirs


def test_a_version_of_another_table_or_lake_is_not_replaced(place):
    publish(place, "first")
    before = place.store.files(place.folder)
    with pytest.raises(ConfigurationError, match=r"made from the table uuid; expected .* made from another"):
        remove_folder(place, "another")
    assert place.store.files(place.folder) == before
    Path(place.folder).rename(Path(place.root, "version=v2"))
    copied = VersionPlace(place.store, place.root, "v2")
    with pytest.raises(ConfigurationError, match="holds version v1 of"):
        publish(copied, "second")
    assert place.store.files(copied.folder) == before


def test_another_spark_job_in_a_version_is_not_ended_by_ours(tmp_path):
    place = VersionPlace(ObjectStore(), str(tmp_path / "sales.product"), "v1")
    publish(place, "first")
    theirs = Path(place.folder, "_temporary/0/task/part-00000-theirs.parquet")
    theirs.parent.mkdir(parents=True)
    theirs.write_text("theirs")
    with pytest.raises(DataError, match="files of another Spark job"):
        publish(place, "second")
    assert (theirs.read_text(), content_of(place)) == ("theirs", "first")


def test_an_interrupted_removal_is_resumed(place, monkeypatch):
    publish(place, "first")
    theirs = put_foreign(place.folder)
    remove, calls = type(place.store).remove, []

    def once(self: Any, folder: str, paths: Any) -> None:
        calls.append(folder)
        if len(calls) > 1:
            raise Crash
        remove(self, folder, paths)

    monkeypatch.setattr(type(place.store), "remove", once)
    with pytest.raises(Crash):
        remove_folder(place, "uuid")
    monkeypatch.undo()
    assert place.manifest() is None, "it looks whole while it is being removed"
    tidy(place)
    remove_folder(place, "uuid")
    assert bytes_of(theirs) == theirs
    assert len(place.store.files(place.root)) == len(theirs)


def test_a_damaged_file_of_a_version_is_removed_with_it(place):
    publish(place, "first")
    [part] = written_files(place.store, place.folder)
    Path(place.folder, part).write_text("cut")
    publish(place, "second")
    assert [path.rpartition("-")[2] for path in written_files(place.store, place.folder)] == ["second.parquet"]
    Path(place.folder, next(iter(written_files(place.store, place.folder)))).write_text("cut again")
    remove_folder(place, "uuid")
    assert place.store.files(place.root) == {}


@pytest.mark.parametrize("text", ["mine", "[]", "{}", '{"table": "other.table", "version": "v1"}', "\udcff"])
def test_a_pointer_of_another_program_is_not_replaced(place, text):
    copy = CopyPlace(place.store, place.root.rpartition("/")[0], "sales.product")
    file = Path(copy.root, "_current.json")
    assert copy.own_pointer() is None
    file.parent.mkdir()
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigurationError, match="it is not replaced"):
        copy.own_pointer()
    assert copy.pointer() is None
    file.write_text('{"table": "sales.product", "version": "v0"}')
    assert copy.own_pointer() == Pointer("sales.product", "v0")
