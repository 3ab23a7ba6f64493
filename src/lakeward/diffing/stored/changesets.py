"""Change sets on disk: their manifests, how they are found and read, and the order in which they apply.

The manifest, ``_manifest.json`` beside the files, has these fields:

=================  ==================================================================================================
field              meaning
=================  ==================================================================================================
kind               always ``change-set``
id                 identifies the change set, 32 hexadecimal digits
created            when it was made, UTC
lakeward           the version that wrote it
past, current      both parents: ``kind``, ``location``, ``created``, ``rows``, ``checksum`` and other properties that
                   identify them, as far as known
keys               the columns that identify a row
past_schema        columns of the past with their types, in order; nested types in Spark's JSON
current_schema     the same for the current side: the columns that applying the change set results in
exact              whether values were compared for equality in all columns: only then does applying it to the past
                   result in exactly the current side, and two change sets can be composed
options            names and labels: ``diff_column``, ``left_column_prefix``, ``right_column_prefix``,
                   ``insert_value``, ``change_value``, ``delete_value``, ``nochange_value``, ``change_column``,
                   ``diff_mode``, ``sparse_mode``, ``include_unchanged``, ``ignore_columns``
comparators        comparators other than plain equality: ``default``, ``types`` by type, ``columns`` by name
counts             rows ``inserted``, ``changed``, ``deleted`` and, where known, ``unchanged``
format             ``parquet``, ``json`` or ``csv``
schema             columns of the files with their types, as :func:`lakeward.diffing.stored.rows.read_rows` returns them
files              every file with its size
=================  ==================================================================================================
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as T
from pyspark.sql.types import StructField, StructType

from lakeward import __version__
from lakeward.diffing.frames.comparators import parse_comparator
from lakeward.diffing.frames.options import DiffMode, DiffOptions
from lakeward.diffing.frames.parsed_diff import parse_diff
from lakeward.diffing.frames.patching import is_exact
from lakeward.diffing.frames.refusals import input_errors
from lakeward.diffing.stored.files import SPARK_CSV, PlainFiles, format_of_name
from lakeward.diffing.stored.folders import Listing, require_one
from lakeward.diffing.stored.rows import read_rows
from lakeward.documents import Document
from lakeward.errors import RefusedInputError
from lakeward.storage.claims import MANIFEST
from lakeward.storage.filesystem import for_reading, open_filesystem, read_parquet
from lakeward.storage.publish import not_as_written
from lakeward.storage.sets import file_list, sizes_of
from lakeward.text import json_object, refusing_damage
from lakeward.transforms.columns import columns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from lakeward.config import Config
    from lakeward.diffing.frames.alignment import Alignment
    from lakeward.diffing.frames.parsed_diff import ParsedDiff
    from lakeward.storage.filesystem import FileSystem


KIND = "change-set"
_COMPARATORS = ("default_comparator", "column_comparators", "type_comparators")
_WRITTEN_OPTIONS = tuple(
    option.name for option in fields(DiffOptions) if option.name not in (*_COMPARATORS, "duplicate_keys")
)


def _columns(struct: StructType) -> list[dict[str, Any]]:
    return [{"name": field.name, "type": field.dataType.jsonValue()} for field in struct.fields]


def _written_options(options: DiffOptions) -> dict[str, Any]:
    return {name: getattr(options, name) for name in _WRITTEN_OPTIONS}


@dataclass(frozen=True)
class ChangeSetManifest(
    Document,
    keys=(
        "kind", "id", "created", "past", "current", "keys", "past_schema", "current_schema", "options", "exact",
        "counts", "format", "schema", "files", "lakeward", "comparators",
    ),
    write={
        **dict.fromkeys(("past_schema", "current_schema", "schema"), _columns),
        "options": _written_options,
        "files": file_list,
    },
):  # fmt: skip
    """A change set: its parents, what identifies a row, how its rows are laid out, and every file of it.

    ``schema`` and ``files`` are filled in when it is written.
    """

    id: str
    created: str
    past: Mapping[str, Any]
    current: Mapping[str, Any]
    keys: tuple[str, ...]
    past_schema: StructType
    current_schema: StructType
    options: DiffOptions
    exact: bool
    counts: Mapping[str, int]
    format: str = "parquet"
    schema: StructType = field(default_factory=StructType)
    files: Mapping[str, int] = field(default_factory=dict)
    lakeward: str = ""

    @property
    def kind(self) -> str:
        """The kind of the manifest, which distinguishes a change set from a snapshot."""
        return KIND

    @property
    def comparators(self) -> dict[str, Any]:
        """The comparators other than plain equality."""
        options = self.options
        return {
            "default": str(options.default_comparator) if options.default_comparator is not None else None,
            "types": {name: str(comparator) for name, comparator in options.type_comparators.items()},
            "columns": {name: str(comparator) for name, comparator in options.column_comparators.items()},
        }

    def to_json(self) -> str:
        """Return the manifest as JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=2, default=str) + "\n"


def describe(
    alignment: Alignment,
    options: DiffOptions,
    *,
    past: Mapping[str, Any],
    current: Mapping[str, Any],
    counts: Mapping[str, int],
    format: str = "parquet",  # noqa: A002 - the word that the command uses
    created: datetime | None = None,
) -> ChangeSetManifest:
    """Return the manifest of a change set without schema and files, which are added when it is written."""
    return ChangeSetManifest(
        id=uuid.uuid4().hex,
        created=(created or datetime.now(UTC)).astimezone(UTC).isoformat(),
        past=past,
        current=current,
        keys=tuple(key.name for key in alignment.keys),
        past_schema=alignment.left,
        current_schema=alignment.right,
        options=options,
        exact=is_exact(options),
        counts=counts,
        format=format,
        lakeward=__version__,
    )


def read_change_set_manifest(text: str, folder: str) -> ChangeSetManifest:
    """Read what :meth:`ChangeSetManifest.to_json` wrote.

    Raises:
        RefusedInputError: the text is not the manifest of a change set, or is damaged.
    """
    remedy = "make the change set again: lakeward diff … --to PATH"
    with refusing_damage(f"{folder}: its {MANIFEST}", hint=remedy, kind=RefusedInputError):
        data = json_object(text)
        kind = data.pop("kind", "snapshot")
        if kind == KIND:
            return _from_document(data)
    msg = f"{folder} is not a change set: according to its {MANIFEST} it is a {kind}"
    raise RefusedInputError(msg, hint="lakeward diff PAST CURRENT --to PATH   (makes a change set)")


def _from_document(data: dict[str, Any]) -> ChangeSetManifest:
    options = {name: data["options"][name] for name in _WRITTEN_OPTIONS}
    options["diff_mode"] = DiffMode(options["diff_mode"])
    options["ignore_columns"] = tuple(options["ignore_columns"])
    options.update(_read_comparators(data.pop("comparators")))
    structs = {name: _struct(data[name]) for name in ("past_schema", "current_schema", "schema")}
    return ChangeSetManifest(
        **{
            **data,
            **structs,
            "keys": tuple(data["keys"]),
            "options": DiffOptions(**options),
            "files": sizes_of(data["files"]),
        }
    )


def _read_comparators(data: dict[str, Any]) -> dict[str, Any]:
    return {
        "default_comparator": parse_comparator(data["default"]) if data["default"] is not None else None,
        "type_comparators": {name: parse_comparator(text) for name, text in data["types"].items()},
        "column_comparators": {name: parse_comparator(text) for name, text in data["columns"].items()},
    }


def _struct(columns: list[dict[str, Any]]) -> StructType:
    parts = [{"name": column["name"], "type": column["type"], "nullable": True, "metadata": {}} for column in columns]
    return StructType([StructField.fromJson(part) for part in parts])


# Change sets without a manifest, as the published recipe writes them: files with the result of spark-extension's
# ``diff``. Parquet has its own columns. JSON and CSV must have ``diff``, the keys, and ``left_…`` and ``right_…`` for
# each column of the past. Spark leaves nulls out of JSON, so that a column may be missing in all rows; a column that
# the past does not have is refused.


_SHOWN = 5
_TEXTS = ("json", "csv")


def read_recipe(
    spark: SparkSession,
    store: FileSystem,
    listing: Listing,
    keys: Sequence[str],
    options: DiffOptions,
    past: T.StructType | None,
    csv_columns: Sequence[str] = (),
) -> DataFrame:
    """Read the rows of a change set without a manifest; ``past`` has the types for JSON and CSV.

    ``csv_columns`` are the columns of CSV files without a line of names, in their order.

    Raises:
        RefusedInputError: its files are of several formats or of one that cannot be read, or have other columns.
    """
    folder, paths = listing.location, list(listing.data)
    kinds = {format_of_name(path) for path in paths}
    known = ("parquet", *(_TEXTS if past is not None else ()))
    if len(kinds) != 1 or not kinds <= {*known}:
        found = ", ".join(sorted(paths)[:_SHOWN]) or "none"
        msg = f"{folder}: files of a change set without {MANIFEST} must be all {' or all '.join(known)}; found: {found}"
        raise RefusedInputError(msg, hint="write it as Parquet")
    kind = kinds.pop()
    if csv_columns and kind != "csv":
        msg = f"{folder} is {kind}, whose columns have names"
        raise RefusedInputError(msg, hint="leave out --csv-columns")
    if kind == "parquet" or past is None:
        return read_parquet(spark, store, folder, paths)
    struct = _expected(past, keys, options)
    if kind == "json":
        _require_known(spark, store, listing, struct)
    if csv_columns:
        fields = _in_order(folder, struct, csv_columns)
        return PlainFiles(store, folder, listing.data, SPARK_CSV).read_as(spark, fields).select(*columns(struct.names))
    try:
        return PlainFiles(store, folder, listing.data, str(kind)).read_as(spark, struct)
    except RefusedInputError as error:
        if kind != "csv":
            raise
        names = ",".join(struct.names)
        hint = f"if the files have no line of names, as Spark writes them: --csv-columns {names}   (in their order)"
        raise RefusedInputError(error.message, hint=hint) from error


def _in_order(folder: str, struct: T.StructType, names: Sequence[str]) -> T.StructType:
    """Return the columns in the order of the files."""
    if sorted(names) != sorted(struct.names):
        msg = f"--csv-columns names {', '.join(names)}, but a change set of this table has {', '.join(struct.names)}"
        raise RefusedInputError(msg, hint=f"name all columns of the files in {folder}, in their order, each once")
    return T.StructType([struct[name] for name in names])


def _expected(past: T.StructType, keys: Sequence[str], options: DiffOptions) -> T.StructType:
    if missing := [name for name in keys if name not in past.names]:
        msg = f"the table has no key column {', '.join(missing)}; it has {', '.join(past.names)}"
        raise RefusedInputError(msg, hint="--keys COLUMN,COLUMN")
    sides = (options.left_column_prefix, options.right_column_prefix)
    values = [(f"{side}_{field.name}", field.dataType) for field in past if field.name not in keys for side in sides]
    fields = [(options.diff_column, T.StringType()), *((name, past[name].dataType) for name in keys), *values]
    return T.StructType([T.StructField(name, data_type) for name, data_type in fields])


def _require_known(spark: SparkSession, store: FileSystem, listing: Listing, struct: T.StructType) -> None:
    """Refuse columns that reading by the schema would ignore: a key that was not named, or those of another table."""
    reader = spark.read.option("mode", "FAILFAST").option("primitivesAsString", "true")
    for name, value in store.options.items():
        reader = reader.option(name, value)
    found = reader.json([for_reading(store.for_spark(f"{listing.location}/{path}")) for path in sorted(listing.data)])
    if unknown := [name for name in found.columns if name not in struct.names]:
        msg = f"{listing.location} has columns that the table does not have: {', '.join(unknown)}"
        raise RefusedInputError(msg, hint="are they keys? Name all keys; or is this the change set of another table?")


@dataclass(frozen=True)
class ChangeSet:
    """A change set on disk; one that the published recipe wrote has no manifest."""

    location: str
    frame: DataFrame
    manifest: ChangeSetManifest | None
    keys: tuple[str, ...]
    options: DiffOptions

    @property
    def label(self) -> str:
        """The name for messages."""
        return f"{self.location} ({self.manifest.id})" if self.manifest else self.location

    def read(self) -> ParsedDiff:
        """Return its rows as a parsed diff; the columns come from the manifest, else from their prefixes."""
        if self.manifest is None:
            return parse_diff(self.frame, self.keys, self.options)
        known = self.manifest
        return parse_diff(self.frame, self.keys, self.options, past=known.past_schema, current=known.current_schema)


def find_change_set(
    spark: SparkSession,
    config: Config,
    location: str,
    *,
    keys: Sequence[str] = (),
    options: DiffOptions | None = None,
    incomplete_ok: bool | None = None,
    past: StructType | None = None,
    csv_columns: Sequence[str] = (),
) -> ChangeSet:
    """Return the change set in a folder, after checking its files against its manifest.

    Without a manifest, the published recipe is assumed to have written it: files with ``diff``, the keys, and
    ``left_…`` and ``right_…`` for each other column. ``keys`` is then required, and ``options`` if they are not the
    defaults. Such files are Parquet or, with the columns of the ``past``, JSON or CSV; ``csv_columns`` are the columns
    of CSV files without a line of names.

    Raises:
        RefusedInputError: there is none, or several, or it is unfinished or damaged.
    """
    folder = location.rstrip("/")
    store = open_filesystem(spark, config, folder)
    with input_errors(folder):
        listing = Listing(folder, store.files(folder))
        # A single file has the empty path.
        if not any(listing.files):
            msg = f"there is no change set at {location}"
            raise RefusedInputError(msg, hint="lakeward diff PAST CURRENT --to PATH   (makes one)")
        require_one(listing, incomplete_ok=incomplete_ok, is_change_set=True)
        if not listing.has(MANIFEST):
            own = options or DiffOptions()
            _require_keys(folder, keys)
            rows = read_recipe(spark, store, listing, keys, own, past, csv_columns)
            return ChangeSet(folder, rows, None, tuple(keys), own)
        return _by_manifest(spark, store, listing, keys)


def _by_manifest(spark: SparkSession, store: FileSystem, listing: Listing, keys: Sequence[str]) -> ChangeSet:
    folder = listing.location
    manifest = read_change_set_manifest(store.read_text(f"{folder}/{MANIFEST}") or "", folder)
    _require_files(folder, manifest.files, listing.files)
    if keys and tuple(keys) != manifest.keys:
        msg = f"{folder}: its keys are {', '.join(manifest.keys)}, not {', '.join(keys)}"
        raise RefusedInputError(msg, hint="leave out --keys: the manifest has them")
    frame = read_rows(spark, store, folder, manifest.files, manifest.schema, manifest.format)
    return ChangeSet(folder, frame, manifest, manifest.keys, manifest.options)


def _require_files(folder: str, expected: Mapping[str, int], present: Mapping[str, int]) -> None:
    if wrong := not_as_written(expected, present):
        msg = f"{folder}: {wrong}"
        raise RefusedInputError(msg, hint="make the change set again: lakeward diff … --to PATH")


def _require_keys(folder: str, keys: Sequence[str]) -> None:
    if not keys:
        msg = f"{folder} has no {MANIFEST}, so it is not known which columns identify a row"
        raise RefusedInputError(msg, hint="--keys COLUMN,COLUMN   (for a change set that the published recipe wrote)")


# The properties that identify a state of a table among others of the same kind where there is no checksum.
_IDENTITY = ("location", "id", "table_uuid", "snapshot", "as_of", "op")


def require_order(past: Mapping[str, Any], sets: Sequence[ChangeSet], *, is_result_known: bool = False) -> None:
    """Require that each change set begins where the one before it ended, and the first one at the past.

    States are compared by their checksums where both have one, else, where they are of the same kind, by their location
    and ids. A change set without a manifest fits anywhere, as its parents are not known. With ``is_result_known`` the
    checksum of the result will be checked: then a past without a checksum may have been moved.

    Raises:
        RefusedInputError: naming the change set, what it was made from, and what it is to be applied to.
    """
    state: Mapping[str, Any] | None = None if is_result_known and past.get("checksum") is None else past
    before = "the past"
    for change_set in sets:
        if change_set.manifest is not None and state is not None and not is_same_state(state, change_set.manifest.past):
            made_of = shown_state(change_set.manifest.past)
            msg = f"{change_set.label} was made from {made_of}, but is to be applied to {before}: {shown_state(state)}"
            raise RefusedInputError(msg, hint=_hint(past, sets, change_set))
        state = change_set.manifest.current if change_set.manifest is not None else None
        before = f"the result of {change_set.label}"


def is_same_state(first: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two parents may be the same state of a table: nothing that is known of both differs."""
    checksums = first.get("checksum"), other.get("checksum")
    if None not in checksums:
        return checksums[0] == checksums[1]
    if first.get("kind") != other.get("kind"):
        return True
    common = [name for name in _IDENTITY if first.get(name) is not None and other.get(name) is not None]
    return all(first[name] == other[name] for name in common)


def is_surely_same(first: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two states are known to be the same: by their checksums, or by their ids where one has no checksum."""
    for name in ("checksum", "id"):
        if first.get(name) is not None and other.get(name) is not None:
            return bool(first[name] == other[name])
    return False


def shown_state(state: Mapping[str, Any]) -> str:
    """Return a description of a parent for a message."""
    known = {name: state[name] for name in ("location", "table", "created", "rows", "checksum") if state.get(name)}
    return ", ".join(f"{name} {value}" for name, value in known.items()) or "something unknown"


def _hint(past: Mapping[str, Any], sets: Sequence[ChangeSet], wrong: ChangeSet) -> str:
    """Return the hint for a change set that does not fit: which one to apply before it, if it is among them."""
    assert wrong.manifest is not None
    if [change_set.manifest.id for change_set in sets if change_set.manifest is not None].count(wrong.manifest.id) > 1:
        return f"name {wrong.location} once"
    for change_set in sets:
        if (
            change_set.manifest is not None
            and change_set is not wrong
            and is_same_state(change_set.manifest.current, wrong.manifest.past)
        ):
            return f"apply {change_set.location} right before it"
    if is_same_state(past, wrong.manifest.past):
        return f"apply {wrong.location} first"
    return "apply the change sets in the order in which they were made, each once; --force applies them regardless"
