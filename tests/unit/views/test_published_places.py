"""Where readers find the current state: whose names are replaced, and what changes with the settings; no JVM."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.views.manifests import manifest_of

from lakeward.columns import Column
from lakeward.config import parse_config
from lakeward.errors import ConfigurationError, LakewardError
from lakeward.storage.filesystem import LocalFileSystem
from lakeward.views import erasure
from lakeward.views.versions.current import WantedCopy, _finished, shape_of
from lakeward.views.versions.layouts import FileShape, VersionTarget, set_keys
from lakeward.views.versions.manifest import Manifest, read_manifest
from lakeward.views.versions.places import (
    CopyPlace,
    Pointer,
    is_as_written,
    misplaced,
    place_version,
    require_free_names,
    symlink_manifests,
)
from lakeward.views.versions.register import GlueTables, _definition, _require_own_table

COLUMNS = (Column("id", "int"), Column("dept", "string"), Column("seen", "timestamp"), Column("share", "double"))


class Unlinked(LocalFileSystem):
    """A store without links, as S3 and HDFS are."""

    can_point = False


def settings(**body: Any) -> Any:
    config = parse_config({"tables": {"a.b": {"publish": {"to": "./c", **body}}}}, base=Path("/x"))
    return config.tables["a.b"].publish


@pytest.fixture(params=[LocalFileSystem, Unlinked])
def copy(request: pytest.FixtureRequest, tmp_path: Path) -> CopyPlace:
    return CopyPlace(request.param(), str(tmp_path / "to"), "sales.product")


def written(copy: CopyPlace, name: str, content: str, **described: Any) -> Manifest:
    """Write a version of one file, and let readers find it as a publication does."""
    place = copy.version(name)
    file = "part-0.csv" if "single_file" in described else "dept=a/part-0.csv"
    copy.store.write_text(f"{place.folder}/{file}", content)
    digest = copy.store.digest(f"{place.folder}/{file}") if "single_file" in described else None
    manifest = replace(manifest_of(content, {file: len(content)}, name), digest=digest, **described)
    pointer = copy.own_pointer()
    digests = {pointer.digest} if pointer and pointer.digest else set()
    require_free_names(copy, manifest.shape, pointer, digests)
    place_version(copy, place, manifest, pointer)
    symlinks = not manifest.single_file and not copy.store.can_point
    copy.write_pointer(
        Pointer(
            copy.table,
            name,
            copy.path_of(place),
            file=manifest.single_file,
            digest=digest,
            symlinks=symlinks or None,
        )
    )
    assert misplaced(copy, place, manifest) is None
    return manifest


def seen(copy: CopyPlace) -> set[str]:
    """Return what is in the folder of readers."""
    root = Path(copy.root)
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_symlink() or path.is_file()}


@pytest.mark.parametrize(
    ("body", "file_format"),
    [
        ({"single_file": "final.csv"}, "csv"),
        ({"single_file": "final.v2.csv.gz", "header": False}, "csv"),
        ({"single_file": "a b.jsonl"}, "json"),
        ({"single_file": "final.parquet", "format": "parquet"}, "parquet"),
        ({"partition_by": "dept", "columns": ["dept", "id"], "register": "shop.now"}, "parquet"),
    ],
)
def test_settings_that_go_together(body, file_format):
    found = settings(**body)
    assert found.format == file_format
    shape = shape_of(found, "UTC")
    assert shape.layout == ("single" if "single_file" in body else "partitioned")
    # As it is kept with the table, and read from there.
    assert type(found).model_validate(found.model_dump(exclude_unset=True, by_alias=True)) == found


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"partition_by": ["dept"], "layout": "dated", "date_column": "d"}, "both make the folders"),
        ({"single_file": "f.csv", "partition_by": ["dept"]}, "has no folders"),
        ({"single_file": "f.csv", "layout": "dated", "date_column": "d"}, "has no folders"),
        ({"single_file": "f.csv", "format": "parquet"}, "does not end as format"),
        ({"single_file": "f.parquet.gz"}, "is not a file name"),
        ({"single_file": "a/f.csv"}, "is not a file name"),
        ({"single_file": "../f.csv"}, "is not a file name"),
        ({"single_file": "_f.csv"}, "is not a file name"),
        ({"single_file": ".f.csv"}, "is not a file name"),
        ({"single_file": "final"}, "is not a file name"),
        ({"single_file": ""}, "is not a file name"),
        ({"single_file": "final.txt", "format": "csv"}, "is not a file name"),
        ({"header": False}, "header: false is for CSV"),
        ({"columns": ["id", "id"]}, "more than once"),
        ({"partition_by": ["a", "b", "a"]}, "more than once"),
    ],
)
def test_settings_that_contradict_each_other(body, words):
    with pytest.raises(ConfigurationError, match=words):
        settings(**body)


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        (FileShape(chosen=("id", "Dept")), "names Dept; the table has id, dept, seen, share"),
        (FileShape(partition_by=("city",)), "names city; published are id, dept"),
        (FileShape(partition_by=("dept",), chosen=("id",)), "names dept; published are id"),
        (FileShape(partition_by=("id", "dept"), chosen=("dept", "id")), "every column"),
        (FileShape(partition_by=("share",)), "of type double, which cannot name folders"),
        (FileShape(partition_by=("seen",)), "of type timestamp, which cannot name folders"),
    ],
)
def test_columns_that_cannot_be_published(shape, words):
    with pytest.raises(ConfigurationError, match=words) as refused:
        shape.published_columns("sales.product", COLUMNS)
    assert refused.value.hint


def test_columns_are_published_in_the_order_of_the_settings():
    assert FileShape().published_columns("t", COLUMNS) == COLUMNS
    found = FileShape(chosen=("share", "id"), partition_by=("id",)).published_columns("t", COLUMNS)
    assert [column.name for column in found] == ["share", "id"]


@pytest.mark.parametrize(
    "shape", [FileShape(chosen=("dept",)), FileShape(partition_by=("dept",)), FileShape(single_file="f.parquet")]
)
def test_such_files_are_no_snapshot_set(shape):
    context: Any = SimpleNamespace(settings=SimpleNamespace(primary_key=("id",)))
    chosen = shape.published_columns("t", COLUMNS)
    assert set_keys(context, VersionTarget(LocalFileSystem(), "/x", shape, chosen, "")) == ()
    assert set_keys(context, VersionTarget(LocalFileSystem(), "/x", FileShape(), COLUMNS, "")) == ("id",)


def test_a_manifest_keeps_the_shape_and_one_of_former_versions_has_none_of_it():
    plain = manifest_of("a", {"part-0.parquet": 1})
    assert not {"partition_by", "chosen", "header", "single_file", "digest"} & plain.to_dict().keys()
    assert read_manifest(plain.to_json(), "there").shape == FileShape()
    shaped = replace(
        plain, format="csv", chosen=("id",), header=False, single_file="f.csv", digest="d", layout="single"
    )
    found = read_manifest(shaped.to_json(), "there")
    assert found == shaped
    assert found.shape == FileShape("csv", "single", chosen=("id",), single_file="f.csv", header=False)


@pytest.mark.parametrize("to", ["/data/out", "s3://bucket", "s3://bucket/a/b", "hdfs://name:8020/x"])
def test_a_copy_is_found_by_its_versions_of_both_layouts(to):
    store = LocalFileSystem()
    copy = CopyPlace(store, to, "sales.product")
    former, version = f"{to}/sales.product/version=op-1", copy.version("op-2").folder
    assert CopyPlace.of(store, former) == CopyPlace.of(store, version) == copy
    assert copy.holds(former) and copy.holds(version)
    assert (copy.is_former_layout(former), copy.is_former_layout(version)) == (True, False)
    assert not copy.holds(f"{to}/sales.product2/version=op-1")
    assert not version.startswith(f"{copy.root}/"), "readers of the folder would scan it"


def test_symlink_manifests_list_each_file_once():
    files = ["dept=a%2Fb/p0", "dept=a%2Fb/p1", "dept=__HIVE_DEFAULT_PARTITION__/p0"]
    found = symlink_manifests("s3a://b/v", files, partitioned=True)
    assert found == {
        "dept=__HIVE_DEFAULT_PARTITION__/manifest": "s3://b/v/dept=__HIVE_DEFAULT_PARTITION__/p0\n",
        "dept=a%2Fb/manifest": "s3://b/v/dept=a%2Fb/p0\ns3://b/v/dept=a%2Fb/p1\n",
    }
    assert symlink_manifests("hdfs:///v", ["p1", "p0"], partitioned=False) == {
        "manifest": "hdfs:///v/p0\nhdfs:///v/p1\n"
    }
    assert symlink_manifests("hdfs:///v", [], partitioned=False) == {"manifest": ""}, "an empty table is no missing one"
    assert symlink_manifests("hdfs:///v", [], partitioned=True) == {}


def test_readers_are_led_to_one_kind_of_place_at_a_time(copy):
    at_place = {"current"} if copy.store.can_point else {"_symlink_format_manifest/manifest"}
    written(copy, "op-1", "one")
    assert seen(copy) == {"_current.json"} | at_place
    written(copy, "op-2", "two", format="csv", layout="single", single_file="final.csv")
    assert seen(copy) == {"_current.json", "final.csv"}
    written(copy, "op-3", "three", format="csv", layout="single", single_file="last.csv")
    assert seen(copy) == {"_current.json", "last.csv"}
    assert Path(copy.root, "last.csv").read_text() == "three"
    written(copy, "op-4", "four", layout="partitioned", partition_by=("dept",))
    partitioned = at_place if copy.store.can_point else {"_symlink_format_manifest/dept=a/manifest"}
    assert seen(copy) == {"_current.json"} | partitioned
    written(copy, "op-5", "five")
    assert seen(copy) == {"_current.json"} | at_place


def test_a_file_that_somebody_replaced_is_neither_overwritten_nor_removed(copy, caplog):
    single = {"format": "csv", "layout": "single", "single_file": "final.csv"}
    file = Path(copy.root, "final.csv")
    file.parent.mkdir(parents=True)
    file.write_text("theirs")
    with pytest.raises(ConfigurationError, match="is not what Lakeward wrote there"):
        written(copy, "op-1", "one", **single)
    file.unlink()
    manifest = written(copy, "op-1", "one", **single)
    file.unlink()
    file.write_text("own")
    with pytest.raises(ConfigurationError, match="is not what Lakeward wrote there"):
        written(copy, "op-2", "two", **single)
    assert misplaced(copy, copy.version("op-1"), manifest) is None, "of equal size: only its content shows it"
    written(copy, "op-3", "three")
    assert file.read_text() == "own"
    assert "it was left" in caplog.text


def test_what_a_killed_process_left_beside_the_file_is_replaced(copy):
    single = {"format": "csv", "layout": "single", "single_file": "final.csv"}
    written(copy, "op-1", "one", **single)
    Path(copy.root, ".final.csv.draft").write_text("half")
    written(copy, "op-2", "two", **single)
    written(copy, "op-2", "two", **single)
    assert seen(copy) == {"_current.json", "final.csv"}


def test_a_file_that_was_edited_in_place_is_no_version_to_go_back_to(copy):
    manifest = written(copy, "op-1", "one", format="csv", layout="single", single_file="final.csv")
    place = copy.version("op-1")
    assert is_as_written(place, manifest)
    # On a disk it is the same file as that of the version.
    Path(copy.root, "final.csv").write_text("two")
    assert not is_as_written(place, manifest), "of equal size, but not what was written"
    folders = written(copy, "op-2", "folders")
    assert is_as_written(copy.version("op-2"), folders)
    Path(copy.version("op-2").folder, "dept=a/part-0.csv").write_text("longer than before")
    assert not is_as_written(copy.version("op-2"), folders)


def test_symlink_manifests_of_another_program_are_not_replaced(tmp_path):
    copy = CopyPlace(Unlinked(), str(tmp_path / "to"), "sales.product")
    theirs = Path(copy.root, "_symlink_format_manifest/manifest")
    theirs.parent.mkdir(parents=True)
    theirs.write_text("s3://elsewhere/part-0.parquet\n")
    with pytest.raises(ConfigurationError, match="lists no version of"):
        written(copy, "op-1", "one")
    # Those that a crash left before the pointer was written are known by what they list.
    theirs.write_text(f"{copy.version('op-0').folder}/part-0.parquet\n")
    written(copy, "op-1", "one")
    assert theirs.read_text() == f"{copy.version('op-1').folder}/dept=a/part-0.csv\n"


def test_a_link_of_another_program_is_not_replaced(tmp_path):
    copy = CopyPlace(LocalFileSystem(), str(tmp_path / "to"), "sales.product")
    link = Path(copy.root, "current")
    link.parent.mkdir(parents=True)
    others = (
        "/etc",
        "../mine",
        "backup",
        "version=7",
        "/data/version=1",
        "../_lakeward_versions/other.table/version=1",
    )
    for theirs in (*others, "../_lakeward_versions/sales.product/version=1/part"):
        link.symlink_to(theirs)
        with pytest.raises(ConfigurationError, match="it is not replaced"):
            written(copy, "op-1", "one")
        # Neither does a single file remove it, which has no link beside it.
        written(copy, "op-1", "one", format="csv", layout="single", single_file="final.csv")
        assert str(link.readlink()) == theirs
        link.unlink()
    # That to a recorded version of the former layout is ours, and so is that of a pointer of then.
    place, manifest = copy.version("op-1"), written(copy, "op-1", "one")
    for known, path in (([f"{copy.root}/version=op-0"], ""), ([], "version=op-0")):
        link.unlink()
        link.symlink_to("version=op-0")
        place_version(copy, place, manifest, Pointer(copy.table, "op-0", path), known)
    assert (link / "dept=a/part-0.csv").read_text() == "one"


def test_the_pointer_of_a_later_version_is_read(copy):
    copy.store.write_text(
        f"{copy.root}/_current.json", json.dumps({"table": copy.table, "version": "op-7", "path": "x", "novel": [1]})
    )
    assert copy.own_pointer() == Pointer("sales.product", "op-7", "x")


def test_a_copy_without_the_key_counts_for_an_erasure_until_it_was_made_again(monkeypatch):
    manifest = manifest_of("a", {"part-0.csv": 1, "part-1.csv": 1})
    version = SimpleNamespace(manifest=manifest, read=lambda _: SimpleNamespace(columns=["name"]))
    monkeypatch.setattr(erasure, "find_version", lambda *_: version)
    monkeypatch.setattr(erasure, "open_filesystem", lambda *_: None)
    monkeypatch.setattr(erasure, "erasure_of", lambda _: SimpleNamespace(columns=None))
    context: Any = SimpleNamespace(settings=SimpleNamespace(primary_key=("id",)), spark=None, config=None)
    record: Any = SimpleNamespace(op=5)
    for op, files in ((4, ("part-0.csv", "part-1.csv")), (5, ())):
        publication: Any = SimpleNamespace(location="/x", op=op)
        assert erasure.rows_in_publication(context, record, publication).files == files


def test_a_version_counts_as_finished_only_while_it_is_the_newest(tmp_path):
    wanted = WantedCopy(CopyPlace(LocalFileSystem(), str(tmp_path), "sales.product"), FileShape())
    manifest = manifest_of("a", {})
    one, other = (SimpleNamespace(id=name) for name in ("a", "b"))
    known: Any = [other, one]
    assert _finished(manifest, wanted, 1, known) is one
    known = [one, other]
    assert _finished(manifest, wanted, 1, known) is None, "retention would remove what readers were led to"
    known = [one]
    assert _finished(manifest, wanted, 2, known) is None
    assert _finished(manifest, replace(wanted, shape=FileShape("csv")), 1, known) is None
    assert _finished(manifest, wanted, 1, []) is None


def test_a_folder_in_place_of_the_file_is_refused(copy):
    Path(copy.root, "final.csv").mkdir(parents=True)
    with pytest.raises(LakewardError):
        written(copy, "op-1", "one", format="csv", layout="single", single_file="final.csv")


def test_a_registered_table_belongs_to_one_table():
    _require_own_table("d.t", {"Parameters": {"lakeward.table": "sales.product"}}, "sales.product")
    for parameters, words in (({}, "was not made by Lakeward"), ({"lakeward.table": "a.b"}, "belongs to a.b")):
        with pytest.raises(ConfigurationError, match=words):
            _require_own_table("d.t", {"Parameters": parameters}, "sales.product")


@pytest.mark.parametrize("code", ["InternalServiceException", "EntityNotFoundException"])
def test_a_partition_that_glue_does_not_remove_is_an_error(code):
    errors = [{"PartitionValues": ["a"], "ErrorDetail": {"ErrorCode": code, "ErrorMessage": "the reason"}}]
    glue = GlueTables(SimpleNamespace(batch_delete_partition=lambda **_: {"Errors": errors}))
    if code == "EntityNotFoundException":
        glue._drop_partitions("d", "t", [("a",)])
        return
    with pytest.raises(ConfigurationError, match=r"refused 1 partitions of d\.t: the reason"):
        glue._drop_partitions("d", "t", [("a",)])


def test_a_registered_table_belongs_to_one_lake():
    own = {"lakeward.table": "sales.product"}
    for parameters in (own, {**own, "lakeward.mirror": "mine"}):
        _require_own_table("d.t", {"Parameters": parameters}, "sales.product", "mine")
    with pytest.raises(ConfigurationError, match=r"another table of the name sales\.product, made from theirs"):
        _require_own_table("d.t", {"Parameters": {**own, "lakeward.mirror": "theirs"}}, "sales.product", "mine")


def test_a_copy_belongs_to_one_lake(copy):
    written(copy, "op-1", "one", format="csv", layout="single")
    mine, theirs = replace(copy, mirror_uuid="uuid"), replace(copy, mirror_uuid="theirs")
    assert mine.own_pointer() == theirs.own_pointer(), "nothing proves whose it is"
    for pointer in (Pointer(copy.table, "op-1", "x", mirror_uuid="uuid"), Pointer("a.b", "op-1", mirror_uuid="uuid")):
        copy.write_pointer(pointer)
        assert mine.own_pointer() == pointer
        with pytest.raises(ConfigurationError, match=r"made from uuid; expected one made from theirs"):
            theirs.own_pointer()


def test_the_version_shows_whose_a_former_pointer_is(copy):
    manifest = written(copy, "op-1", "one", format="csv", layout="single")
    folder = copy.version("op-1").folder
    copy.store.write_text(f"{folder}/_manifest.json", manifest.to_json())
    copy.store.write_text(f"{folder}/_SUCCESS", "")
    assert replace(copy, mirror_uuid=manifest.lineage.mirror_uuid).own_pointer() == copy.own_pointer()
    with pytest.raises(ConfigurationError, match="expected one made from theirs"):
        replace(copy, mirror_uuid="theirs").own_pointer()


def test_the_location_of_a_version_is_no_part_of_its_definition():
    def found(**described: Any) -> Any:
        return SimpleNamespace(manifest=replace(manifest_of("a", {}), **described), folder=str(described))

    one = _definition(found(version="op-1"), {})
    assert one == _definition(found(version="op-2"), {})
    assert len({one, _definition(found(), {"id": "the key"}), _definition(found(format="csv"), {})}) == 3
    assert len({_definition(found(format="csv", header=header), {}) for header in (None, False)}) == 2
