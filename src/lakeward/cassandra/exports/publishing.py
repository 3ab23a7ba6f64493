"""From what tasks have read to the export that others see: complete or not at all.

Its ``_manifest.json`` holds:

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
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import AtomicType

from lakeward import __version__
from lakeward.cassandra.origins import BLOCK, EXPORT
from lakeward.diffing.inputs.texts import TEXT_FORMATS, read_text_rows, text_schema, write_text
from lakeward.errors import DataError, RefusedInputError
from lakeward.lake.ownership import MANIFEST, SUCCESS, written_files
from lakeward.lake.publish import publish_folder, require_absent
from lakeward.lake.sets.writing import write_set
from lakeward.lake.stores import read_parquet
from lakeward.reading_back import json_object, refusing_damage
from lakeward.storage.checksum import checksum_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

    from lakeward.cassandra.exports.groups import ReadGroup
    from lakeward.lake.ownership import Claim
    from lakeward.lake.sets.layout import SetLayout
    from lakeward.lake.stores import Store

SNAPSHOTS = "snapshot"
SET = "set"
PLAIN = "plain"
# Beside files of text, for readers that know the columns' types only from it; the manifest does not list it.
SIDECAR = "_schema.json"


def snapshot_folder(root: str, moment: datetime) -> str:
    """Give the folder of the export that began in a minute, in UTC."""
    return f"{root}/{SNAPSHOTS}/{moment.strftime('year=%Y/month=%m/day=%d/hour=%H/minute=%M')}"


def require_free_minute(store: Store, folder: str, export_id: str) -> None:
    """Refuse the second export of a minute, and a folder that holds anything else, before a row is read.

    Raises:
        RefusedInputError: there is one; the message says which.
        ConflictError: another process is writing there.
    """
    first = _complete(store, folder)
    if first is not None:
        told = f"the export {first.get('id')} of {first.get('created')}"
        msg = f"{folder} holds {told} already; a minute has one, and nothing is overwritten"
        raise RefusedInputError(msg, hint="the same command a minute later, or with another --to")
    require_absent(store, folder, lease=export_id)


def is_published(store: Store, folder: str, export_id: str) -> bool:
    """Tell whether an export is there already: who wrote it was ended before it could tidy up."""
    return (_complete(store, folder) or {}).get("id") == export_id


def _complete(store: Store, folder: str) -> dict[str, Any] | None:
    """Give the manifest of what is complete in a folder."""
    text = store.read_text(f"{folder}/{MANIFEST}")
    if text is None or not store.exists(f"{folder}/{SUCCESS}"):
        return None
    remedy = "look at it, and remove that folder if nobody needs it"
    with refusing_damage(f"{folder} is taken, and its {MANIFEST}", hint=remedy, kind=RefusedInputError):
        return json_object(text)


@dataclass(frozen=True)
class Staged:
    """All that tasks have read: its files in ``folder``, the columns they have, and the key of the table."""

    store: Store
    folder: str
    groups: tuple[ReadGroup, ...]
    struct: StructType
    keys: tuple[str, ...]

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return sum(sum(one.rows) for one in self.groups)

    @property
    def files(self) -> list[str]:
        """The names of all files."""
        return [one.file for one in self.groups if one.file is not None]

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
    staged: Staged,
    folder: str,
    *,
    format: str,  # noqa: A002 - the word that the command uses
    layout: str,
    about: Mapping[str, Any],
) -> Published:
    """Let an export appear; ``about`` is what its manifest says beside what the files tell.

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

    # Who works on an export with this number holds it alone.
    return publish_folder(staged.store, folder, write, lease=str(about["id"]))


def _as_set(spark: SparkSession, staged: Staged, claim: Claim) -> Published:
    found = write_set(staged.read(spark), claim.store, claim.folder, staged.keys, expected_rows=staged.rows)
    return Published({one.path: one.size for one in found.buckets}, found.checksum, found)


def _as_it_is(staged: Staged, claim: Claim) -> Published:
    """Take the files as tasks wrote them, under names that say whose they are."""
    begin = claim.store.signature
    places = {one.file: f"{begin}-{one.number:05d}.parquet" for one in staged.groups if one.file is not None}
    staged.store.link({f"{staged.folder}/{old}": f"{claim.folder}/{new}" for old, new in places.items()})
    return Published({places[one.file]: one.bytes for one in staged.groups if one.file is not None})


def _as_text(spark: SparkSession, staged: Staged, claim: Claim, kind: str) -> Published:
    """Write text, and hold what reads back of it against what was read from the cluster."""
    rows, folder = staged.read(spark), claim.folder
    claim.record([SIDECAR])
    write_text(rows, claim.store, folder, kind)
    files = written_files(claim.store, folder)
    again = read_text_rows(spark, staged.store, folder, files, staged.struct, kind)
    expected, found = (checksum_of(frame, staged.struct.names).text for frame in (rows, again))
    if found != expected:
        msg = f"what {kind.upper()} gives back ({found}) is not what was read from the cluster ({expected})"
        raise DataError(msg, hint="nothing was published: --format parquet holds every value")
    staged.store.write_text(f"{folder}/{SIDECAR}", text_schema(staged.struct, kind).json() + "\n")
    return Published(files, expected)


def _manifest(staged: Staged, written: Published, format_: str, layout: str, about: Mapping[str, Any]) -> str:
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
        "schema": [{"name": one.name, "type": _type(one.dataType)} for one in staged.struct.fields],
        BLOCK: about[BLOCK],
        "set": written.set.to_document() if written.set is not None else None,
        "files": [{"path": path, "size": size} for path, size in sorted(written.files.items())],
    }
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


def _type(data_type: DataType) -> Any:
    """Give a type as in CREATE TABLE or, as names in it may hold anything, as Spark's JSON where it is nested."""
    return data_type.simpleString() if isinstance(data_type, AtomicType) else data_type.jsonValue()
