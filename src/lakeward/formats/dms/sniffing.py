"""Whether a file looks as if it was written with other settings: a header, another delimiter, a commit time.

Only what a person would see at a glance is reported. Nothing is read differently: the suggestion names the setting to
change, and the user decides. :func:`peek` looks at a file's columns without reading all of it.
"""

from __future__ import annotations

import io
import json
import re
import zlib
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakeward.columns import Column
from lakeward.errors import LakewardError
from lakeward.formats.dms.changes import check_columns
from lakeward.formats.dms.csv import CsvFile, tokenize
from lakeward.formats.dms.files import (
    Limits,
    MismatchedFileError,
    UnusableFileError,
    error_text,
    plain_file,
    unforeseen,
)
from lakeward.formats.dms.layout import (
    COMMIT_TIME,
    OPERATIONS,
    layout_by_names,
    possible_widths,
    probe_layout,
    record_columns,
    shown_names,
)
from lakeward.formats.dms.listing import file_format
from lakeward.formats.dms.parquet import check_types, file_columns, open_parquet
from lakeward.formats.dms.values import parse_text
from lakeward.model import FileClass
from lakeward.text import escape_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward.formats.base import ReadSpec
    from lakeward.formats.dms.layout import Layout
    from lakeward.model import LandingFile
    from lakeward.storage.landing import Landing


if TYPE_CHECKING:
    Fields = Sequence[str | None]

DELIMITERS = (",", ";", "\t", "|", "\x01")
_IDENTIFIER = re.compile(r"[^\W\d][\w .$#-]*")
_COMMIT_NAME = re.compile(r"(?:.*_)?(?:ts|timestamp|commit_?time|commit_?ts)", re.IGNORECASE)
_TIMES = ("timestamp", "timestamp_ntz")


@dataclass(frozen=True)
class Suggestion:
    """A setting that seems to be wrong, the value that would fit, as in YAML, and the evidence.

    ``stops``: read with the present settings, rows would be lost or wrong. ``column`` is the column that the value
    names, exactly as the file does.
    """

    setting: str
    value: str
    message: str
    stops: bool = True
    column: str | None = None


def sniff_records(texts: Sequence[str], spec: ReadSpec, *, starts_file: bool) -> list[Suggestion]:
    """Return the CSV settings that the records of a headerless file contradict, by the records' own texts.

    ``starts_file``: the first text is the first record of its file.
    """
    if not texts or not spec.columns:
        return []
    delimiter = _other_delimiter(texts, spec)
    found = [] if delimiter is None else [_delimiter_suggestion(delimiter, spec)]
    records = _records(texts, delimiter or spec.settings.csv.delimiter, spec)
    if starts_file and is_undeclared_header(records[0], spec):
        shown = ", ".join(field or "" for field in records[0])
        found.append(Suggestion("csv.header", "true", f"the first record holds the names of columns: {shown}"))
    elif starts_file and is_header_unset(spec) and _is_unlike_the_rest(records, spec):
        shown = "it" if spec.hides_values else repr(texts[0])
        message = f"the first record looks like a header: unlike the others, {shown} does not fit the schema's types"
        found.append(Suggestion("csv.header", "true", message, stops=False))
    else:
        found += _commit_time(records, spec)
    return found


def sniff_bad_rows(texts: Sequence[str], spec: ReadSpec, *, are_first: bool) -> list[Suggestion]:
    """Return the settings that bad rows of headerless CSV files contradict, by the rows' own texts.

    ``are_first``: each is the first record of its file, and its only bad row.
    """
    found = sniff_records(texts, spec, starts_file=are_first)
    is_found = any(suggestion.setting == "csv.header" for suggestion in found)
    records = _records(texts, spec.settings.csv.delimiter, spec)
    if are_first and not is_found and is_header_unset(spec) and records and all(map(has_words_only, records)):
        message = f"only the first record of each file is bad, and it looks like a header: {texts[0]!r}"
        found.append(Suggestion("csv.header", "true", message))
    return found


def sniff_header(names: Sequence[str], text: str, spec: ReadSpec) -> list[Suggestion]:
    """Return the CSV settings that a header contradicts; ``text`` is the record that was read as the header."""
    if not spec.columns or any(name.strip().lower() in _known_names(spec) for name in names):
        return []
    for delimiter in DELIMITERS:
        if is_header(_records([text], delimiter, spec)[0], spec):
            return [_delimiter_suggestion(delimiter, spec)]
    shown = "" if spec.hides_values else f": {text}"
    message = f"the first record of the file names no column of the table, it may be data{shown}"
    return [Suggestion("csv.header", "false", message)]


def sniff_named_times(names: Sequence[str], first: Sequence[object], spec: ReadSpec) -> list[Suggestion]:
    """Return the commit time column that a file with named columns seems to have, if it is not declared.

    DMS puts it before the table's columns, as text. ``first`` holds a value of each column.
    """
    settings = spec.settings
    declared = {column.name for column in settings.columns or ()}
    own = [name for name in names if name.lower() != settings.operation_column.lower()]
    if settings.timestamp_column is not None or len(own) < 2 or own[0] in declared:
        return []
    value = first[list(names).index(own[0])]
    is_text = isinstance(value, str) and COMMIT_TIME.match(value) is not None
    is_named_so = _COMMIT_NAME.fullmatch(own[0]) is not None and not isinstance(value, (int, str))
    if not (is_text or is_named_so):
        return []
    message = (
        f"column {own[0]!r} comes first and holds times, like the commit time that the capture tool adds: with "
        "these settings it becomes a column of the mirror, and changes are not ordered by it"
    )
    return [Suggestion("timestamp_column", _as_yaml(own[0]), message, stops=False, column=own[0])]


def is_header(fields: Fields, spec: ReadSpec) -> bool:
    """Whether a record consists of names only, and all columns of the table are among them."""
    named = [(field or "").strip().lower() for field in fields]
    columns = {name.lower() for name in record_columns(spec)}
    return columns <= set(named) and all(name in _known_names(spec) for name in named)


def is_undeclared_header(fields: Fields, spec: ReadSpec) -> bool:
    """Whether a record looks like a header, and ``csv.header`` is not set."""
    return is_header_unset(spec) and is_header(fields, spec)


def is_header_unset(spec: ReadSpec) -> bool:
    """Whether ``csv.header`` has its default because it is not set."""
    return "header" not in spec.settings.csv.model_fields_set


def has_words_only(fields: Fields) -> bool:
    """Whether every field is a word, as the names of columns are."""
    return bool(fields) and all(field and _IDENTIFIER.fullmatch(field.strip()) for field in fields)


def _known_names(spec: ReadSpec) -> set[str]:
    """Return every name that a field of the table's files may have, in lower case."""
    settings = spec.settings
    columns = {*record_columns(spec), *settings.renames}
    own = {settings.operation_column, settings.timestamp_column or "", settings.sequence_column}
    images = {f"{settings.before_image_prefix}{name}{settings.before_image_suffix}" for name in columns}
    return {name.lower() for name in columns | own | images}


def _records(texts: Sequence[str], delimiter: str, spec: ReadSpec) -> list[Fields]:
    csv, limits = spec.settings.csv.model_copy(update={"delimiter": delimiter}), Limits.of(spec.settings)
    return [next((record.fields for record in tokenize(io.StringIO(text), csv, limits)), []) for text in texts]


def _other_delimiter(texts: Sequence[str], spec: ReadSpec) -> str | None:
    """Return the delimiter with which most records have a number of fields that fits the table."""
    wanted = possible_widths(spec)
    present = spec.settings.csv.delimiter
    if _common_width(texts, present, spec) in wanted:
        return None
    fitting = [
        delimiter
        for delimiter in DELIMITERS
        if delimiter != present and _common_width(texts, delimiter, spec) in wanted - {1}
    ]
    return fitting[0] if len(fitting) == 1 else None


def _common_width(texts: Sequence[str], delimiter: str, spec: ReadSpec) -> int:
    [(width, _)] = Counter(len(fields) for fields in _records(texts, delimiter, spec)).most_common(1)
    return width


def _delimiter_suggestion(delimiter: str, spec: ReadSpec) -> Suggestion:
    present = spec.settings.csv.delimiter
    message = f"records have as many fields as the table with the delimiter {delimiter!r}, and not with {present!r}"
    return Suggestion("csv.delimiter", json.dumps(delimiter), message)


def _is_unlike_the_rest(records: Sequence[Fields], spec: ReadSpec) -> bool:
    """Whether the first record has a word wherever the others have values of a type other than text."""
    first, rest = records[0], [record for record in records[1:] if len(record) == len(records[0])]
    if not rest or not has_words_only(first):
        return False
    types = {column.type for column in spec.columns} - {"string", "binary"}
    places = [
        place
        for place in range(len(first))
        if any(_fits([r[place] for r in rest], data_type, spec) for data_type in types)
    ]
    return bool(places) and all(
        not any(_fits([first[place]], data_type, spec) for data_type in types) for place in places
    )


def _fits(values: Fields, column_type: str, spec: ReadSpec) -> bool:
    """Whether nearly all values are of a type; some may be missing or bad, but not all."""
    present = pa.array([value for value in values if value], pa.string())
    if not len(present):
        return False
    cells = parse_text(present, column_type, spec.settings.csv.binary)
    return bool(cells.values.null_count <= len(present) // 10)


def _commit_time(records: Sequence[Fields], spec: ReadSpec) -> list[Suggestion]:
    """Suggest a commit time column where the records of a headerless file have times before their columns."""
    columns = spec.settings.columns or spec.columns
    if spec.settings.timestamp_column is not None or columns[0].type in _TIMES:
        return []
    has_operation = all(record and record[0] in OPERATIONS for record in records)
    place, usual = int(has_operation), len(columns) + int(has_operation)
    values = [record[place] for record in records if len(record) > usual]
    if len(values) < len(records) or not all(value and COMMIT_TIME.match(value) for value in values):
        return []
    names = {column.name.lower() for column in columns}
    name = next(free for free in ("commit_time", "dms_commit_time", "lakeward_commit_time") if free not in names)
    message = (
        f"every record begins with a time before the table's {len(columns)} columns, like the commit time that "
        "the capture tool adds; where files have no column names, any name will do for it"
    )
    return [Suggestion("timestamp_column", name, message)]


def _as_yaml(name: str) -> str:
    return name if name.isidentifier() else json.dumps(name, ensure_ascii=False)


_UNREADABLE = (UnusableFileError, OSError, EOFError, zlib.error, pa.ArrowException)


@dataclass(frozen=True)
class Peek:
    """A file's columns by its Parquet footer, its CSV header, or its first records.

    ``columns`` are the source's with their lake types (without types for a CSV header); None where the file names none.
    With ``has_layout``, the flags show which of the capture's own columns it has. ``mismatch``: the columns do not fit
    the spec. ``problem`` is why the file cannot be used at all. ``suggestions`` are settings with which it would fit.
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
    def has_types(self) -> bool:
        """Whether a table's schema can be derived from the file."""
        return bool(self.columns) and all(column.type for column in self.columns or ())


def peek(storage: Landing, file: LandingFile, spec: ReadSpec) -> Peek:
    """Return what a file shows of its columns. No content raises an error."""
    try:
        with storage.spool(file.path) as (local_path, _):
            if file_format(file.path) == "parquet":
                return _peek_parquet(local_path, file, spec)
            limits = Limits.of(spec.settings)
            csv = CsvFile.open(local_path, spec.settings.csv, limits, hides_values=spec.hides_values)
            return _peek_csv(csv, file, spec)
    except _UNREADABLE as error:
        problem = escape_text(error_text(error, hides_values=spec.hides_values))
        return Peek(file.path, file.file_class, problem=problem)
    except MismatchedFileError:
        return Peek(file.path, file.file_class, mismatch=True)
    except LakewardError:
        raise  # of the storage
    except Exception as error:
        return Peek(file.path, file.file_class, problem=escape_text(unforeseen(error, hides_values=spec.hides_values)))


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
    problem = None if any(suggestion.stops for suggestion in suggestions) else _wrong_width(csv, layout)
    return replace(_peeked(file, layout, None), problem=problem, suggestions=suggestions)


def _peek_named_csv(csv: CsvFile, file: LandingFile, spec: ReadSpec) -> Peek:
    names = csv.names()
    layout = layout_by_names(names, spec.settings, _declared(spec))
    suggestions = sniff_header(names, csv.header.text if csv.header else "", spec)
    first = next(iter(csv.probe()), None)
    if not suggestions and first is not None and len(first) == len(names):
        suggestions = sniff_named_times(names, first, spec)
    columns = tuple(Column(name, "") for name in shown_names(names, layout, spec))
    found = replace(_peeked(file, layout, columns), suggestions=tuple(suggestions))
    return found if any(suggestion.stops for suggestion in suggestions) else _checked(found, layout, spec)


def _wrong_width(csv: CsvFile, layout: Layout) -> str | None:
    """Return that most records do not have the number of fields of the layout; None if they do."""
    widths = Counter(len(fields) for fields in csv.probe()).most_common(1)
    if not widths or (width := widths[0][0]) == layout.width:
        return None
    names = ", ".join(layout.columns)
    return f"most records have {width} fields, which the {len(layout.columns)} columns {names} do not explain"


def _declared(spec: ReadSpec) -> list[str] | None:
    """Return the names of the known columns; None if there are none, so that every other name becomes a column."""
    return [*spec.names] if spec.columns else None


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
    """Return the peek after the reader's checks, if the table's columns are known."""
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
