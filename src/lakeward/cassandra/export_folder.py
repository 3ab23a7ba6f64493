"""The folder of a table's exports and change sets: publish an export, and list what is complete.

The ``_manifest.json`` of an export holds:

===================  ==================================================================================================
field                meaning
===================  ==================================================================================================
kind, id, created    ``export``, a number of its own, and when the last range was read
table                keyspace and table
rows, checksum       of all rows; files as they were read (``layout`` plain) have no checksum
primary_key          the table's, from ``system_schema``
format, layout       ``parquet``, ``json`` or ``csv``; ``set`` or ``plain``
schema               columns of the files with their types
cassandra            cluster, keyspace and table; ``schema`` with the types of CQL; when reading ``started`` and
                     ``ended``; ``consistency``, ``partitioner``, ``server`` and ``driver``; whether there are times of
                     writing and expiry, and whose collections have (``collection_writetime``: ``max`` of the elements
                     or of the ``row``); ``where`` and ``columns`` as asked for; the rows of each of the ``ranges``
set                  buckets and their checksums, where the layout is a set
files                every file with its size
===================  ==================================================================================================
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import AtomicType

from lakeward import __version__
from lakeward.cassandra.snapshots import BLOCK, EXPORT, part_of
from lakeward.diffing.stored.addresses import absolute
from lakeward.diffing.stored.changesets import KIND as CHANGE_SET
from lakeward.diffing.stored.folders import INCREMENTAL, Listing
from lakeward.diffing.stored.rows import TEXT_FORMATS, read_text_rows, text_schema, write_text
from lakeward.errors import DataError, RefusedInputError
from lakeward.storage.checksum import checksum_of
from lakeward.storage.claims import MANIFEST, SUCCESS, listed_files, remove_files, remove_listed, written_files
from lakeward.storage.filesystem import read_parquet
from lakeward.storage.publish import not_as_written, publish_folder, require_absent
from lakeward.storage.sets import write_set
from lakeward.text import json_object, refusing_damage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

    from lakeward.cassandra.cql import TableName
    from lakeward.cassandra.range_files import ReadGroup
    from lakeward.storage.claims import Claim
    from lakeward.storage.filesystem import FileSystem
    from lakeward.storage.sets import SetLayout

SNAPSHOTS = "snapshot"
SET = "set"
PLAIN = "plain"
# Beside files of text, for readers that know the columns' types only from it; the manifest does not list it.
SIDECAR = "_schema.json"


def snapshot_folder(root: str, moment: datetime) -> str:
    """Return the folder of the export that began in a minute, in UTC."""
    return f"{root}/{SNAPSHOTS}/{moment.strftime('year=%Y/month=%m/day=%d/hour=%H/minute=%M')}"


def require_free_minute(store: FileSystem, folder: str, export_id: str) -> None:
    """Refuse a second export in a minute, and a folder with other files, before a row is read.

    Raises:
        RefusedInputError: the folder is taken; the message says by what.
        ConflictError: another process is writing there.
    """
    first = _complete(store, folder)
    if first is not None:
        export = f"the export {first.get('id')} of {first.get('created')}"
        msg = f"{folder} already holds {export}; there is one per minute, and nothing is overwritten"
        raise RefusedInputError(msg, hint="run the same command a minute later, or with another --to")
    require_absent(store, folder, lease=export_id)


def is_published(store: FileSystem, folder: str, export_id: str) -> bool:
    """Whether an export is already complete: its process was killed before it removed the journal."""
    return (_complete(store, folder) or {}).get("id") == export_id


def _complete(store: FileSystem, folder: str) -> dict[str, Any] | None:
    """Return the manifest of a complete folder; None where it is not complete."""
    text = store.read_text(f"{folder}/{MANIFEST}")
    if text is None or not store.exists(f"{folder}/{SUCCESS}"):
        return None
    remedy = "inspect it, and remove that folder if it is not needed"
    with refusing_damage(f"{folder} is taken, and its {MANIFEST}", hint=remedy, kind=RefusedInputError):
        return json_object(text)


@dataclass(frozen=True)
class StagedRows:
    """The rows that tasks have read: files in ``folder``, their columns, and the key of the table."""

    store: FileSystem
    folder: str
    groups: tuple[ReadGroup, ...]
    struct: StructType
    keys: tuple[str, ...]

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(sum(group.rows) for group in self.groups)

    @property
    def files(self) -> list[str]:
        """The names of all files."""
        return [group.file for group in self.groups if group.file is not None]

    def read(self, spark: SparkSession) -> DataFrame:
        """Read the rows."""
        if not self.files:
            return spark.createDataFrame([], self.struct)
        return read_parquet(spark, self.store, self.folder, self.files, self.struct)


@dataclass(frozen=True)
class Published:
    """Files of an export with their sizes, and what is known of their content."""

    files: Mapping[str, int]
    checksum: str | None = None
    set: SetLayout | None = None


def publish(
    spark: SparkSession,
    staged: StagedRows,
    folder: str,
    *,
    format: str,  # noqa: A002 - the word that the command uses
    layout: str,
    about: Mapping[str, Any],
) -> Published:
    """Publish an export; ``about`` is what its manifest contains besides the files.

    Raises:
        RefusedInputError: the folder is taken.
        DataError: the files do not hold what was read.
    """

    def write(claim: Claim) -> tuple[Published, str]:
        if format in TEXT_FORMATS:
            written = _as_text(spark, staged, claim, format)
        elif layout == SET:
            written = _as_set(spark, staged, claim)
        else:
            written = _as_it_is(staged, claim)
        return written, _manifest(staged, written, format, layout, about)

    # Only one process works on an export with this id.
    return publish_folder(staged.store, folder, write, lease=str(about["id"]))


def _as_set(spark: SparkSession, staged: StagedRows, claim: Claim) -> Published:
    found = write_set(staged.read(spark), claim.store, claim.folder, staged.keys, expected_rows=staged.rows)
    return Published({bucket.path: bucket.size for bucket in found.buckets}, found.checksum, found)


def _as_it_is(staged: StagedRows, claim: Claim) -> Published:
    """Publish the files as tasks wrote them, under names that identify the writer."""
    begin = claim.store.signature
    places = {group.file: f"{begin}-{group.number:05d}.parquet" for group in staged.groups if group.file is not None}
    staged.store.link({f"{staged.folder}/{old}": f"{claim.folder}/{new}" for old, new in places.items()})
    return Published({places[group.file]: group.bytes for group in staged.groups if group.file is not None})


def _as_text(spark: SparkSession, staged: StagedRows, claim: Claim, kind: str) -> Published:
    """Write text files, read them back, and compare with what was read from the cluster."""
    rows, folder = staged.read(spark), claim.folder
    claim.record([SIDECAR])
    write_text(rows, claim.store, folder, kind)
    files = written_files(claim.store, folder)
    again = read_text_rows(spark, staged.store, folder, files, staged.struct, kind)
    expected, found = (checksum_of(frame, staged.struct.names).text for frame in (rows, again))
    if found != expected:
        msg = f"the {kind.upper()} files do not read back ({found}) as what was read from the cluster ({expected})"
        raise DataError(msg, hint="nothing was published; --format parquet holds every value")
    staged.store.write_text(f"{folder}/{SIDECAR}", text_schema(staged.struct, kind).json() + "\n")
    return Published(files, expected)


def _manifest(staged: StagedRows, written: Published, format_: str, layout: str, about: Mapping[str, Any]) -> str:
    document = {
        "kind": EXPORT,
        "id": about["id"],
        "created": about[BLOCK]["ended"],
        "lakeward": __version__,
        "table": about["table"],
        "rows": staged.rows,
        "checksum": written.checksum,
        "primary_key": list(staged.keys),
        "format": format_,
        "layout": layout,
        "schema": [{"name": field.name, "type": _type(field.dataType)} for field in staged.struct.fields],
        BLOCK: about[BLOCK],
        "set": written.set.to_dict() if written.set is not None else None,
        "files": [{"path": path, "size": size} for path, size in sorted(written.files.items())],
    }
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


def _type(data_type: DataType) -> Any:
    """Return a type as in CREATE TABLE or, as names in it may hold anything, as Spark's JSON where it is nested."""
    return data_type.simpleString() if isinstance(data_type, AtomicType) else data_type.jsonValue()


_REMOVED, _REMOVED_BY = "_REMOVED", "by lakeward\n"
MINUTE_NAME = "year=%Y/month=%m/day=%d/hour=%H/minute=%M"
_MINUTE_SECONDS = 60
# How much the clocks of the machines that export and that sync may differ.
CLOCKS_DIFFER = timedelta(days=1)


def table_folder(to: str, name: TableName) -> str:
    """Return the folder of a table's exports and change sets below a folder of exports."""
    return f"{absolute(to)}/{name.keyspace}/{name.table}"


def seconds_to_next_minute(now: datetime) -> float:
    """Return the seconds until the next minute begins."""
    return _MINUTE_SECONDS - now.timestamp() % _MINUTE_SECONDS


def name_in(identity: Mapping[str, Any]) -> str:
    """Return the name of the export that a recorded state identifies; empty where it is not an export."""
    _, found, name = str(identity.get("location", "")).rpartition(f"/{SNAPSHOTS}/")
    return name if found else ""


def _earlier(name: str, span: timedelta) -> str:
    """Return the name of an earlier time; empty, which sorts first, where a name is not a time."""
    try:
        return (datetime.strptime(f"{name} +0000", f"{MINUTE_NAME} %z") - span).strftime(MINUTE_NAME)
    except ValueError:
        return ""


@dataclass(frozen=True)
class KnownExport:
    """A complete export: ``name`` is its path below ``snapshot/``, which sorts by time.

    ``cluster`` is that of the table; ``part`` says which part of the table it holds, None where it holds all of it.
    ``expires`` is whether it has the expiry times of cells.
    """

    name: str
    folder: str
    id: str
    cluster: str | None = None
    part: str | None = None
    expires: bool = False


@dataclass(frozen=True)
class KnownChangeSet:
    """A complete change set, and whether there is anything in it."""

    folder: str
    id: str
    is_empty: bool


@dataclass(frozen=True)
class FoundExports:
    """The usable exports, the oldest first, and by folder the reason why others are not usable."""

    exports: tuple[KnownExport, ...]
    unusable: Mapping[str, str]


def _has_sidecar(manifest: str | None) -> bool:
    """Whether an export has a schema file that its manifest does not list, as text formats do."""
    with refusing_damage(
        "the manifest of an export", hint="remove that export's folder, or restore its _manifest.json"
    ):
        document = json_object(manifest or "{}")
    return document.get("kind") == EXPORT and document.get("format") in TEXT_FORMATS


class ExportFolder:
    """``<to>/<keyspace>/<table>``: exports below ``snapshot/``, change sets below ``incremental/``.

    What other processes add is seen by the next call. The manifest of a complete export is read once; later calls only
    check its files.
    """

    def __init__(self, store: FileSystem, folder: str) -> None:
        self.store, self.folder = store, folder
        self._known: dict[str, tuple[KnownExport, Mapping[str, int]]] = {}

    def names(self) -> list[str]:
        """Return the names of the exports that are marked as complete, the oldest first."""
        return self._complete(SNAPSHOTS)

    def exports(self, after: str = "") -> FoundExports:
        """Return the exports later than the named one, by default all.

        An export is complete once every file of its manifest is there: a tool that copies it may copy the mark first.
        """
        listing = self._listing(SNAPSHOTS)
        names = set(listing.complete)
        self._known = {name: known for name, known in self._known.items() if name in names}
        usable, unusable = [], {}
        for name in sorted(known for known in names if known > after):
            found = self._usable(name, listing.files)
            if isinstance(found, KnownExport):
                usable.append(found)
            else:
                unusable[f"{listing.location}/{name}"] = found
        return FoundExports(tuple(usable), unusable)

    def newest(self) -> KnownExport | None:
        """Return the latest usable export; None where there is none."""
        listing = self._listing(SNAPSHOTS)
        for name in sorted((known for known in listing.complete if known), reverse=True):
            found = self._usable(name, listing.files)
            if isinstance(found, KnownExport):
                return found
        return None

    def _usable(self, name: str, present: Mapping[str, int]) -> KnownExport | str:
        """Return an export, or the reason why it is not usable."""
        if name not in self._known:
            try:
                self._known[name] = self._read(name)
            except RefusedInputError as error:
                return error.message.partition(": ")[2]
        export, files = self._known[name]
        wrong = not_as_written({f"{name}/{path}": size for path, size in files.items()}, present)
        if wrong is not None:
            # What replaces it has its own manifest.
            del self._known[name]
            return wrong
        return export if export.part is None else f"holds {export.part}"

    def _read(self, name: str) -> tuple[KnownExport, Mapping[str, int]]:
        folder = f"{self.folder}/{SNAPSHOTS}/{name}"
        manifest = self._manifest(folder)
        block = manifest.get(BLOCK) or {}
        part = part_of(block.get("where"), block.get("columns") or ())
        export = KnownExport(name, folder, str(manifest["id"]), block.get("cluster"), part, bool(block.get("ttl")))
        return export, {file["path"]: file["size"] for file in manifest["files"]}

    def export(self, name: str) -> KnownExport:
        """Return an export by its name.

        Raises:
            RefusedInputError: its manifest is damaged.
        """
        return self._read(name)[0]

    def name_of(self, identity: Mapping[str, Any]) -> str | None:
        """Return the name of the export that a recorded state identifies; None where it is not in this folder."""
        name = name_in(identity)
        folder = f"{self.folder}/{SNAPSHOTS}/{name}"
        if not name or not self.store.exists(f"{folder}/{SUCCESS}"):
            return None
        return name if self._manifest(folder)["id"] == identity.get("id") else None

    def change_set(self, past_id: str, current: KnownExport) -> KnownChangeSet | None:
        """Return the change set that leads from one export to another; None where there is none."""
        # It was made after both exports, maybe by another clock: older change sets need not be opened.
        first = _earlier(current.name, CLOCKS_DIFFER)
        for name in reversed([known for known in self._complete(INCREMENTAL) if known >= first]):
            folder = f"{self.folder}/{INCREMENTAL}/{name}"
            manifest = self._manifest(folder)
            if (manifest["past"].get("id"), manifest["current"].get("id")) == (past_id, current.id):
                counts = manifest["counts"]
                is_empty = not any(counts[word] for word in ("inserted", "changed", "deleted"))
                return KnownChangeSet(folder, str(manifest["id"]), is_empty)
        return None

    def remove_before(self, name: str) -> list[str]:
        """Remove the exports and change sets older than the named export; return the removed folders.

        Only files that a manifest lists are removed. Other files stay, and so does a folder without a manifest.
        """
        old = [folder for kind in (SNAPSHOTS, INCREMENTAL) for folder in self._older(self._listing(kind), name)]
        return [folder for folder in old if self._is_removed(folder)]

    def _is_removed(self, folder: str) -> bool:
        """Remove the files that a manifest lists, or finish such a removal; return whether there was one."""
        manifest = self.store.read_text(f"{folder}/{MANIFEST}")
        if listed_files(manifest) is not None:
            # If this is interrupted, the next call finds the rest by the mark.
            self.store.write_text(f"{folder}/{_REMOVED}", _REMOVED_BY)
            remove_listed(self.store, folder, manifest, others=[SIDECAR] if _has_sidecar(manifest) else [])
        elif self.store.read_text(f"{folder}/{_REMOVED}") != _REMOVED_BY:
            return False
        remove_files(self.store, folder, [_REMOVED])
        self._remove_empty_above(folder)
        return True

    @staticmethod
    def _older(listing: Listing, name: str) -> list[str]:
        begun = {path.removesuffix(f"/{_REMOVED}") for path in listing.files if path.endswith(f"/{_REMOVED}")}
        return [f"{listing.location}/{folder}" for folder in sorted({*listing.complete, *begun}) if "" < folder < name]

    def _remove_empty_above(self, folder: str) -> None:
        parent = folder.rpartition("/")[0]
        while "=" in parent.rpartition("/")[2] and not self.store.files(parent) and not self.store.folders(parent):
            self.store.prune(parent)
            parent = parent.rpartition("/")[0]

    def _listing(self, kind: str) -> Listing:
        location = f"{self.folder}/{kind}"
        return Listing(location, self.store.files(location))

    def _complete(self, kind: str) -> list[str]:
        return sorted(name for name in self._listing(kind).complete if name)

    def _manifest(self, folder: str) -> dict[str, Any]:
        what, remedy = f"{folder}: its {MANIFEST}", "remove that folder, or restore its files"
        with refusing_damage(what, hint=remedy, kind=RefusedInputError):
            found = json_object(self.store.read_text(f"{folder}/{MANIFEST}") or "")
            # Accessed here, so that a missing key is reported here.
            named = ("past", "current", "counts") if found.get("kind") == CHANGE_SET else ("files",)
            _ = [found[name] for name in ("id", *named)]
        return found
