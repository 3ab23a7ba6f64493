"""From a block of rows to records: each row's operation, its place, the columns it omits, and moves of its key."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeward import schemas
from lakeward.formats.dms.blocks import Faults
from lakeward.formats.dms.files import MismatchedFileError, UnusableFileError
from lakeward.formats.dms.layout import absent_columns, record_columns
from lakeward.formats.dms.values import any_true, bad_batch, build_batch, finer_digits, record_schema, show, to_mask
from lakeward.model import FileClass, Operation, OrderBy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lakeward.columns import Column
    from lakeward.formats.base import ReadSpec
    from lakeward.formats.dms.blocks import Block, Tally
    from lakeward.formats.dms.layout import Layout
    from lakeward.formats.dms.values import Cells, Mask, RefusedRow


SEQUENCE_DIGITS = 38
_SEQUENCE = rf"^[0-9]{{1,{SEQUENCE_DIGITS}}}$"
# Why an update or delete of a table without a key is a bad row.
WITHOUT_KEY = "an update or delete cannot be placed without a key"
_NO_COMMIT_TIME = "not a commit time: expected a timestamp of the years 1 to 9999 (UTC), to the nanosecond at most"


@dataclass(frozen=True)
class _Operations:
    """Masks of the rows that insert, update and delete."""

    inserts: Mask
    updates: Mask
    deletes: Mask


class Assembler:
    """Turns blocks of one file into records; ``absent`` are the table's columns that the file does not have."""

    def __init__(self, spec: ReadSpec, tally: Tally, order_by: OrderBy | None, absent: Iterable[str] = ()) -> None:
        self.spec = spec
        self.tally = tally
        self.order_by = order_by
        self.load = tally.file.file_class is FileClass.LOAD
        self.schema = record_schema(spec.columns)
        are_unchanged = spec.settings.absent_columns == "unchanged" and not self.load
        self.omitted = tuple(name for name in absent if are_unchanged)

    def bad(self, bad: Iterable[RefusedRow]) -> Iterator[pa.RecordBatch]:
        """Yield the records of refused rows."""
        if rows := list(bad):
            self.tally.bad += len(rows)
            yield bad_batch(self.spec, self.tally.file.path, self.tally.file.time, rows)

    def assemble(self, block: Block) -> Iterator[pa.RecordBatch]:
        """Yield a block's records: changes, then bad rows."""
        faults = Faults(len(block.rows))
        operations = self._operations(block, faults)
        sequence = self._sequence(block, faults)
        keys, moved = self._keys(block, operations, faults)
        self._check_values(block, operations, faults)
        left_out = faults.mask
        good = None if left_out is None else ~left_out
        self.tally.ignored += faults.ignored
        fields = self._common(block, sequence)
        for name, cells in block.columns.items():
            fields[name] = keys.get(name, cells.values)
        changes = self._changes(block, operations, moved, fields)
        away = self._moved_away(block, moved, fields)
        self._count(operations, moved, good)
        yield from self._emit(changes, away, moved, good)
        yield from self.bad(faults.bad_rows(block))

    def _operations(self, block: Block, faults: Faults) -> _Operations:
        """Return each row's operation; without an operation column every row is an insert, which is an upsert."""
        size, letters = len(block.rows), block.operation
        if letters is None:
            nothing = np.zeros(size, dtype=bool)
            return _Operations(np.ones(size, dtype=bool), nothing, nothing)
        operations = _Operations(*(to_mask(pc.equal(letters, letter.value)) for letter in Operation))
        name = self.spec.settings.operation_column

        def shown(index: int) -> str | None:
            return show(letters[index])

        if self.load:
            faults.add(~operations.inserts, "a load row must be an insert (I)", name, shown)
        else:
            known = operations.inserts | operations.updates | operations.deletes
            faults.add(~known, "unknown operation, expected I, U or D", name, shown)
        if not self.spec.key:
            placeless = operations.updates | operations.deletes
            if self.spec.settings.without_key == "inserts":
                faults.ignore(placeless)
            else:
                faults.add(placeless, WITHOUT_KEY, name, shown)
        return operations

    def _sequence(self, block: Block, faults: Faults) -> pa.Array | str | None:
        """Return the order column as text that sorts like its value; None for load rows."""
        if self.load:
            return None
        moments, name = block.timestamp, self.spec.settings.timestamp_column
        if moments is not None:
            faults.add(moments.failed, _NO_COMMIT_TIME, name, moments.shown)
        if self.order_by is OrderBy.TIMESTAMP:
            assert moments is not None  # the layout was checked
            faults.add(to_mask(moments.values.is_null()), "the order column is missing its value", name, moments.shown)
            return _sortable(moments)
        if self.order_by is OrderBy.SEQUENCE:
            numbers = block.sequence
            assert numbers is not None  # the layout was checked
            wrong = ~to_mask(pc.match_substring_regex(numbers, _SEQUENCE))
            reason = f"not a change sequence of 1 to {SEQUENCE_DIGITS} digits"
            faults.add(wrong, reason, self.spec.settings.sequence_column, lambda index: show(numbers[index]))
            return pc.ascii_lpad(numbers, SEQUENCE_DIGITS, "0")
        return ""

    def _keys(self, block: Block, operations: _Operations, faults: Faults) -> tuple[dict[str, pa.Array], Mask | None]:
        """Check key columns; return the keys completed by before images, and which updates moved their key."""
        for column in self._key_columns():
            cells = block.columns[column.name]
            faults.add(cells.failed, f"not a value of type {column.type}", column.name, cells.shown)
            marked = block.unchanged.get(column.name)
            faults.add(marked, "a key column cannot be left unchanged", column.name, cells.shown)
        if not block.before or self.load:
            return {}, None
        without_key = operations.deletes & _all(
            to_mask(block.columns[column.name].values.is_null()) for column in self._key_columns()
        )
        self._check_images(block, operations, without_key, faults)
        given = _any(to_mask(cells.values.is_valid()) for cells in block.before.values())
        keys, images = {}, self._complete_images(block)
        if any_true(from_image := without_key & given):
            for name, image in images.items():
                keys[name] = pc.if_else(pa.array(from_image), image, block.columns[name].values)
        differs = _any(_distinct(image, block.columns[name].values) for name, image in images.items())
        moved = operations.updates & differs & (given | self._nulls_are_values)
        if self.spec.settings.before_image_nulls is None:
            self._count_null_images(block, operations)
        return keys, moved if moved.any() else None

    @property
    def _nulls_are_values(self) -> bool:
        """Whether NULL in a before image means that the value was NULL."""
        return self.spec.settings.before_image_nulls == "value"

    def _complete_images(self, block: Block) -> dict[str, pa.Array]:
        """Return before images with the present value where they are empty.

        Some sources fill in only the parts that changed, unless NULL is declared to be a value.
        """
        complete = {}
        for name, cells in block.before.items():
            present = block.columns[name].values
            if self._nulls_are_values:
                absent = block.missing.get(name)
                complete[name] = cells.values if absent is None else pc.if_else(pa.array(absent), present, cells.values)
            else:
                complete[name] = pc.coalesce(cells.values, present)
        return complete

    def _count_null_images(self, block: Block, operations: _Operations) -> None:
        """Count updates whose old key differs if NULL in a before image is a value."""
        differing = [np.zeros(len(block.rows), dtype=bool)]
        for name, cells in block.before.items():
            null = to_mask(cells.values.is_null()) & to_mask(block.columns[name].values.is_valid())
            absent = block.missing.get(name)
            differing.append(null if absent is None else null & ~absent)
        self.tally.null_images += int(np.count_nonzero(operations.updates & _any(differing)))

    def _check_images(self, block: Block, operations: _Operations, without_key: Mask, faults: Faults) -> None:
        """Refuse needed before images that do not parse, and before images of inserts."""
        settings = self.spec.settings
        types = {column.name: column.type for column in self.spec.read_columns}
        for name, cells in block.before.items():
            image = f"{settings.before_image_prefix}{name}{settings.before_image_suffix}"
            if cells.failed is not None:
                needed = cells.failed & (operations.updates | without_key)
                faults.add(needed, f"not a value of type {types[name]}", image, cells.shown)
            if block.images_by_count:
                # By its position a column added at the source looks like a before image, but inserts have values in it.
                unexpected = operations.inserts & to_mask(cells.source.is_valid())
                faults.add(unexpected, "an insert has no before image: does the file have more columns?", image,
                           cells.shown)  # fmt: skip

    def _check_values(self, block: Block, operations: _Operations, faults: Faults) -> None:
        """Refuse values that do not fit; of a delete only the key matters."""
        for column in self.spec.read_columns:
            cells = block.columns.get(column.name)
            if cells is not None and cells.failed is not None and column.name not in self.spec.key:
                failed = cells.failed & ~operations.deletes
                faults.add(failed, f"not a value of type {column.type}", column.name, cells.shown)

    def _common(self, block: Block, sequence: pa.Array | str | None) -> dict[str, object]:
        file = self.tally.file
        return {
            schemas.KIND: schemas.KIND_CHANGE,
            schemas.SEQUENCE: sequence,
            schemas.COMMIT_TIME: None if block.timestamp is None else block.timestamp.values,
            schemas.FILE: file.path,
            schemas.FILE_TIME: file.time,
            schemas.ROW: pa.array(block.rows, pa.int64()),
            schemas.STEP: schemas.STEP_ONLY,
            schemas.DETAIL: None if block.transaction is None else _transaction_details(block.transaction),
        }

    def _changes(
        self, block: Block, operations: _Operations, moved: Mask | None, fields: dict[str, object]
    ) -> pa.RecordBatch:
        """Return one record per row, refused rows included."""
        operation: object = Operation.INSERT.value
        if not self.load and block.operation is not None:
            operation = block.operation
        step: object = schemas.STEP_ONLY
        if moved is not None:
            step = pa.array(np.where(moved, schemas.STEP_MOVED_HERE, schemas.STEP_ONLY), pa.int32())
        own = {schemas.OPERATION: operation, schemas.STEP: step, schemas.UNCHANGED: self._unchanged(block, operations)}
        return build_batch(self.schema, len(block.rows), {**fields, **own})

    def _moved_away(self, block: Block, moved: Mask | None, fields: dict[str, object]) -> pa.RecordBatch | None:
        """Return the deletes of the old keys, one record per row; only those of moved rows count."""
        if moved is None:
            return None
        own = {name: value for name, value in fields.items() if name.startswith(schemas.PREFIX)}
        own[schemas.OPERATION] = Operation.DELETE.value
        own[schemas.STEP] = schemas.STEP_MOVED_AWAY
        images = self._complete_images(block)
        for name in self.spec.key:
            own[name] = images.get(name, fields[name])
        own.update(self._old_values(block, moved))
        return build_batch(self.schema, len(block.rows), own)

    def _old_values(self, block: Block, moved: Mask) -> dict[str, object]:
        """Return the other columns' before images of rows that moved away, and the names of columns without one.

        Where rows exchange keys within a commit, they identify the row.
        """
        images = block.images()
        if not images:
            return {}
        unknown = {}
        for column in self.spec.columns:
            if column.name in self.spec.key:
                continue
            cells = images.get(column.name)
            lacks = np.ones(len(moved), dtype=bool) if cells is None else to_mask(cells.values.is_null())
            if cells is not None and self._nulls_are_values:
                lacks = cells.failed if cells.failed is not None else np.zeros(len(moved), dtype=bool)
            unknown[column.name] = lacks
        known = {name: cells.values for name, cells in images.items()}
        return {**known, schemas.UNCHANGED: _name_lists(unknown, moved)}

    def _unchanged(self, block: Block, operations: _Operations) -> pa.Array | None:
        """Return the lists of columns that rows do not set; null where a row sets all."""
        masks = {name: mask for name, mask in block.unchanged.items() if name not in self.spec.key}
        for name in self.spec.settings.null_means_unchanged:
            if name in block.columns and name not in self.spec.key and not self.load:
                is_null = operations.updates & to_mask(block.columns[name].values.is_null())
                masks[name] = masks[name] | is_null if name in masks else is_null
        masks.update({name: np.ones(len(block.rows), dtype=bool) for name in self.omitted})
        return _name_lists(masks, ~operations.deletes) if masks else None

    def _count(self, operations: _Operations, moved: Mask | None, good: Mask | None) -> None:
        kept = np.ones(len(operations.inserts), dtype=bool) if good is None else good
        self.tally.count_operations(operations.inserts & kept, operations.updates & kept, operations.deletes & kept)
        if moved is not None:
            self.tally.moves += int(np.count_nonzero(moved & kept))

    def _emit(
        self, changes: pa.RecordBatch, away: pa.RecordBatch | None, moved: Mask | None, good: Mask | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the good rows and count them; the order of records is in their places, not in the batches."""
        kept = changes if good is None else changes.filter(pa.array(good))
        batches = [kept]
        if away is not None and moved is not None:
            batches.insert(0, away.filter(pa.array(moved if good is None else moved & good)))
        for batch in batches:
            self.tally.see_places(batch)
        unchanged = kept.column(schemas.UNCHANGED)
        self.tally.partial += len(unchanged) - unchanged.null_count
        yield from (batch for batch in batches if batch.num_rows)

    def _key_columns(self) -> list[Column]:
        return [column for column in self.spec.read_columns if column.name in self.spec.key]


def _sortable(moments: Cells) -> pa.Array:
    """Return commit times as text that sorts like them: years have four digits, and finer digits come last."""
    text, finer = moments.values.cast(pa.timestamp("us")).cast(pa.string()), finer_digits(moments.source)
    return text if finer is None else pc.binary_join_element_wise(text, finer, "")


def _transaction_details(ids: pa.Array) -> pa.Array:
    """Return the details of changes with their transactions, as JSON; null where a change names none."""
    escaped = pc.replace_substring(pc.replace_substring(ids, "\\", "\\\\"), '"', '\\"')
    return pc.binary_join_element_wise('{"transaction":"', escaped, '"}', "")


def _name_lists(masks: dict[str, Mask], included: Mask) -> pa.Array:
    """Return per row the names whose masks mark it, null where there are none."""
    marked = np.column_stack([mask & included for mask in masks.values()])
    counts = marked.sum(axis=1)
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    names = pa.array(list(masks)).take(pa.array(np.nonzero(marked)[1]))
    return pa.ListArray.from_arrays(pa.array(offsets), names, mask=pa.array(counts == 0))


def _distinct(left: pa.Array, right: pa.Array) -> Mask:
    """Compare null-safely: null differs from every value and not from null."""
    only_one_is_null = to_mask(left.is_null()) ^ to_mask(right.is_null())
    return to_mask(pc.not_equal(left, right)) | only_one_is_null


def _any(masks: Iterable[Mask]) -> Mask:
    return reduce(np.logical_or, masks)


def _all(masks: Iterable[Mask]) -> Mask:
    return reduce(np.logical_and, masks)


def check_names(names: Iterable[str]) -> None:
    """Refuse source columns with names that Lakeward reserves."""
    if taken := sorted(name for name in names if name.startswith(schemas.PREFIX)):
        msg = f"columns {', '.join(taken)} cannot be mirrored: names that start with {schemas.PREFIX!r} are reserved"
        raise UnusableFileError(msg)


def check_columns(layout: Layout, spec: ReadSpec, *, names_from_settings: bool = False) -> None:
    """Refuse a file with columns that the table does not have, or that lacks columns it must have."""
    if layout.repeated:
        shown = f"{len(layout.repeated)} of them" if spec.hides_values else ", ".join(layout.repeated)
        msg = f"the file names columns more than once: {shown}"
        raise UnusableFileError(msg)
    if layout.unknown and names_from_settings:
        msg = f"csv.columns names {', '.join(layout.unknown)}, which the table's schema does not have"
        raise UnusableFileError(msg)
    absent = absent_columns(layout, spec.columns)
    lacks_declared = any(name in record_columns(spec) for name in absent)
    if layout.unknown or (lacks_declared and spec.settings.is_strict and not names_from_settings):
        raise MismatchedFileError
    if missing := [name for name in spec.key if name in absent]:
        msg = f"the file has no column {', '.join(missing)}, which the key needs"
        raise UnusableFileError(msg)


def check_key(spec: ReadSpec) -> None:
    """Refuse a key that the schema does not have."""
    names = {column.name for column in spec.columns}
    if missing := [name for name in spec.key if name not in names]:
        msg = f"primary_key names {', '.join(missing)}, which the table's schema does not have"
        raise UnusableFileError(msg)


def choose_order(layout: Layout, spec: ReadSpec, *, load: bool) -> OrderBy | None:
    """Return the order column of a change file: the generation's, or the best that the file has."""
    if load:
        return None
    settings, order = spec.settings, spec.order_by
    if order is None:
        by_time = OrderBy.TIMESTAMP if settings.timestamp_column is not None else OrderBy.NONE
        order = OrderBy.SEQUENCE if layout.sequence is not None else by_time
    if order is OrderBy.SEQUENCE and layout.sequence is None:
        raise UnusableFileError(_missing(settings.sequence_column))
    if order is OrderBy.TIMESTAMP and layout.timestamp is None:
        raise UnusableFileError(_missing(settings.timestamp_column))
    return order


def _missing(column: str | None) -> str:
    name = repr(column) if column is not None else "timestamp_column (not set)"
    return f"the file has no column {name}, by which this table's changes are ordered"
