"""Settings proposed for a new table from its files, each with its evidence, and what a person must decide.

Reading is bounded: only the smallest files are opened where there are many or large ones. A proposal changes nothing.
"""

from __future__ import annotations

import zlib
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakeward.columns import format_plain_ddl
from lakeward.documents import Document
from lakeward.errors import LakewardError, SchemaError
from lakeward.formats.base import ReadSpec
from lakeward.formats.dms.files import UnusableFileError, unforeseen
from lakeward.formats.dms.guessing import guess_format, guess_types
from lakeward.formats.dms.listing import file_format
from lakeward.formats.dms.sniffing import peek
from lakeward.mirror.op.reading import key_rank, load_rows, unique_key
from lakeward.mirror.op.schema import with_file_columns
from lakeward.model import FileClass
from lakeward.runner.validation import SettingsCheck, peek_summary, take_sample
from lakeward.text import count, escape_name, escape_text, listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakeward.columns import Column
    from lakeward.config import Config, TableSettings
    from lakeward.mirror.op.reading import FoundKey
    from lakeward.model import LandingFile
    from lakeward.runner.tables import KnownTable
    from lakeward.runner.validation import Sample
    from lakeward.storage.landing import Landing

# A load up to this size is read for a proposal; of a larger one, parts up to this size together.
READ_BYTES = 8 << 20
# A single file is opened up to this size.
_FILE_BYTES = 64 << 20
# A load with fewer rows does not show that a column is unique.
_FEW_ROWS = 10
# A partition candidate has at most so many values, and at least so many rows for each of them.
_MOST_VALUES, _ROWS_PER_VALUE = 50, 20
_MOST_CANDIDATES = 3
_UNREADABLE = (UnusableFileError, OSError, EOFError, zlib.error, pa.ArrowException)


@dataclass(frozen=True)
class PartitionCandidate(Document):
    """A partition field that fits the load's rows, with the evidence."""

    partition: str
    evidence: str


@dataclass(frozen=True)
class Proposal(Document, also=("settings",), if_set=("path", "cdc_start")):
    """Settings proposed for a new table.

    ``schema`` are the columns with the types that fit all load files that were read. ``csv`` holds the settings of CSV
    files that differ from their defaults. ``evidence`` has a sentence for each setting, ``doubts`` what a person must
    decide before the table is activated. ``path`` and ``cdc_start`` are known where another system's settings are read.
    """

    primary_key: tuple[str, ...] = ()
    timestamp_column: str | None = None
    schema: str | None = None
    csv: dict[str, Any] = field(default_factory=dict)
    partition_candidates: tuple[PartitionCandidate, ...] = ()
    evidence: dict[str, str] = field(default_factory=dict)
    doubts: tuple[str, ...] = ()
    needs_schema: bool = False
    path: str | None = None
    cdc_start: str | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of a table that the proposal consists of; the schema only where files have no types."""
        own = {"path": self.path, "cdc_start": self.cdc_start}
        found: dict[str, Any] = {name: value for name, value in own.items() if value is not None}
        if self.primary_key:
            found["primary_key"] = list(self.primary_key)
        if self.timestamp_column:
            found["timestamp_column"] = self.timestamp_column
        if self.needs_schema and self.schema:
            found["schema"] = self.schema
        if self.csv:
            found["csv"] = dict(self.csv)
        return found


def propose(config: Config, storage: Landing, known: KnownTable) -> Proposal:
    """Return settings for a table from its files, checked against these files. No content of a file raises an error."""
    sample = take_sample(storage, known)
    if not sample.looked_at:
        return Proposal(doubts=("there is no load or change file to read",))
    try:
        found = _from_files(storage, known, sample)
    except SchemaError as error:
        found = Proposal(doubts=(error.message,))
    except _UNREADABLE as error:
        found = Proposal(doubts=(f"a file cannot be read: {escape_text(str(error))}",))
    except LakewardError:
        raise  # of the storage
    except Exception as error:
        found = Proposal(doubts=(escape_text(unforeseen(error)),))
    checked = _with_settings(known, found)
    findings = SettingsCheck(checked, config, storage, check_data=sample.load_bytes <= READ_BYTES).findings()
    problems = [f"{finding.setting}: {finding.message}" for finding in findings if finding.setting != "primary_key"]
    problems += [finding.message for finding in findings if finding.setting == "primary_key" and found.primary_key]
    return replace(found, doubts=tuple(dict.fromkeys((*found.doubts, *problems))))


def _with_settings(known: KnownTable, found: Proposal) -> KnownTable:
    """Return the table as it would be with a proposal; its own settings stay where the proposal has none."""
    own = known.settings.model_dump(exclude_unset=True, by_alias=True)
    merged = {**own, **found.settings}
    if found.csv:
        merged["csv"] = {**own.get("csv", {}), **found.csv}
    return replace(known, settings=type(known.settings).model_validate(merged))


def _from_files(storage: Landing, known: KnownTable, sample: Sample) -> Proposal:
    if known.settings.columns is None and _is_csv(sample):
        found = _from_csv(storage, known, sample)
    else:
        found = _from_named(storage, known, sample)
    columns = found[1]
    return _with_rows(storage, known, sample, found[0], columns) if columns else found[0]


def _is_csv(sample: Sample) -> bool:
    """Whether no file has types: Parquet files among them would."""
    return all(file_format(file.path) == "csv" for file in (*sample.loads, *sample.looked_at))


Found = tuple[Proposal, "tuple[Column, ...]"]


def _from_named(storage: Landing, known: KnownTable, sample: Sample) -> Found:
    """Return a proposal for files that name columns and types, or whose columns are declared."""
    settings, table = known.settings, known.table
    looked = [file for file in sample.looked_at if file.identity.size <= _FILE_BYTES]
    first = [peek(storage, file, ReadSpec(table, (), settings)) for file in looked]
    tips = [tip for found in first for tip in found.suggestions if tip.setting == "timestamp_column"]
    timestamp = settings.timestamp_column or (tips[0].column or tips[0].value if tips else None)
    settings = settings.model_copy(update={"timestamp_column": timestamp, "primary_key": ()})
    start = next((seen.columns for file in looked if (seen := _peek(storage, known, settings, file, ())).has_types), ())
    if settings.columns is not None:
        start = settings.columns
    if not start:
        return Proposal(timestamp_column=timestamp, doubts=("no file shows the columns and their types",)), ()
    parts, doubts = _bounded(sample), []
    # Every part may add or widen a column, so that those read before are compared again.
    columns: tuple[Column, ...] = tuple(start)
    for file in dict.fromkeys((*parts, *looked)):
        seen = _peek(storage, known, settings, file, columns)
        columns = with_file_columns(table, columns, [peek_summary(seen, file)], settings)
    if timestamp and tips and any(tip.column != timestamp for tip in tips):
        doubts.append("files name different columns that may be the commit time")
    evidence = {"schema": _parts_read(sample, parts)}
    if tips:
        evidence["timestamp_column"] = tips[0].message
    return Proposal(
        timestamp_column=timestamp if tips else None,
        schema=format_plain_ddl(columns),
        evidence=evidence,
        doubts=tuple(doubts),
    ), columns


def _peek(
    storage: Landing, known: KnownTable, settings: TableSettings, file: LandingFile, columns: Sequence[Column]
) -> Any:
    return peek(storage, file, ReadSpec(known.table, tuple(columns), settings))


def _bounded(sample: Sample) -> list[LandingFile]:
    """Return the load parts to read: the smallest ones, as many as the limit allows, and always one."""
    filled = sorted((part for part in sample.loads if part.identity.size), key=lambda part: part.identity.size)
    sizes = accumulate(part.identity.size for part in filled)
    parts = [part for part, total in zip(filled, sizes, strict=True) if total <= READ_BYTES]
    return parts or [part for part in filled[:1] if part.identity.size <= _FILE_BYTES]


def _parts_read(sample: Sample, parts: Sequence[LandingFile]) -> str:
    filled = sum(1 for part in sample.loads if part.identity.size)
    if not parts:
        return "from change files: there is no load part to read"
    which = "all load files" if len(parts) == filled else f"{len(parts):,} of {count(filled, 'load file')}"
    return f"columns of {which}, types widened"


def _from_csv(storage: Landing, known: KnownTable, sample: Sample) -> Found:
    """Return a proposal for CSV files without declared columns: everything about them is a guess."""
    settings = known.settings
    parts = _bounded(sample)
    changes = [
        file for file in sample.looked_at if file.file_class is not FileClass.LOAD and file.identity.size <= _FILE_BYTES
    ]
    chosen = parts or changes
    if not chosen:
        return Proposal(doubts=("every file is too large to be read for a proposal",)), ()
    with ExitStack() as stack:
        paths = {file.path: stack.enter_context(storage.spool(file.path))[0] for file in {*parts, *changes}}
        others = [paths[file.path] for file in (*chosen[1:], *(changes if parts else ()))]
        shape = guess_format(paths[chosen[0].path], others, settings)
        if shape is None:
            return Proposal(doubts=("no file holds a record",)), ()
        types = guess_types([paths[file.path] for file in chosen], shape, settings)
    csv = {**shape.settings, **({"null": types.null} if types.null is not None else {})}
    which = _parts_read(sample, parts)
    evidence = {
        **shape.evidence,
        **types.evidence,
        "schema": f"inferred from {count(types.rows, 'record')}: {which}",
    }
    doubt = "the types are inferred from texts, which can show that a type fits and not that it is the source's"
    return Proposal(
        timestamp_column=shape.timestamp,
        schema=format_plain_ddl(types.columns),
        csv=csv,
        evidence=evidence,
        doubts=(*shape.doubts, *types.doubts, doubt),
        needs_schema=True,
    ), types.columns


def _with_rows(
    storage: Landing, known: KnownTable, sample: Sample, found: Proposal, columns: Sequence[Column]
) -> Proposal:
    """Return the proposal with a key and partition candidates, from the load's rows if these are few."""
    settings = _with_settings(known, found).settings.model_copy(update={"primary_key": ()})
    spec = ReadSpec(known.table, tuple(columns), settings)
    if sample.load_bytes > READ_BYTES:
        return _with_named_key(found, spec, sample.load_bytes)
    rows = load_rows(storage, sample.loads, spec)
    if rows is None:
        return _in_doubt(found, "no row of a load shows the key")
    key = unique_key(rows, spec)
    many = count(rows.num_rows, "row")
    doubts = tuple(_key_doubts(key, rows.num_rows))
    evidence = {"primary_key": f"unique and never NULL in {many} of the load"} if key.names else {}
    return replace(
        found,
        primary_key=key.names,
        partition_candidates=tuple(_partitions(rows, spec, key)),
        evidence={**evidence, **found.evidence},
        doubts=(*found.doubts, *doubts),
    )


def _with_named_key(found: Proposal, spec: ReadSpec, load_bytes: int) -> Proposal:
    """Return the proposal with a key by its name alone: the load is too large to be read."""
    named = [column.name for column in spec.columns if key_rank(column, spec.table.name) == 0]
    size = f"the load has {load_bytes:,} bytes, and up to {READ_BYTES:,} are read for a proposal"
    if len(named) != 1:
        return _in_doubt(found, f"no key was looked for: {size}")
    evidence = {"primary_key": "named like a key; its values were not compared", **found.evidence}
    doubt = f"the values of the key were not compared: {size}"
    return _in_doubt(replace(found, primary_key=tuple(named), evidence=evidence), doubt)


def _in_doubt(found: Proposal, doubt: str) -> Proposal:
    return replace(found, doubts=(*found.doubts, doubt))


def _key_doubts(key: FoundKey, rows: int) -> Iterator[str]:
    names = ", ".join(escape_name(name) for name in key.names)
    if not key.names:
        yield "no column, and no pair of the likely ones, is unique and never NULL in the load"
        return
    if rows < _FEW_ROWS:
        yield f"the load has only {count(rows, 'row')}: any column may be unique in them"
    if not key.is_named_so:
        yield f"{names} is unique in the load, but is not named like a key"
    if key.is_named_so and key.rivals:
        yield f"{listed(map(escape_name, key.rivals))} would be a key as well as {names}"


def _partitions(rows: pa.Table, spec: ReadSpec, key: FoundKey) -> Iterator[PartitionCandidate]:
    """Yield columns with few values, those with the fewest first, and then months of days and times."""
    found: list[tuple[int, str]] = []
    months: list[tuple[str, str]] = []
    for column in spec.columns:
        if column.name in key.names or "," in column.name:
            continue
        values = rows.column(column.name)
        if column.lake_type in ("string", "int", "bigint", "boolean", "date"):
            distinct = pc.count_distinct(values, mode="all").as_py()
            if 2 <= distinct <= min(_MOST_VALUES, rows.num_rows // _ROWS_PER_VALUE):
                found.append((distinct, column.name))
                continue
        if column.lake_type in ("date", "timestamp", "timestamp_ntz") and (span := _months(values)):
            months.append((column.name, span))
    many = count(rows.num_rows, "row")
    candidates = [
        PartitionCandidate(name, f"{distinct} values in {many} of the load") for distinct, name in sorted(found)
    ]
    candidates += [PartitionCandidate(f"months({name})", span) for name, span in months]
    yield from candidates[:_MOST_CANDIDATES]


def _months(values: pa.ChunkedArray) -> str | None:
    """Return from when to when the values are, if these are at least two months."""
    first, last = pc.min_max(values).as_py().values()
    if first is None or (first.year, first.month) == (last.year, last.month):
        return None
    return f"values from {first:%Y-%m} to {last:%Y-%m}"
