"""Writing change sets, and applying them to a snapshot; the result is a snapshot set where its key allows."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import AtomicType

from lakeward import __version__
from lakeward import schemas as S
from lakeward.diffing.frames.options import DiffMode, DiffOptions
from lakeward.diffing.frames.parsed_diff import parse_diff
from lakeward.diffing.frames.patching import composed, have_common_ends, is_exact, patched, why_not_composable
from lakeward.diffing.frames.refusals import input_errors, refusals
from lakeward.diffing.stored.changesets import read_change_set_manifest, require_order
from lakeward.diffing.stored.folders import INCREMENTAL, require_outside
from lakeward.diffing.stored.rows import FORMATS, require_writable, write_rows
from lakeward.documents import Document
from lakeward.errors import RefusedInputError
from lakeward.storage.checksum import checksum_of
from lakeward.storage.claims import MANIFEST, SUCCESS
from lakeward.storage.publish import publish_folder, require_absent
from lakeward.storage.sets import bucket_count, why_no_set, write_plain, write_set

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

    from lakeward.diffing.frames.parsed_diff import ParsedDiff
    from lakeward.diffing.stored.addresses import Side
    from lakeward.diffing.stored.changesets import ChangeSet, ChangeSetManifest
    from lakeward.storage.checksum import Checksum
    from lakeward.storage.claims import Claim
    from lakeward.storage.filesystem import FileSystem


# Several diffs are composed under names that no column of a table has. Rows that have their first values again are
# kept: from a condition on all columns that removes them Spark would derive conditions on each of their aliases,
# without end.
_JOINED = DiffOptions(
    diff_column=f"{S.PREFIX}diff",
    left_column_prefix=f"{S.PREFIX}left",
    right_column_prefix=f"{S.PREFIX}right",
    diff_mode=DiffMode.STRUCTS,
    include_unchanged=True,
)
_HINT = "apply each change set once, in order, to the table that it was made from; --force applies it regardless"


@dataclass(frozen=True)
class Applied(Document, renamed={"keys": "primary_key"}):
    """The result of applying change sets: its folder (None for a mere check), its number of rows, and their checksum.

    ``verified``: whether the checksum was compared with that of the last change set's current side; False where that is
    not known, or the change set was made by a comparison that tolerates differences.
    """

    to: str | None
    rows: int
    checksum: str
    keys: tuple[str, ...]
    verified: bool
    past: Mapping[str, Any]
    change_sets: tuple[Mapping[str, Any], ...] = field(default_factory=tuple)


def apply_change_sets(
    past: Side, sets: Sequence[ChangeSet], store: FileSystem | None, to: str | None, *, force: bool = False
) -> Applied:
    """Apply change sets to a snapshot and write the result as a snapshot set; without ``to`` only check that they fit.

    With ``force`` neither their order, nor the rows they apply to, nor the checksum of the result are checked.

    Raises:
        RefusedInputError: a change set does not fit what it is applied to, the result is not what the last one was
            made from, or the folder exists; nothing is written then.
    """
    keys = _common_keys(past, sets)
    expected = None if force else _expected_checksum(sets)
    if not force:
        require_order(past.identity, sets, is_result_known=expected is not None)
    with refusals(hint=_HINT), input_errors(past.label):
        rows = _result(past.frame, sets, strict=not force)
        if store is None or to is None:
            found = checksum_of(rows)
            _require_checksum(found.text, expected, sets)
            checksum, count = found.text, found.rows
        else:
            content = _write(rows, past, sets, store, to, keys, expected)
            checksum, count = content.text, content.rows
    return Applied(to, count, checksum, keys, expected is not None, past.identity, tuple(map(_described, sets)))


def _common_keys(past: Side, sets: Sequence[ChangeSet]) -> tuple[str, ...]:
    """Return the key that all change sets have."""
    keys = sets[0].keys
    for change_set in sets[1:]:
        if change_set.keys != keys:
            msg = f"{change_set.label} has the keys {', '.join(change_set.keys)}, {sets[0].label} has {', '.join(keys)}"
            raise RefusedInputError(msg, hint="change sets of one table have the same keys")
    if past.primary_key and set(past.primary_key) != set(keys):
        msg = f"{past.label} has the key {', '.join(past.primary_key)}, {sets[0].label} has {', '.join(keys)}"
        raise RefusedInputError(msg, hint="make the change set with the table's key")
    return keys


def _expected_checksum(sets: Sequence[ChangeSet]) -> str | None:
    """Return the checksum that the result must have, where it is known and the change sets are exact."""
    if any(not is_exact(change_set.options) for change_set in sets):
        return None
    last = sets[-1].manifest
    found = last.current.get("checksum") if last is not None else None
    return None if found is None else str(found)


def _require_checksum(found: str, expected: str | None, sets: Sequence[ChangeSet]) -> None:
    if expected is not None and found != expected:
        msg = f"the result has the checksum {found}, but {sets[-1].label} was made from one with {expected}"
        raise RefusedInputError(msg, hint="nothing was written: is PAST what the change sets begin with?")


def _result(past: DataFrame, sets: Sequence[ChangeSet], *, strict: bool) -> DataFrame:
    """Return the rows after all change sets; these are composed first where possible, so that the past is read once."""
    diffs = [change_set.read() for change_set in sets]
    schemas = [change_set.manifest.current_schema if change_set.manifest is not None else None for change_set in sets]
    are_one = not any(why_not_composable(diff) for diff in diffs)
    if strict and are_one and all(have_common_ends(diffs[0], diff) for diff in diffs[1:]):
        return patched(past, reduce(_joined, diffs), strict=True, result=schemas[-1])

    def apply(rows: DataFrame, step: tuple[ParsedDiff, StructType | None]) -> DataFrame:
        return patched(rows, step[0], strict=strict, result=step[1])

    return reduce(apply, zip(diffs, schemas, strict=True), past)


def _joined(first: ParsedDiff, second: ParsedDiff) -> ParsedDiff:
    return parse_diff(composed(first, second, _JOINED), first.key_names, _JOINED)


def _write(
    rows: DataFrame,
    past: Side,
    sets: Sequence[ChangeSet],
    store: FileSystem,
    to: str,
    keys: tuple[str, ...],
    expected: str | None,
) -> Checksum:
    known = [str(past.identity["location"])] if "location" in past.identity else []
    require_outside(to, [*known, *(change_set.location for change_set in sets)])
    require_absent(store, to)

    def write(claim: Claim) -> tuple[Checksum, str]:
        content, described = _filled(rows, past, sets, claim, keys)
        _require_checksum(content.text, expected, sets)
        manifest = {**_manifest(content, rows.schema, keys, past, sets), **described}
        return content, json.dumps(manifest, ensure_ascii=False, indent=2, default=str) + "\n"

    return publish_folder(store, to, write)


def _filled(
    rows: DataFrame, past: Side, sets: Sequence[ChangeSet], claim: Claim, keys: tuple[str, ...]
) -> tuple[Checksum, dict[str, Any]]:
    """Write a set, or plain files where the key allows none; return the checksum and the manifest's entries."""
    if why_no_set(rows.schema, keys):
        content, files = write_plain(rows, claim.store, claim.folder)
        return content, {"files": [{"path": path, "size": size} for path, size in sorted(files.items())]}
    count = bucket_count(_estimated_rows(past, sets))
    layout = write_set(rows, claim.store, claim.folder, keys, count=count)
    listed = [{"path": bucket.path, "size": bucket.size} for bucket in layout.buckets]
    return layout.content, {"set": layout.to_dict(), "files": listed}


def _estimated_rows(past: Side, sets: Sequence[ChangeSet]) -> int:
    rows = past.rows if past.rows is not None else past.frame.count()
    for change_set in sets:
        counts = change_set.manifest.counts if change_set.manifest is not None else {}
        rows += int(counts.get("inserted", 0)) - int(counts.get("deleted", 0))
    return max(rows, 0)


def _manifest(
    content: Checksum, schema: StructType, keys: tuple[str, ...], past: Side, sets: Sequence[ChangeSet]
) -> dict[str, Any]:
    """Return the description of the result, and what it was made from."""
    return {
        "kind": "set",
        "id": uuid.uuid4().hex,
        "created": datetime.now(UTC).isoformat(),
        "lakeward": __version__,
        "rows": content.rows,
        "checksum": content.text,
        "primary_key": list(keys),
        "format": "parquet",
        "schema": [{"name": field.name, "type": _type(field.dataType)} for field in schema.fields],
        "made_from": {"base": dict(past.identity), "change_sets": [_described(change_set) for change_set in sets]},
    }


def _type(data_type: DataType) -> Any:
    """Return a type as in CREATE TABLE, or in Spark's JSON where it is nested, as names may hold any character."""
    return data_type.simpleString() if isinstance(data_type, AtomicType) else data_type.jsonValue()


def _described(change_set: ChangeSet) -> dict[str, Any]:
    known = change_set.manifest
    return {
        "location": change_set.location,
        "id": known.id if known is not None else None,
        "created": known.created if known is not None else None,
        "counts": dict(known.counts) if known is not None else None,
    }


def change_set_folder(to: str, moment: datetime) -> str:
    """Return the folder of the change set of a minute, in UTC."""
    parts = moment.astimezone(UTC).strftime("year=%Y/month=%m/day=%d/hour=%H/minute=%M")
    return f"{to.rstrip('/')}/{INCREMENTAL}/{parts}"


def require_free_minute(store: FileSystem, to: str, moment: datetime) -> None:
    """Refuse a second change set of the same minute; called before the work, which may take long.

    Raises:
        RefusedInputError: there is one, which the message names; or other files are in its place.
    """
    folder = change_set_folder(to, moment)
    text = store.read_text(f"{folder}/{MANIFEST}")
    if text is None or not store.exists(f"{folder}/{SUCCESS}"):
        require_absent(store, folder)
        return
    first = read_change_set_manifest(text, folder)
    msg = f"{folder} already holds the change set {first.id} of {first.created}; there is one per minute"
    raise RefusedInputError(msg, hint="the same command a minute later, or with another --to")


def write_change_set(
    frame: DataFrame,
    store: FileSystem,
    to: str,
    manifest: ChangeSetManifest,
    *,
    moment: datetime,
    check: Callable[[], ChangeSetManifest] | None = None,
) -> str:
    """Write the rows of a diff as the change set of a minute and return its folder.

    ``check`` is called when the files are written, before they become visible. It returns the manifest with what is
    known only then, such as the counts, or raises, and nothing is left.

    Raises:
        RefusedInputError: the minute has a change set already, or the format cannot hold the columns.
    """
    if manifest.format not in FORMATS:
        msg = f"there is no format {manifest.format!r} for change sets; there are {', '.join(FORMATS)}"
        raise RefusedInputError(msg)
    require_writable(frame.schema, manifest.options, manifest.format)
    require_free_minute(store, to, moment)
    folder = change_set_folder(to, moment)

    def write(claim: Claim) -> tuple[str, str]:
        files = write_rows(frame, claim.store, claim.folder, manifest.format, manifest.keys, manifest.options)
        final = check() if check is not None else manifest
        return folder, replace(final, schema=frame.schema, files=files).to_json()

    return publish_folder(store, folder, write)
