"""What a change set says of itself: ``_manifest.json`` beside its files.

=================  ====================================================================================================
field              meaning
=================  ====================================================================================================
kind               always ``change-set``
id                 a number of its own, 32 hex digits
created            when it was made, UTC
lakeward           the version that wrote it
past, current      both parents: ``kind``, ``location``, ``created``, ``rows``, ``checksum`` and what else tells them
                   from others, as far as known
keys               the columns that identify a row
past_schema        columns of the past with their types, in their order; nested types as Spark writes them in JSON
current_schema     the same of the current side: what applying the change set results in
exact              whether values were compared for equality in all columns: only then does applying it to the past
                   result in the very current one, and two of them can be made one
options            names and labels: ``diff_column``, ``left_column_prefix``, ``right_column_prefix``, ``insert_value``,
                   ``change_value``, ``delete_value``, ``nochange_value``, ``change_column``, ``diff_mode``,
                   ``sparse_mode``, ``include_unchanged``, ``ignore_columns``
comparators        what other than plain equality was in force: ``default``, ``types`` by type, ``columns`` by name
counts             rows ``inserted``, ``changed``, ``deleted`` and, where known, ``unchanged``
format             ``parquet``, ``json`` or ``csv``
schema             columns of the files with their types, as :func:`changesets.files.read_rows` gives them back
files              every file with its size
=================  ====================================================================================================
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructField, StructType

from lakeward import __version__
from lakeward.diffing.comparator_texts import parse_comparator
from lakeward.diffing.composing import is_exact
from lakeward.diffing.options import DiffMode, DiffOptions
from lakeward.documents import Document
from lakeward.errors import RefusedInputError
from lakeward.reading_back import json_object, refusing_damage
from lakeward.storage.claims import MANIFEST
from lakeward.storage.sets import file_list, sizes_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.diffing.alignment import Alignment

KIND = "change-set"
_COMPARATORS = ("default_comparator", "column_comparators", "type_comparators")
_WRITTEN_OPTIONS = tuple(one.name for one in fields(DiffOptions) if one.name not in (*_COMPARATORS, "duplicate_keys"))


def _columns(struct: StructType) -> list[dict[str, Any]]:
    return [{"name": one.name, "type": one.dataType.jsonValue()} for one in struct.fields]


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
        """What tells a change set from a snapshot."""
        return KIND

    @property
    def comparators(self) -> dict[str, Any]:
        """What other than plain equality was in force."""
        options = self.options
        return {
            "default": str(options.default_comparator) if options.default_comparator is not None else None,
            "types": {name: str(comparator) for name, comparator in options.type_comparators.items()},
            "columns": {name: str(comparator) for name, comparator in options.column_comparators.items()},
        }

    def to_json(self) -> str:
        """Write as JSON."""
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
    """Begin the manifest of a change set; writing it adds schema and files."""
    return ChangeSetManifest(
        id=uuid.uuid4().hex,
        created=(created or datetime.now(UTC)).astimezone(UTC).isoformat(),
        past=past,
        current=current,
        keys=tuple(one.name for one in alignment.keys),
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
        RefusedInputError: the text is no manifest of a change set, or not a whole one.
    """
    remedy = "make the change set again: lakeward diff … --to PATH"
    with refusing_damage(f"{folder}: its {MANIFEST}", hint=remedy, kind=RefusedInputError):
        data = json_object(text)
        kind = data.pop("kind", "snapshot")
        if kind == KIND:
            return _from_document(data)
    msg = f"{folder} is no change set; its {MANIFEST} says it is a {kind}"
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
    parts = [{"name": one["name"], "type": one["type"], "nullable": True, "metadata": {}} for one in columns]
    return StructType([StructField.fromJson(one) for one in parts])
