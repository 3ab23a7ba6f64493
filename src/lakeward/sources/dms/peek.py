"""What a file says of its columns: a Parquet footer, a CSV header, or the looks of the first records."""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakeward.datatypes import Column
from lakeward.errors import LakewardError
from lakeward.model import FileClass
from lakeward.sources.dms.checks import check_columns
from lakeward.sources.dms.csv import CsvFile
from lakeward.sources.dms.files import plain_file
from lakeward.sources.dms.layout import layout_by_names, probe_layout
from lakeward.sources.dms.limits import Limits
from lakeward.sources.dms.names import file_format
from lakeward.sources.dms.parquet import check_types, file_columns, open_parquet
from lakeward.sources.dms.problems import MismatchedFileError, UnusableFileError, unforeseen
from lakeward.sources.dms.sniffing import sniff_header, sniff_named_times, sniff_records
from lakeward.texts import escape_text

if TYPE_CHECKING:
    from lakeward.model import LandingFile
    from lakeward.sources.base import ReadSpec
    from lakeward.sources.dms.layout import Layout
    from lakeward.sources.dms.sniffing import Suggestion
    from lakeward.sources.storage import Storage

_UNREADABLE = (UnusableFileError, OSError, EOFError, zlib.error, pa.ArrowException)


@dataclass(frozen=True)
class Peek:
    """A file's columns as it names them, or as its records look.

    ``columns`` are the source's with their lake types (none in a CSV header); None where the file names none. Where
    ``has_layout`` is set, the flags tell which of the capture's own columns it has. ``mismatch`` says that the columns
    do not fit the spec, ``problem`` why the file cannot be used at all. ``suggestions`` are settings with which it
    would look right.
    """

    path: str
    file_class: FileClass
    columns: tuple[Column, ...] | None = None
    has_layout: bool = False
    has_operation: bool = False
    has_timestamp: bool = False
    has_sequence: bool = False
    has_before_images: bool = False
    mismatch: bool = False
    problem: str | None = None
    suggestions: tuple[Suggestion, ...] = ()

    @property
    def tells_types(self) -> bool:
        """Whether a table's schema can be learnt from the file."""
        return bool(self.columns) and all(column.type for column in self.columns or ())


def peek(storage: Storage, file: LandingFile, spec: ReadSpec) -> Peek:
    """Look at a file's own account of its columns. No content makes it raise."""
    try:
        with storage.spool(file.path) as (local_path, _):
            if file_format(file.path) == "parquet":
                return _peek_parquet(local_path, file, spec)
            csv = CsvFile.open(local_path, spec.settings.csv, Limits.of(spec.settings))
            return _peek_csv(csv, file, spec)
    except _UNREADABLE as error:
        return Peek(file.path, file.file_class, problem=escape_text(str(error)))
    except MismatchedFileError:
        return Peek(file.path, file.file_class, mismatch=True)
    except LakewardError:
        raise  # of the storage
    except Exception as error:
        return Peek(file.path, file.file_class, problem=escape_text(unforeseen(error)))


def _peek_parquet(local_path: str, file: LandingFile, spec: ReadSpec) -> Peek:
    limits = Limits.of(spec.settings)
    with plain_file(local_path, limits) as path, open_parquet(path, limits) as parquet:
        schema = parquet.schema_arrow
        first = next(parquet.iter_batches(batch_size=1, use_threads=False), None)
    layout = layout_by_names(schema.names, spec.settings, _declared(spec))
    found = _peeked(file, layout, file_columns(schema, layout, spec.settings))
    if first is not None and first.num_rows and not layout.repeated:
        values = [column[0].as_py() for column in first.columns]
        found = replace(found, suggestions=tuple(sniff_named_times(schema.names, values, spec)))
    return _checked(found, layout, spec, schema)


def _peek_csv(csv: CsvFile, file: LandingFile, spec: ReadSpec) -> Peek:
    if not csv.shape.size:
        return Peek(file.path, file.file_class)
    if csv.settings.header:
        return _peek_named_csv(csv, file, spec)
    if not spec.columns:
        return Peek(file.path, file.file_class)
    suggestions = tuple(sniff_records(csv.probe_texts(), spec, starts_file=True))
    is_load = file.file_class is FileClass.LOAD
    if configured := csv.settings.load_columns if is_load else csv.settings.columns:
        layout = layout_by_names(configured, spec.settings, _declared(spec))
        check_columns(layout, spec, names_from_settings=True)
    else:
        layout = probe_layout(csv.probe(), spec, load=is_load, has_operation=False)
    problem = None if any(one.stops for one in suggestions) else _wrong_width(csv, layout)
    return replace(_peeked(file, layout, None), problem=problem, suggestions=suggestions)


def _peek_named_csv(csv: CsvFile, file: LandingFile, spec: ReadSpec) -> Peek:
    names = csv.names()
    layout = layout_by_names(names, spec.settings, _declared(spec))
    suggestions = sniff_header(names, csv.header.text if csv.header else "", spec)
    first = next(iter(csv.probe()), None)
    if not suggestions and first is not None and len(first) == len(names):
        suggestions = sniff_named_times(names, first, spec)
    columns = tuple(Column(name, "") for name in (*layout.columns, *layout.unknown))
    found = replace(_peeked(file, layout, columns), suggestions=tuple(suggestions))
    return found if any(one.stops for one in suggestions) else _checked(found, layout, spec)


def _wrong_width(csv: CsvFile, layout: Layout) -> str | None:
    """Say that the records do not have the fields that schema and settings make."""
    widths = Counter(len(fields) for fields in csv.probe()).most_common(1)
    if not widths or (width := widths[0][0]) == layout.width:
        return None
    names = ", ".join(layout.columns)
    return f"most records have {width} fields, and no reading of the {len(layout.columns)} columns {names} has as many"


def _declared(spec: ReadSpec) -> list[str] | None:
    """Give the names that are columns whatever they look like; before any is known every name left over is one."""
    return [column.name for column in spec.columns] or None


def _peeked(file: LandingFile, layout: Layout, columns: tuple[Column, ...] | None) -> Peek:
    return Peek(
        file.path,
        file.file_class,
        columns,
        has_layout=True,
        has_operation=layout.operation is not None,
        has_timestamp=layout.timestamp is not None,
        has_sequence=layout.sequence is not None,
        has_before_images=bool(layout.before),
    )


def _checked(found: Peek, layout: Layout, spec: ReadSpec, schema: pa.Schema | None = None) -> Peek:
    """Check as the reader does, once the table's columns are known."""
    if not spec.columns:
        return found
    try:
        check_columns(layout, spec)
        if schema is not None:
            check_types(schema, layout, spec)
    except UnusableFileError as error:
        return replace(found, problem=str(error))
    except MismatchedFileError:
        return replace(found, mismatch=True)
    return found
