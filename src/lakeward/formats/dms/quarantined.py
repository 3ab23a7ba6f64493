"""Reading a quarantined row again, with its original place in the order: from its stored text, or from its file.

Of a table with a column policy no text is stored.
"""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeward import schemas
from lakeward.formats.base import FileSummary, ReadSpec
from lakeward.formats.dms.blocks import Tally, TextRows
from lakeward.formats.dms.changes import check_columns
from lakeward.formats.dms.csv import CsvRecord, tokenize, wrong_width
from lakeward.formats.dms.files import Limits, MismatchedFileError, UnusableFileError
from lakeward.formats.dms.layout import Layout, layout_by_names, probe_layout
from lakeward.formats.dms.listing import file_format, is_transactions
from lakeward.formats.dms.reader import assemble_text, images_by_count
from lakeward.formats.dms.transactions import own_fields, read_any
from lakeward.formats.dms.values import RefusedRow, arrow_type, bad_batch, parse_text, record_schema
from lakeward.model import FileClass, FileIdentity, LandingFile
from lakeward.text import escape_undecoded, is_utf8

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from lakeward.storage.landing import Landing


def parse_raw(raw: str, path: str, time: str, row: int, spec: ReadSpec, *, load: bool) -> pa.RecordBatch:
    """Read a quarantined row's text with the present settings.

    Return its change (two records where the key moved) or, if it still does not fit, its bad row; either has the
    file, name time and row it came from. An update or delete of a table without a key does not fit, whatever
    ``without_key`` is now: it was set aside and not ignored, and stays so until somebody decides on it.
    """
    spec = _undecided(spec)
    file_class = FileClass.TRANSACTIONS if is_transactions(path) else FileClass.CHANGES
    tally = Tally(LandingFile(path, path, FileClass.LOAD if load else file_class, time, FileIdentity(0, 0)))
    try:
        found = _fields(raw, path, spec, tally.file.file_class)
        fields, layout = found.fields, found.layout
        if len(fields) != layout.width:
            bad = wrong_width(row, len(fields), layout.width, raw)
            return bad_batch(spec, path, time, [bad])
        texts = [pa.array([value], pa.string()) for value in fields]
        is_csv = file_format(path) == "csv"
        quoted = dict.fromkeys(found.quoted_empty, (0,))
        numbers = np.array([row], dtype=np.int64)
        rows = TextRows(numbers, texts, lambda _: raw, empty_is_missing=is_csv, quoted_empty=quoted)
        batches = list(assemble_text([rows], layout, found.spec, tally, found.by_count))
        return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
    except MismatchedFileError:
        reason = "the row's columns do not fit the table's schema"
    except UnusableFileError as error:
        reason = str(error)
    return bad_batch(spec, path, time, [RefusedRow(row, reason, None, None, escape_undecoded(raw))])


def _undecided(spec: ReadSpec) -> ReadSpec:
    return replace(spec, settings=spec.settings.model_copy(update={"without_key": None}))


def rows_of_file(
    storage: Landing, recorded: FileSummary, numbers: Collection[int], spec: ReadSpec
) -> dict[int, pa.RecordBatch | str]:
    """Read rows of a landing file again, by their numbers: their records as :func:`parse_raw`, or why there are none.

    ``recorded`` is what was found in the file when its rows were set aside. Where the file has other content now, or is
    divided into rows in another way, the numbers do not mean the same rows.
    """
    try:
        identity = storage.identity(recorded.path)
    except FileNotFoundError:
        return dict.fromkeys(numbers, f"its file is gone, {_ONLY_COPY}")
    location = storage.location(recorded.path)
    file = LandingFile(recorded.path, location, recorded.file_class, recorded.time, identity)
    wanted, found = pa.array(sorted(numbers), pa.int64()), list[pa.RecordBatch]()
    for batch in read_any(storage, file, _undecided(spec)):
        if batch.column(schemas.KIND)[0].as_py() == schemas.KIND_FILE:
            summary = FileSummary.from_json(batch.column(schemas.DETAIL)[0].as_py())
        else:
            found.append(batch.filter(pc.is_in(batch.column(schemas.ROW), wanted)))
    if problem := _difference(recorded, summary):
        return dict.fromkeys(numbers, problem)
    table = pa.Table.from_batches(found, record_schema(spec.columns))
    return {number: _row_of(table, number) for number in numbers}


_ONLY_COPY = "and of a table with a column policy no other text of the row is kept"


def _difference(recorded: FileSummary, found: FileSummary) -> str | None:
    """Return why a file's row numbers may not mean the rows that they meant, None where they do."""
    if not found.stable:
        return "its file is being written"
    if found.content_hash != recorded.content_hash:
        return f"its file has other content than when the row was set aside, {_ONLY_COPY}"
    if found.problem or found.mismatch:
        return found.problem or "the columns of its file do not fit the table's schema"
    then, now = (summary.rows + summary.ignored + summary.erased for summary in (recorded, found))
    if then != now:
        return f"its file had {then:,} rows when the row was set aside, and has {now:,} under the present settings"
    return None


def _row_of(table: pa.Table, number: int) -> pa.RecordBatch | str:
    rows = table.filter(pc.equal(table.column(schemas.ROW), number)).combine_chunks()
    return rows.to_batches()[0] if rows.num_rows else "its file has no such row"


# Whether a row's text holds its key.
HAS_KEY = f"{schemas.PREFIX}has_key"


def keys_of_raw(rows: pa.RecordBatch, spec: ReadSpec) -> pa.RecordBatch:
    """Return the keys in the texts of quarantined rows, whatever else is wrong with them, and their commit times.

    ``rows`` has file, name time, row and text. A row has two keys where its before image holds another one, and a
    single record without a key where the text holds none.
    """
    columns = [column for column in spec.columns if column.name in spec.key]
    fields = {column.name: arrow_type(column.lake_type) for column in columns}
    schema = pa.schema([*_KEY_FIELDS, *fields.items()])
    found = [
        {schemas.FILE: path, schemas.FILE_TIME: time, schemas.ROW: row, **key}
        for path, time, row, raw in zip(*(column.to_pylist() for column in rows.columns[:4]), strict=True)
        for key in _raw_keys(raw, path, spec, load=not time) or [{HAS_KEY: False}]
    ]
    return pa.RecordBatch.from_pylist(found, schema)


_KEY_FIELDS = (
    pa.field(schemas.FILE, pa.string()),
    pa.field(schemas.FILE_TIME, pa.string()),
    pa.field(schemas.ROW, pa.int64()),
    pa.field(schemas.COMMIT_TIME, pa.timestamp("us", "UTC")),
    pa.field(HAS_KEY, pa.bool_()),
)


def _raw_keys(raw: str | None, path: str, spec: ReadSpec, *, load: bool) -> list[dict[str, object]]:
    """Return the key in a text, and the previous key where that differs; nothing where there is none."""
    if raw is None:
        return []
    file_class = FileClass.TRANSACTIONS if is_transactions(path) else FileClass.CHANGES
    try:
        fields, layout, own, *_ = _fields(raw, path, spec, FileClass.LOAD if load else file_class)
    except (MismatchedFileError, UnusableFileError):
        return []
    moment = _value(fields, layout.timestamp, "timestamp", own)
    common = {schemas.COMMIT_TIME: moment.as_py() if moment is not None else None, HAS_KEY: True}
    keys = [_key(fields, positions, own) for positions in (layout.columns, {**layout.columns, **layout.before})]
    return [{**common, **key} for index, key in enumerate(keys) if key is not None and key not in keys[:index]]


def _key(fields: Sequence[str | None], positions: Mapping[str, int], spec: ReadSpec) -> dict[str, object] | None:
    types = {column.name: column.type for column in spec.columns}
    values = {name: _value(fields, positions.get(name), types[name], spec) for name in spec.key}
    if any(value is None for value in values.values()):
        return None
    return {name: value.as_py() for name, value in values.items() if value is not None}


def _value(fields: Sequence[str | None], position: int | None, column_type: str, spec: ReadSpec) -> pa.Scalar | None:
    """Read one field of a row; None where the row has no such field or it does not fit."""
    if position is None or position >= len(fields):
        return None
    cells = parse_text(pa.array([fields[position]], pa.string()), column_type, spec.settings.csv.binary)
    return cells.values[0] if cells.failed is None else None


def raw_values(raw: str, path: str, spec: ReadSpec, *, load: bool) -> dict[str, str | None]:
    """Return the values of the table's columns in a quarantined row's text, as far as it has them, unchecked."""
    file_class = FileClass.TRANSACTIONS if is_transactions(path) else FileClass.CHANGES
    try:
        fields, layout, *_ = _fields(raw, path, spec, FileClass.LOAD if load else file_class)
    except (MismatchedFileError, UnusableFileError):
        return {}
    return {name: fields[position] for name, position in layout.columns.items() if position < len(fields)}


class _Fields(NamedTuple):
    """A row's fields, their layout, the spec to read them by, and whether the layout follows from their number."""

    fields: Sequence[str | None]
    layout: Layout
    spec: ReadSpec
    by_count: bool = False
    quoted_empty: tuple[int, ...] = ()


def _fields(raw: str, path: str, spec: ReadSpec, file_class: FileClass) -> _Fields:
    """Return a row's fields and how to read them."""
    if not is_utf8(raw):
        msg = "the row's text is not valid UTF-8"
        raise UnusableFileError(msg)
    if file_format(path) == "parquet":
        return _json_fields(raw, spec)
    limits = Limits.of(spec.settings)
    records = list(tokenize(io.StringIO(raw + "\n", newline=""), spec.settings.csv, limits))
    expected = 2 if spec.settings.csv.header and file_class is not FileClass.TRANSACTIONS else 1
    if len(records) != expected or not records[-1].is_closed:
        what = "a header and one record" if expected > 1 else "one record"
        msg = f"the row's text holds {len(records)} records; expected {what}"
        raise UnusableFileError(msg)
    if file_class is FileClass.TRANSACTIONS:
        return _transaction_fields(records[0], spec)
    return _csv_fields(records, spec, load=file_class is FileClass.LOAD)


def _json_fields(raw: str, spec: ReadSpec) -> _Fields:
    """Read a Parquet row's JSON object, whose values are texts as the reader writes them."""
    try:
        row = json.loads(raw)
        if not isinstance(row, dict):
            msg = "the row's text is not a JSON object of column names and values"
            raise UnusableFileError(msg)
        fields = [None if value is None else _as_text(value) for value in row.values()]
    except (ValueError, RecursionError) as error:
        msg = f"the row's text is not JSON: {error}"
        raise UnusableFileError(msg) from error
    if not is_utf8("".join([*row, *(field or "" for field in fields)])):
        msg = "the row's text contains escapes of lone surrogates, which are not text"
        raise UnusableFileError(msg)
    layout = _named(list(row), spec)
    # Not the CSV files' conventions: the reader writes binary as hex, and has no token for "unchanged".
    csv = spec.settings.csv.model_copy(update={"binary": "hex", "unchanged": None})
    settings = spec.settings.model_copy(update={"csv": csv})
    return _Fields(fields, layout, replace(spec, settings=settings))


def _as_text(value: object) -> str:
    """Return a JSON value as text: a person who repairs a row may write a bare number."""
    return value if isinstance(value, str) else json.dumps(value)


def _named(names: Sequence[str], spec: ReadSpec, *, names_from_settings: bool = False) -> Layout:
    layout = layout_by_names(names, spec.settings, spec.names)
    check_columns(layout, spec, names_from_settings=names_from_settings)
    return layout


def _transaction_fields(record: CsvRecord, spec: ReadSpec) -> _Fields:
    found = own_fields(record, spec)
    if found is None:
        msg = "the row's text names another table"
        raise UnusableFileError(msg)
    fields = found.fields
    layout = probe_layout([fields], spec, load=False, has_operation=True)
    return _Fields(fields, layout, spec, images_by_count(spec), found.quoted_empty)


def _csv_fields(records: list[CsvRecord], spec: ReadSpec, *, load: bool) -> _Fields:
    csv, fields, quoted = spec.settings.csv, records[-1].fields, records[-1].quoted_empty
    if csv.header:
        names = [(csv.null or "") if name is None else name for name in records[0].fields]
        return _Fields(fields, _named(names, spec), spec, quoted_empty=quoted)
    if configured := csv.load_columns if load else csv.columns:
        return _Fields(fields, _named(configured, spec, names_from_settings=True), spec, quoted_empty=quoted)
    layout = probe_layout([fields], spec, load=load, has_operation=False)
    return _Fields(fields, layout, spec, images_by_count(spec), quoted)
