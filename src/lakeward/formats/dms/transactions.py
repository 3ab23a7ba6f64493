"""Transaction files: ``op,table_name,schema_name,field…`` of many tables in one headerless CSV file.

Such a file is sorted once for all tables: :func:`sort_file` yields every record with the names of its table, and
:func:`read_sorted` turns the rows of one table into its records.
"""

from __future__ import annotations

import io
import json
import zlib
from dataclasses import dataclass
from itertools import chain, groupby
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from lakeward.errors import LakewardError
from lakeward.formats.dms.blocks import Tally
from lakeward.formats.dms.csv import PROBED_RECORDS, CsvRecord, exact_rows, take_chunk, tokenize
from lakeward.formats.dms.files import (
    ENCODING,
    ENCODING_ERRORS,
    Limits,
    UnusableFileError,
    error_text,
    open_text,
    unforeseen,
)
from lakeward.formats.dms.layout import probe_layout
from lakeward.formats.dms.reader import assemble_text, images_by_count, is_as_listed, read_file
from lakeward.formats.dms.values import file_batch, record_schema
from lakeward.model import FileClass
from lakeward.text import escape_name, escape_undecoded, is_utf8

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lakeward.config import CsvSettings
    from lakeward.formats.base import ReadSpec
    from lakeward.model import LandingFile
    from lakeward.storage.landing import Landing

_LEADING = 3
_ROWS = 1 << 13
_UNREADABLE = (OSError, EOFError, zlib.error)

PATH, SCHEMA, TABLE, ROW, TEXT, ENDING = "path", "schema", "table", "row", "text", "ending"
SORTED_DDL = f"{PATH} string, {SCHEMA} string, {TABLE} string, {ROW} bigint, {TEXT} binary, {ENDING} string"
_SORTED = pa.schema(
    [
        pa.field(PATH, pa.string()),
        pa.field(SCHEMA, pa.string()),
        pa.field(TABLE, pa.string()),
        pa.field(ROW, pa.int64()),
        pa.field(TEXT, pa.binary()),
        pa.field(ENDING, pa.string()),
    ]
)


class SourceName(NamedTuple):
    """The names of a table at the source."""

    schema: str
    table: str


@dataclass(frozen=True)
class Ending:
    """The facts known about a file that was read to its end; stored as its last sorted row.

    ``unnamed`` describes the first record whose table name is not UTF-8.
    """

    content_hash: str
    stable: bool
    problem: str | None
    unnamed: str | None = None


def source_name(spec: ReadSpec) -> SourceName:
    """Return the names of a table at the source: those of its folder, where one is set."""
    parts = (spec.settings.path or "").strip("/").split("/")
    return SourceName(parts[-2], parts[-1]) if len(parts) > 1 else SourceName(spec.table.schema, spec.table.name)


def sort_file(storage: Landing, file: LandingFile, settings: CsvSettings, limits: Limits) -> Iterator[pa.RecordBatch]:
    """Yield every record of a file with its number and its table's names, then one row for the file's ending.

    Of ``settings`` only delimiter and quote are used. No content raises an error. A name that is not UTF-8 belongs to
    no table: its record is kept under the escaped name, and the ending describes it.
    """
    content_hash, problem, unnamed = "", None, None
    stable = is_as_listed(storage, file)
    if stable:
        try:
            with storage.spool(file.path) as (local_path, content_hash), open_text(local_path, limits) as stream:
                plain = settings.model_copy(update={"null": None})
                records = enumerate(tokenize(stream, plain, limits), start=1)
                while rows := take_chunk(records, _ROWS):
                    yield _sorted_rows(file.path, rows)
                    unnamed = unnamed or _first_unnamed(rows)
        except UnusableFileError as error:
            problem = str(error)
        except _UNREADABLE as error:
            problem = f"the file cannot be read as csv: {error}"
        except LakewardError:
            raise  # of the storage
        except Exception as error:
            problem = unforeseen(error)
    ending = Ending(content_hash, stable and is_as_listed(storage, file), problem, unnamed)
    yield _batch([file.path], [None], [None], [None], [None], [json.dumps(vars(ending))])


def read_sorted(
    batches: Iterable[pa.RecordBatch], files: Mapping[str, LandingFile], spec: ReadSpec
) -> Iterator[pa.RecordBatch]:
    """Turn one table's sorted rows, file after file, into records; rows of other files are skipped."""
    for path, rows in groupby(_flat(batches), key=lambda row: row[PATH]):
        if path in files:
            yield from _read_file(rows, files[path], spec)


def read_any(storage: Landing, file: LandingFile, spec: ReadSpec) -> Iterator[pa.RecordBatch]:
    """Read one table's records of a file of any class, as :func:`read_file` does those of its own files."""
    if file.file_class is not FileClass.TRANSACTIONS:
        return read_file(storage, file, spec)
    schema, table = source_name(spec)

    def own() -> Iterator[pa.RecordBatch]:
        for batch in sort_file(storage, file, spec.settings.csv, Limits.of(spec.settings)):
            is_own = pc.and_(pc.equal(batch.column(SCHEMA), schema), pc.equal(batch.column(TABLE), table))
            yield batch.filter(pc.or_(pc.fill_null(is_own, False), pc.is_valid(batch.column(ENDING))))

    return read_sorted(own(), {file.path: file}, spec)


def own_fields(record: CsvRecord, spec: ReadSpec) -> CsvRecord | None:
    """Return a record as ``op, field…`` with its whole text; None when it is another table's."""
    _require_names(1, record)
    schema, table = source_name(spec)
    return without_names(record) if (record.fields[2], record.fields[1]) == (schema, table) else None


def without_names(record: CsvRecord) -> CsvRecord:
    """Return a record without the names of table and schema."""
    quoted = tuple(position - _LEADING + 1 for position in record.quoted_empty if position >= _LEADING)
    return CsvRecord([record.fields[0], *record.fields[_LEADING:]], record.text, record.is_closed, quoted)


def _sorted_rows(path: str, rows: list[tuple[int, CsvRecord]]) -> pa.RecordBatch:
    for row, record in rows:
        _require_names(row, record)
    records = [record for _, record in rows]
    return _batch(
        [path] * len(rows),
        [escape_undecoded(record.fields[2] or "") for record in records],
        [escape_undecoded(record.fields[1] or "") for record in records],
        [row for row, _ in rows],
        [record.text.encode(ENCODING, ENCODING_ERRORS) for record in records],
        [None] * len(rows),
    )


def _first_unnamed(rows: list[tuple[int, CsvRecord]]) -> str | None:
    for row, record in rows:
        name = f"{record.fields[2]}.{record.fields[1]}"
        if not is_utf8(name):
            return f"record {row} names a table that is not UTF-8: {escape_name(name)!r}"
    return None


def _batch(*columns: list[object]) -> pa.RecordBatch:
    arrays = [pa.array(values, field.type) for values, field in zip(columns, _SORTED, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SORTED)


def _require_names(row: int, record: CsvRecord) -> None:
    if not record.is_closed:
        msg = f"the file ends inside a quoted value of record {row}: was it cut off?"
        raise UnusableFileError(msg)
    if len(record.fields) < _LEADING:
        msg = f"record {row} has {len(record.fields)} fields; expected op, table name, schema name and values"
        raise UnusableFileError(msg)


def _flat(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, object]]:
    return chain.from_iterable(batch.to_pylist() for batch in batches)


def _read_file(rows: Iterable[dict[str, object]], file: LandingFile, spec: ReadSpec) -> Iterator[pa.RecordBatch]:
    """Read one file's rows; its ending, the last row, becomes part of its summary."""
    tally, endings = Tally(file), list[Ending]()
    try:
        yield from _assembled(_records(rows, endings, spec), spec, tally)
    except Exception as error:
        is_foreseen, hides = isinstance(error, (UnusableFileError, pa.ArrowException)), spec.hides_values
        tally.problem = error_text(error, hides_values=hides) if is_foreseen else unforeseen(error, hides_values=hides)
        for _ in _records(rows, endings, spec):
            pass
    ending = endings[0]
    tally.content_hash, tally.stable = ending.content_hash, ending.stable
    problem = tally.problem or ending.problem
    if problem is None and ending.unnamed and not "".join(source_name(spec)).isascii():
        # In another encoding it may be the name of this table.
        problem = "a record names a table that is not UTF-8" if spec.hides_values else ending.unnamed
    tally.problem = problem if ending.stable else None
    yield file_batch(record_schema(spec.columns), tally.summary())


def _records(
    rows: Iterable[dict[str, object]], endings: list[Ending], spec: ReadSpec
) -> Iterator[tuple[int, CsvRecord]]:
    limits = Limits.of(spec.settings)
    for row in rows:
        if row[ENDING] is not None:
            endings.append(Ending(**json.loads(str(row[ENDING]))))
            continue
        content, number = row[TEXT], row[ROW]
        assert isinstance(content, bytes) and isinstance(number, int)  # noqa: PT018 as declared in SORTED_DDL
        text = content.decode(ENCODING, ENCODING_ERRORS)
        record = next(tokenize(io.StringIO(text, newline=""), spec.settings.csv, limits))
        yield number, without_names(CsvRecord(record.fields, text, quoted_empty=record.quoted_empty))


def _assembled(records: Iterator[tuple[int, CsvRecord]], spec: ReadSpec, tally: Tally) -> Iterator[pa.RecordBatch]:
    first = take_chunk(records, PROBED_RECORDS)
    if not first:
        return
    layout = probe_layout([record.fields for _, record in first], spec, load=False, has_operation=True)
    # DMS writes no header here, whatever the other files have, so that a record's text is complete.
    rows = exact_rows(chain(first, records), layout.width, str, Limits.of(spec.settings))
    yield from assemble_text(rows, layout, spec, tally, images_by_count(spec))
