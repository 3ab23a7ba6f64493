"""Reading a load part or change file of a table into record batches, the last of which describes the file itself.

Rows are emitted while the file is read, before it is known whether all of it can be used: the caller must discard the
records of a file whose summary has a ``problem`` or ``mismatch``, or is not ``stable``.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakeward.errors import LakewardError
from lakeward.formats.dms.blocks import Tally, quotes_count, text_block
from lakeward.formats.dms.changes import Assembler, check_columns, check_key, check_names, choose_order
from lakeward.formats.dms.csv import CsvFile
from lakeward.formats.dms.files import (
    Limits,
    MismatchedFileError,
    UnusableFileError,
    error_text,
    plain_file,
    unforeseen,
)
from lakeward.formats.dms.folders import folder_values, with_folder_columns
from lakeward.formats.dms.layout import Layout, absent_columns, layout_by_names, probe_layout, shown_names
from lakeward.formats.dms.listing import file_format
from lakeward.formats.dms.parquet import check_types, file_columns, open_parquet, parquet_blocks
from lakeward.formats.dms.sniffing import is_undeclared_header
from lakeward.formats.dms.values import file_batch, record_schema
from lakeward.model import FileClass

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lakeward.formats.base import ReadSpec
    from lakeward.formats.dms.blocks import TextRows
    from lakeward.model import LandingFile
    from lakeward.storage.landing import Landing

_UNREADABLE = (OSError, EOFError, zlib.error, pa.ArrowException)


def read_file(storage: Landing, file: LandingFile, spec: ReadSpec) -> Iterator[pa.RecordBatch]:
    """Read one file into record batches; the last one holds the file's summary. It raises for no content."""
    tally = Tally(file)
    try:
        _require_as_listed(storage, file)
        with storage.spool(file.path) as (local_path, content_hash):
            tally.content_hash = content_hash
            yield from _read(local_path, spec, tally, storage.below_lake(file.path))
    except MismatchedFileError:
        tally.mismatch = True
    except UnusableFileError as error:
        tally.problem = str(error)
    except _UNREADABLE as error:
        shown = error_text(error, hides_values=spec.hides_values)
        tally.problem = f"the file cannot be read as {file_format(file.path)}: {shown}"
    except LakewardError:
        raise  # of the storage
    except Exception as error:
        tally.problem = unforeseen(error, hides_values=spec.hides_values)
    if not is_as_listed(storage, file):
        # The file is still changing: what was found in it does not count.
        tally.stable, tally.mismatch, tally.problem = False, False, None
    yield file_batch(record_schema(spec.columns), tally.summary())


def is_as_listed(storage: Landing, file: LandingFile) -> bool:
    """Whether a file is unchanged since it was listed."""
    try:
        return storage.identity(file.path) == file.identity
    except FileNotFoundError:
        return False


def _require_as_listed(storage: Landing, file: LandingFile) -> None:
    if not is_as_listed(storage, file):
        msg = "the file changed or vanished after it was listed"
        raise UnusableFileError(msg)


def _read(local_path: str, spec: ReadSpec, tally: Tally, in_lake: str | None) -> Iterator[pa.RecordBatch]:
    check_names(column.name for column in spec.columns)
    if in_lake is not None:
        return _read_adopted(local_path, spec, tally, in_lake)
    if file_format(tally.file.path) == "parquet":
        return _read_parquet(local_path, spec, tally)
    csv = CsvFile.open(local_path, spec.settings.csv, Limits.of(spec.settings), hides_values=spec.hides_values)
    return _read_csv(csv, spec, tally)


def _read_parquet(local_path: str, spec: ReadSpec, tally: Tally) -> Iterator[pa.RecordBatch]:
    limits = Limits.of(spec.settings)
    with plain_file(local_path, limits) as path, open_parquet(path, limits) as file:
        layout = layout_by_names(file.schema_arrow.names, spec.settings, spec.names)
        found = file_columns(file.schema_arrow, layout, spec.settings)
        tally.columns = tuple((column.name, column.type) for column in found)
        check_columns(layout, spec)
        check_types(file.schema_arrow, layout, spec)
        assembler = _assembler(layout, spec, tally)
        for block in parquet_blocks(file, layout, spec, limits, load=assembler.load):
            yield from assembler.assemble(block)


def _read_adopted(local_path: str, spec: ReadSpec, tally: Tally, in_lake: str) -> Iterator[pa.RecordBatch]:
    """Read a file of a lake that another system wrote; the names of its folders hold the values of some columns."""
    limits = Limits.of(spec.settings)
    with plain_file(local_path, limits) as path, open_parquet(path, limits) as file:
        values = folder_values(in_lake, spec)
        schema = with_folder_columns(file.schema_arrow, values)
        layout = replace(layout_by_names(schema.names, spec.settings, spec.names), operation=None)
        found = file_columns(schema, layout, spec.settings)
        tally.columns = tuple((column.name, column.type) for column in found)
        check_columns(layout, spec)
        check_types(schema, layout, spec)
        assembler = _assembler(layout, spec, tally)
        for block in parquet_blocks(file, layout, spec, limits, load=assembler.load, constants=values):
            yield from assembler.assemble(block)


def _read_csv(csv: CsvFile, spec: ReadSpec, tally: Tally) -> Iterator[pa.RecordBatch]:
    if not csv.shape.size:
        return
    layout, by_count = _csv_layout(csv, spec, tally)
    quoted = quotes_count(layout, spec) and not _is_load(tally)
    yield from assemble_text(csv.read(layout.width, quotes_count=quoted), layout, spec, tally, by_count)


def _csv_layout(csv: CsvFile, spec: ReadSpec, tally: Tally) -> tuple[Layout, bool]:
    """Return a file's layout, and whether it follows from the number of fields alone."""
    load = _is_load(tally)
    if csv.settings.header:
        layout = layout_by_names(csv.names(), spec.settings, spec.names)
        tally.columns = tuple((name, "") for name in shown_names(csv.names(), layout, spec))
        check_columns(layout, spec)
        return layout, False
    _require_no_header(csv, spec)
    if configured := csv.settings.load_columns if load else csv.settings.columns:
        layout = layout_by_names(configured, spec.settings, spec.names)
        check_columns(layout, spec, names_from_settings=True)
        return layout, False
    return probe_layout(csv.probe(), spec, load=load, has_operation=False), images_by_count(spec)


def _require_no_header(csv: CsvFile, spec: ReadSpec) -> None:
    """Refuse a file that begins with the names of its columns where ``csv.header`` is not set.

    If all columns are text, the names would become an ordinary row.
    """
    first = next((record for _, record in csv.records()), None)
    if first is not None and is_undeclared_header(first.fields, spec):
        msg = (
            f"its first record holds the names of the table's columns ({first.text}), and csv.header is not set: "
            "set csv.header: true, or false if that record is a row"
        )
        raise UnusableFileError(msg)


def images_by_count(spec: ReadSpec) -> bool:
    """Whether the before images of a headerless file are recognised only by the number of fields."""
    return spec.settings.before_image_columns is None


def assemble_text(
    chunks: Iterable[TextRows], layout: Layout, spec: ReadSpec, tally: Tally, by_count: bool
) -> Iterator[pa.RecordBatch]:
    """Turn rows of text into records."""
    assembler = _assembler(layout, spec, tally)
    for rows in chunks:
        if len(rows.rows):
            block = text_block(rows, layout, spec, load=assembler.load, images_by_count=by_count)
            yield from assembler.assemble(block)
        yield from assembler.bad(rows.bad)


def _assembler(layout: Layout, spec: ReadSpec, tally: Tally) -> Assembler:
    check_key(spec)
    tally.order_by = choose_order(layout, spec, load=_is_load(tally))
    return Assembler(spec, tally, tally.order_by, absent_columns(layout, spec.columns))


def _is_load(tally: Tally) -> bool:
    return tally.file.file_class is FileClass.LOAD
