"""A guess at how CSV files are written and which types their texts have.

It serves proposals only: a person, or a command that asks for it, decides. Files are always read by declared settings.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakeward.columns import MAX_PRECISION, Column
from lakeward.config import CsvSettings
from lakeward.formats.dms.csv import CsvFile
from lakeward.formats.dms.files import Limits
from lakeward.formats.dms.layout import COMMIT_TIME, OPERATIONS, layout_by_names
from lakeward.formats.dms.sniffing import DELIMITERS, has_words_only
from lakeward.formats.dms.values import parse_text
from lakeward.text import is_utf8

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakeward.config import TableSettings

# Tokens that unquoted fields may hold for NULL; the first is the default of DMS.
_NULLS = ("NULL", "\\N", "null")
_ENOUGH = 0.9
_SHOWN = 3


@dataclass(frozen=True)
class FormatGuess:
    """How CSV files seem to be written: settings other than the defaults, and the meaning of each field of a load part.

    ``columns`` are the table's columns with their positions; names are invented where files have no header.
    ``evidence`` has a sentence for each setting, ``doubts`` what a person must decide.
    """

    csv: CsvSettings
    settings: dict[str, Any] = field(default_factory=dict)
    columns: dict[str, int] = field(default_factory=dict)
    width: int = 0
    timestamp: str | None = None
    evidence: dict[str, str] = field(default_factory=dict)
    doubts: tuple[str, ...] = ()


def guess_format(local_path: str, others: Sequence[str], settings: TableSettings) -> FormatGuess | None:
    """Return a guess from the first records of a file, confirmed by those of others; None for a file without records.

    Raises:
        UnusableFileError: the file is damaged or expands beyond the limits.
    """
    limits = Limits.of(settings)
    csv, settled, evidence, doubts = _punctuation(local_path, settings, limits)
    records = CsvFile.open(local_path, csv, limits).probe()
    if not records:
        return None
    width = _width(records)[0]
    more = [found for path in others if (found := CsvFile.open(path, csv, limits).probe())]
    names, reason, is_sure = _header(records, more)
    if names is not None:
        evidence["csv.header"] = reason
        settled["header"] = True
        csv = csv.model_copy(update={"header": True})
        columns, timestamp = _named(names, records[1:], settings)
        width = len(names)
    else:
        if not is_sure:
            doubts.append(reason)
        columns, timestamp = _placed(records, width, settings)
        doubts.append("the files name no columns: the names of the schema are invented, in the order of the fields")
    if timestamp is not None:
        evidence["timestamp_column"] = "every record begins with a time, like the commit time that the capture adds"
    return FormatGuess(csv, settled, columns, width, timestamp, evidence, tuple(doubts))


def _punctuation(
    local_path: str, settings: TableSettings, limits: Limits
) -> tuple[CsvSettings, dict[str, Any], dict[str, str], list[str]]:
    """Return delimiter and quote: those with which most records have the same number of fields, at least two."""
    base = settings.csv.model_copy(update={"header": False, "null": None})
    quote = "'" if _has_single_quotes(local_path, base, limits) else base.quote
    scores = []
    for delimiter in DELIMITERS:
        csv = base.model_copy(update={"delimiter": delimiter, "quote": quote})
        width, share = _width(CsvFile.open(local_path, csv, limits).probe())
        scores.append((share if width > 1 else 0.0, width, delimiter, csv))
    scores.sort(key=lambda score: (-score[0], -score[1]))
    share, width, delimiter, csv = scores[0]
    if share < _ENOUGH:
        doubts = [] if _single(scores) else ["no delimiter divides the records into the same number of fields"]
        return base.model_copy(update={"quote": quote}), {}, {}, doubts
    settled: dict[str, Any] = {}
    evidence: dict[str, str] = {}
    doubts = [
        f"the records may as well be divided by {rival!r}" for other, _, rival, _ in scores[1:] if other >= _ENOUGH
    ]
    if delimiter != CsvSettings().delimiter:
        settled["delimiter"] = delimiter
        evidence["csv.delimiter"] = f"with it the records have {width} fields each"
    if quote != CsvSettings().quote:
        settled["quote"] = quote
        evidence["csv.quote"] = "fields are enclosed in it, and no field is in double quotes"
    return csv, settled, evidence, doubts


def _single(scores: Iterable[tuple[float, int, str, CsvSettings]]) -> bool:
    """Whether the records have one field with every delimiter."""
    return all(width <= 1 for _, width, _, _ in scores)


def _width(records: Sequence[Sequence[str | None]]) -> tuple[int, float]:
    """Return the most frequent number of fields, and the share of records that have it."""
    if not records:
        return 0, 0.0
    [(width, times)] = Counter(len(record) for record in records).most_common(1)
    return width, times / len(records)


def _has_single_quotes(local_path: str, csv: CsvSettings, limits: Limits) -> bool:
    """Whether fields are enclosed in single quotes, in every record, and none in double quotes."""
    plain = csv.model_copy(update={"delimiter": "\x00", "quote": "\x00"})
    lines = [text for text in CsvFile.open(local_path, plain, limits).probe_texts() if text]
    ends = "".join(re.escape(delimiter) for delimiter in DELIMITERS)
    enclosed = re.compile(rf"(?:^|[{ends}])'[^']*'(?=$|[{ends}])")
    # A header may be without quotes.
    rows = lines[1:] or lines
    return bool(rows) and not any('"' in line for line in lines) and all(enclosed.search(line) for line in rows)


def _header(
    records: Sequence[Sequence[str | None]], others: Sequence[Sequence[Sequence[str | None]]]
) -> tuple[list[str] | None, str, bool]:
    """Return the names of a header, None without one, with the reason and whether it is certain."""
    first, rest = records[0], [record for record in records[1:] if len(record) == len(records[0])]
    names = [(name or "").strip() for name in first]
    if not has_words_only(first) or len({name.lower() for name in names}) < len(names):
        return None, "", True
    if any({name.lower() for name in names} <= {(name or "").strip().lower() for name in other[0]} for other in others):
        return names, "every file begins with the same names", True
    types = [_type_of([record[place] for record in rest]) for place in range(len(first))]
    if any(found not in ("string", None) for found in types):
        return names, "the first record holds words where all others hold numbers or times", True
    shown = ", ".join(names[:_SHOWN])
    return None, f"the first record may name the columns or be a row: {shown}", False


def _named(
    names: Sequence[str], rows: Sequence[Sequence[str | None]], settings: TableSettings
) -> tuple[dict[str, int], str | None]:
    """Return the source's columns of a header by position, and the commit time's column, if it is the first."""
    layout = layout_by_names(names, settings, None)
    columns = dict(layout.columns)
    if settings.timestamp_column is not None or len(columns) <= 1:
        return columns, None
    first = min(columns, key=lambda name: columns[name])
    if _are_times([row[columns[first]] for row in rows if len(row) == len(names)]):
        del columns[first]
        return columns, first
    return columns, None


def _placed(
    records: Sequence[Sequence[str | None]], width: int, settings: TableSettings
) -> tuple[dict[str, int], str | None]:
    """Return invented names by position for a file without header, and a name for a commit time in front."""
    rows = [record for record in records if len(record) == width]
    has_operation = width > 1 and all(row[0] in OPERATIONS for row in rows)
    first = int(has_operation)
    timestamp = None
    if width > first + 1 and _are_times([row[first] for row in rows]):
        timestamp, first = settings.timestamp_column or "commit_time", first + 1
    places = range(first, width)
    return {f"column_{number}": place for number, place in enumerate(places, start=1)}, timestamp


def _are_times(values: Sequence[str | None]) -> bool:
    return bool(values) and all(value is not None and COMMIT_TIME.match(value) for value in values)


# Types of texts. A type is found only if every value is written as that type is written: '007' and '+5' are texts,
# because a number would not keep them.

_WHOLE = r"^(?:0|-?[1-9][0-9]*)$"
_NUMBER = r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?$"
_FLOAT = r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?$"
_TRUTH = r"^(?:true|false)$"
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_LOCAL = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?$"
_INSTANT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?(?:Z|[+-][0-9]{2}:?[0-9]{2})$"
_PATTERNS = {
    "boolean": _TRUTH, "whole": _WHOLE, "number": _NUMBER, "double": _FLOAT,
    "date": _DATE, "timestamp_ntz": _LOCAL, "timestamp": _INSTANT,
}  # fmt: skip
_PARSED = frozenset({"double", "date", "timestamp_ntz", "timestamp"})
# Precision with room for larger values.
_PRECISIONS = (18, MAX_PRECISION)
_INT_DIGITS, _BIGINT_DIGITS = 9, 18


class TextColumn:
    """The types that all values of a column so far may have."""

    def __init__(self) -> None:
        self._kinds = list(_PATTERNS)
        self._whole_digits = self._scale = 0
        self.values = self.empty = self.nulls = 0

    def add(self, texts: pa.Array) -> None:
        """Take more values into account; nulls and empty texts show no type."""
        self.nulls += texts.null_count
        present = texts.drop_null()
        filled = present.filter(pc.not_equal(present, ""))
        self.empty += len(present) - len(filled)
        self.values += len(filled)
        if not len(filled):
            return
        self._kinds = [kind for kind in self._kinds if _all_are(filled, kind)]
        if "number" in self._kinds:
            self._measure(filled)

    def _measure(self, texts: pa.Array) -> None:
        parts = pc.extract_regex(texts, r"^-?(?P<whole>[0-9]+)(?:\.(?P<fraction>[0-9]+))?$")
        lengths = [pc.max(pc.binary_length(pc.struct_field(parts, name))).as_py() for name in ("whole", "fraction")]
        self._whole_digits = max(self._whole_digits, lengths[0] or 0)
        self._scale = max(self._scale, lengths[1] or 0)

    @property
    def type(self) -> str:
        """The narrowest type that fits, with room for larger numbers; text where no other fits."""
        kinds = self._kinds if self.values else []
        if "whole" in kinds and self._whole_digits <= _BIGINT_DIGITS:
            return "int" if self._whole_digits <= _INT_DIGITS else "bigint"
        if "number" in kinds:
            digits = self._whole_digits + self._scale
            precision = next((precision for precision in _PRECISIONS if digits <= precision), None)
            return f"decimal({precision},{self._scale})" if precision else "string"
        return next((kind for kind in ("boolean", "double", "date", "timestamp_ntz", "timestamp") if kind in kinds),
                    "string")  # fmt: skip


def _all_are(texts: pa.Array, kind: str) -> bool:
    pattern = _PATTERNS[kind]
    if not pc.all(pc.match_substring_regex(texts, pattern, ignore_case=kind == "boolean"), min_count=0).as_py():
        return False
    return kind not in _PARSED or parse_text(texts, kind).failed is None


def _type_of(values: Sequence[str | None]) -> str | None:
    """Return the type of some values, None if there are none."""
    if not all(value is None or is_utf8(value) for value in values):
        return "string"
    found = TextColumn()
    found.add(pa.array(values, pa.string()))
    return found.type if found.values else None


@dataclass(frozen=True)
class TypesGuess:
    """The columns of CSV files with the types that fit all values read, and the token of NULL if it is not the default.

    ``evidence`` has a sentence for the token, ``doubts`` what a person must decide.
    """

    columns: tuple[Column, ...]
    rows: int
    null: str | None = None
    evidence: dict[str, str] = field(default_factory=dict)
    doubts: tuple[str, ...] = ()


def guess_types(local_paths: Sequence[str], found: FormatGuess, settings: TableSettings) -> TypesGuess:
    """Return columns, types and null token by all records of some files that have the format.

    Raises:
        UnusableFileError: a file is damaged, expands beyond the limits, or ends inside a quoted value.
    """
    limits, default = Limits.of(settings), CsvSettings().null
    tokens = [token for token in _NULLS if _occurs(local_paths, found, token, limits)]
    token = tokens[0] if tokens else default
    rows, columns = _read(local_paths, found, token, limits)
    types = {name: column.type for name, column in columns.items()}
    gaps = [name for name, column in columns.items() if column.empty and types[name] != "string"]
    doubts = [f"several tokens may mean NULL: {', '.join(map(repr, tokens))}"] if len(tokens) > 1 else []
    evidence = {}
    if tokens and token != default:
        evidence["csv.null"] = f"unquoted fields hold {token!r}"
    if gaps and not tokens:
        token, shown = "", ", ".join(gaps[:_SHOWN])
        evidence["csv.null"] = f"fields of {shown} are empty where the others hold numbers or times"
    elif gaps:
        doubts.append(f"fields of {', '.join(gaps[:_SHOWN])} are empty, and {token!r} means NULL")
    if bare := [name for name, column in columns.items() if not column.values]:
        doubts.append(f"no value shows the type of {', '.join(bare[:_SHOWN])}")
    guessed = tuple(Column(name, types[name]) for name in found.columns)
    return TypesGuess(guessed, rows, token if token != default else None, evidence, tuple(doubts))


def _occurs(local_paths: Sequence[str], found: FormatGuess, token: str, limits: Limits) -> bool:
    """Whether an unquoted field of the table's columns is a token."""
    csv = found.csv.model_copy(update={"null": token})
    for path in local_paths:
        for rows in CsvFile.open(path, csv, limits).read(found.width):
            if len(rows.rows) and any(rows.texts[place].null_count for place in found.columns.values()):
                return True
    return False


def _read(
    local_paths: Sequence[str], found: FormatGuess, token: str | None, limits: Limits
) -> tuple[int, dict[str, TextColumn]]:
    columns = {name: TextColumn() for name in found.columns}
    csv, count = found.csv.model_copy(update={"null": token}), 0
    for path in local_paths:
        for rows in CsvFile.open(path, csv, limits).read(found.width):
            count += len(rows.rows)
            for name, place in found.columns.items() if len(rows.rows) else ():
                columns[name].add(rows.texts[place])
    return count, columns
