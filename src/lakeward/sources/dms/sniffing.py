"""Whether a file looks as if it was written with other settings: a header, another delimiter, a commit time.

Only what a person would see at a glance counts. Nothing is read differently for it: the setting to change is named,
and whoever set it decides.
"""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from lakeward.sources.dms.layout import possible_widths, record_columns
from lakeward.sources.dms.limits import Limits
from lakeward.sources.dms.plausible import COMMIT_TIME, OPERATIONS
from lakeward.sources.dms.tokens import tokenize
from lakeward.sources.dms.values import parse_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward.sources.base import ReadSpec

    Fields = Sequence[str | None]

_DELIMITERS = (",", ";", "\t", "|", "\x01")
_IDENTIFIER = re.compile(r"[^\W\d][\w .$#-]*")
_COMMIT_NAME = re.compile(r"(?:.*_)?(?:ts|timestamp|commit_?time|commit_?ts)", re.IGNORECASE)
_TIMES = ("timestamp", "timestamp_ntz")


@dataclass(frozen=True)
class Suggestion:
    """A setting that seems to be wrong, the value that would fit, written as in YAML, and what it was told by.

    ``stops``: read with the present settings, rows would be lost or wrong. ``column`` is the column that the value
    names, exactly as the file does.
    """

    setting: str
    value: str
    message: str
    stops: bool = True
    column: str | None = None


def sniff_records(texts: Sequence[str], spec: ReadSpec, *, starts_file: bool) -> list[Suggestion]:
    """Return the settings of CSV that records of a headerless reading speak against, given the records' own texts.

    ``starts_file``: the first of them is the first record of its file.
    """
    if not texts or not spec.columns:
        return []
    delimiter = _other_delimiter(texts, spec)
    found = [] if delimiter is None else [_delimiter_suggestion(delimiter, spec)]
    records = _records(texts, delimiter or spec.settings.csv.delimiter, spec)
    if starts_file and is_untold_header(records[0], spec):
        shown = ", ".join(field or "" for field in records[0])
        found.append(Suggestion("csv.header", "true", f"the first record holds the names of columns: {shown}"))
    elif starts_file and is_header_open(spec) and _is_unlike_the_rest(records, spec):
        message = (
            f"the first record looks like a header: unlike the others, {texts[0]!r} does not fit the schema's types"
        )
        found.append(Suggestion("csv.header", "true", message, stops=False))
    else:
        found += _commit_time(records, spec)
    return found


def sniff_bad_rows(texts: Sequence[str], spec: ReadSpec, *, are_first: bool) -> list[Suggestion]:
    """Return the settings that bad rows of headerless CSV files speak against, given their own texts.

    ``are_first``: each is the first record of its file, and the only bad one in it.
    """
    found = sniff_records(texts, spec, starts_file=are_first)
    is_told = any(one.setting == "csv.header" for one in found)
    records = _records(texts, spec.settings.csv.delimiter, spec)
    if are_first and not is_told and is_header_open(spec) and records and all(map(_has_words_only, records)):
        message = f"the first record of each file is its only bad one, and looks like a header: {texts[0]!r}"
        found.append(Suggestion("csv.header", "true", message))
    return found


def sniff_header(names: Sequence[str], text: str, spec: ReadSpec) -> list[Suggestion]:
    """Return the settings of CSV that a header speaks against; ``text`` is the record that was taken for one."""
    if not spec.columns or any(name.strip().lower() in _known_names(spec) for name in names):
        return []
    for delimiter in _DELIMITERS:
        if is_header(_records([text], delimiter, spec)[0], spec):
            return [_delimiter_suggestion(delimiter, spec)]
    message = f"the first record of the file names no column of the table, it may be data: {text}"
    return [Suggestion("csv.header", "false", message)]


def sniff_named_times(names: Sequence[str], first: Sequence[object], spec: ReadSpec) -> list[Suggestion]:
    """Return the commit time that a file with named columns seems to have, undeclared.

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
        f"column {own[0]!r} comes before all others and holds times, as the commit time does that the capture tool "
        "adds: as things are it becomes a column of the mirror, and changes are not ordered by it"
    )
    return [Suggestion("timestamp_column", _as_yaml(own[0]), message, stops=False, column=own[0])]


def is_header(fields: Fields, spec: ReadSpec) -> bool:
    """Whether a record consists of names only, and all columns of the table are among them."""
    named = [(field or "").strip().lower() for field in fields]
    columns = {name.lower() for name in record_columns(spec)}
    return columns <= set(named) and all(name in _known_names(spec) for name in named)


def is_untold_header(fields: Fields, spec: ReadSpec) -> bool:
    """Whether a record is a header, and nobody said that it is not."""
    return is_header_open(spec) and is_header(fields, spec)


def is_header_open(spec: ReadSpec) -> bool:
    """Whether ``csv.header`` is what it is because nobody set it."""
    return "header" not in spec.settings.csv.model_fields_set


def _has_words_only(fields: Fields) -> bool:
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
    """Return the delimiter with which most records have as many fields as some reading of the table wants."""
    wanted = possible_widths(spec)
    present = spec.settings.csv.delimiter
    if _common_width(texts, present, spec) in wanted:
        return None
    fitting = [one for one in _DELIMITERS if one != present and _common_width(texts, one, spec) in wanted - {1}]
    return fitting[0] if len(fitting) == 1 else None


def _common_width(texts: Sequence[str], delimiter: str, spec: ReadSpec) -> int:
    [(width, _)] = Counter(len(fields) for fields in _records(texts, delimiter, spec)).most_common(1)
    return width


def _delimiter_suggestion(delimiter: str, spec: ReadSpec) -> Suggestion:
    present = spec.settings.csv.delimiter
    message = f"records have as many fields as the table with the delimiter {delimiter!r}, and not with {present!r}"
    return Suggestion("csv.delimiter", json.dumps(delimiter), message)


def _is_unlike_the_rest(records: Sequence[Fields], spec: ReadSpec) -> bool:
    """Whether the first record has a word wherever the others have values of a type that no word is."""
    first, rest = records[0], [record for record in records[1:] if len(record) == len(records[0])]
    if not rest or not _has_words_only(first):
        return False
    types = {column.type for column in spec.columns} - {"string", "binary"}
    places = [place for place in range(len(first)) if any(_fits([r[place] for r in rest], one, spec) for one in types)]
    return bool(places) and all(not any(_fits([first[place]], one, spec) for one in types) for place in places)


def _fits(values: Fields, column_type: str, spec: ReadSpec) -> bool:
    """Whether nearly all values are of a type; some may be missing or bad, but not all."""
    present = pa.array([value for value in values if value], pa.string())
    if not len(present):
        return False
    cells = parse_text(present, column_type, spec.settings.csv.binary)
    return bool(cells.values.null_count <= len(present) // 10)


def _commit_time(records: Sequence[Fields], spec: ReadSpec) -> list[Suggestion]:
    """Find times before the columns of a file that names none, in records that are too long without them."""
    columns = spec.settings.columns or spec.columns
    if spec.settings.timestamp_column is not None or columns[0].type in _TIMES:
        return []
    has_operation = all(record and record[0] in OPERATIONS for record in records)
    place, usual = int(has_operation), len(columns) + int(has_operation)
    values = [record[place] for record in records if len(record) > usual]
    if len(values) < len(records) or not all(value and COMMIT_TIME.match(value) for value in values):
        return []
    names = {column.name.lower() for column in columns}
    name = next(one for one in ("commit_time", "dms_commit_time", "lakeward_commit_time") if one not in names)
    message = (
        f"every record holds a time before the table's {len(columns)} columns, as the commit time does that the "
        "capture tool adds; files without names take any name for it"
    )
    return [Suggestion("timestamp_column", name, message)]


def _as_yaml(name: str) -> str:
    return name if name.isidentifier() else json.dumps(name, ensure_ascii=False)
