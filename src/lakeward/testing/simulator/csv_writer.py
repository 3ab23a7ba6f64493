"""DMS-style CSV, written field by field so that every quote is on purpose."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any

from lakeward.datatypes import decimal_parts
from lakeward.model import FileClass, Operation
from lakeward.testing.simulator.files import column_names, commit_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakeward.datatypes import Column
    from lakeward.model import TableId
    from lakeward.testing.oracle import Row
    from lakeward.testing.simulator.files import ChangeRow, SourceFile
    from lakeward.testing.simulator.options import SimulatorOptions
    from lakeward.testing.simulator.tables import TableSpec

    Write = Callable[[Any], str]


def render_csv(file: SourceFile) -> bytes:
    """Give the file's bytes."""
    lines = [file.options.delimiter.join(fields) for fields in _records(file)]
    content = "".join(f"{line}\n" for line in lines).encode()
    # Without a fixed time the same simulation would give other bytes a second later.
    return gzip.compress(content, mtime=0) if file.options.gzip else content


def quote(text: str, options: SimulatorOptions) -> str:
    """Write a text value: quoted where it would otherwise be read as something else."""
    if not options.rfc4180:
        return text
    special = text in (options.null, options.unchanged) or any(
        character in text for character in (options.delimiter, '"', "\n", "\r")
    )
    return '"' + text.replace('"', '""') + '"' if special else text


def value_writer(column_type: str, options: SimulatorOptions) -> Write:
    """Give the function that writes values of a type; None is written as the null token."""
    if column_type in ("string", "binary"):
        # An empty binary value is an empty field, which may be the null token.
        as_text: Write = str if column_type == "string" else bytes.hex
        return lambda value: options.null if value is None else quote(as_text(value), options)
    plain = _plain_writer(column_type)
    return lambda value: options.null if value is None else plain(value)


def _plain_writer(column_type: str) -> Write:
    if decimal_parts(column_type):
        return lambda value: format(value, "f")
    if column_type in ("timestamp", "timestamp_ntz"):
        return commit_text
    if column_type in ("date", "time"):
        return lambda value: str(value.isoformat())
    if column_type == "boolean":
        return lambda value: "true" if value else "false"
    return repr


def _records(file: SourceFile) -> Iterator[list[str]]:
    options = file.options
    if options.header and file.table is not None:
        yield [quote(name, options) for name in column_names(file, file.table)]
    if file.file_class is FileClass.LOAD:
        assert file.table is not None
        yield from _load_records(file, file.columns)
        return
    writers: dict[TableId, _ChangeWriter] = {}
    for change in file.changes:
        if change.table.id not in writers:
            writers[change.table.id] = _ChangeWriter(file, change.table)
        yield writers[change.table.id].fields(change)


def _load_records(file: SourceFile, columns: tuple[Column, ...]) -> Iterator[list[str]]:
    options = file.options
    operation = ["I"] if options.op_in_load else []
    end = [""] if options.change_sequence else []
    writers = _writers(columns, options)
    for row, stamp in zip(file.load, file.load_stamps, strict=True):
        start = [*operation, stamp] if options.timestamp_column else operation
        yield [*start, *(write(row.get(name)) for name, write in writers), *end]


class _ChangeWriter:
    """Writes one table's changes into one file."""

    def __init__(self, file: SourceFile, table: TableSpec) -> None:
        self._file = file
        self._options = file.options
        self._writers = _writers(file.columns_of(table), file.options)
        self._before_writers = _writers(file.before_columns(table), file.options)
        self._partial_sign = file.options.null if file.options.unchanged is None else file.options.unchanged
        self._is_transaction = file.file_class is FileClass.TRANSACTIONS

    def fields(self, change: ChangeRow) -> list[str]:
        """Give a record's fields: operation, timestamp, columns, sequence, before images."""
        fields = [change.letter] if self._options.op_in_changes else []
        if self._is_transaction:
            fields += [quote(change.table.id.name, self._options), quote(change.table.id.schema, self._options)]
        if self._options.timestamp_column:
            fields.append(commit_text(change.commit))
        fields += self._column_fields(change)
        if self._options.change_sequence:
            fields.append(change.sequence)
        before: Row = change.before or {}
        return [*fields, *(write(before.get(name)) for name, write in self._before_writers)]

    def _column_fields(self, change: ChangeRow) -> list[str]:
        image = change.image
        if change.operation is Operation.DELETE:
            left_out, sign = change.hidden, self._options.null
        else:
            left_out, sign = self._file.unspoken(change), self._partial_sign
        if not left_out:
            return [write(image.get(name)) for name, write in self._writers]
        return [sign if name in left_out else write(image.get(name)) for name, write in self._writers]


def _writers(columns: tuple[Column, ...], options: SimulatorOptions) -> list[tuple[str, Write]]:
    return [(column.name, value_writer(column.type, options)) for column in columns]
