"""The meaning of each field of a record: by the names in a file, or probed from the records of a headerless file."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING

from lakeward.column_policy import dropped
from lakeward.formats.dms.files import UnusableFileError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lakeward.columns import Column
    from lakeward.config import TableSettings
    from lakeward.formats.base import ReadSpec


OPERATIONS = frozenset("IUD")
COMMIT_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}")
# AR_H_CHANGE_SEQ has 35 digits; an integer key never has as many.
_SEQUENCE = re.compile(r"[0-9]{20,38}")


def plausible_share(layout: Layout, records: Sequence[Sequence[str | None]], *, load: bool) -> float:
    """Return the share of records whose metadata fields all fit the layout."""
    fitting = sum(_is_plausible(layout, record, load=load) for record in records)
    return fitting / len(records) if records else 0.0


def _is_plausible(layout: Layout, record: Sequence[str | None], *, load: bool) -> bool:
    operation = None if layout.operation is None else record[layout.operation]
    if layout.operation is not None and operation not in OPERATIONS:
        return False
    if layout.operation is None and not load and record[0] in OPERATIONS:
        return False  # more likely a truncated change than a change without operation
    # Metadata may be missing from a load row, never from a change; before images are missing from inserts.
    return (
        _fits(record, layout.timestamp, COMMIT_TIME, may_be_empty=load)
        and _fits(record, layout.sequence, _SEQUENCE, may_be_empty=load)
        and (not _has_image(layout, record) or not (load or operation == "I"))
    )


def _fits(record: Sequence[str | None], position: int | None, pattern: re.Pattern[str], *, may_be_empty: bool) -> bool:
    if position is None:
        return True
    value = record[position]
    return bool(pattern.match(value)) if value else may_be_empty


def _has_image(layout: Layout, record: Sequence[str | None]) -> bool:
    return any(record[position] for position in layout.before.values())


@dataclass(frozen=True)
class Layout:
    """Positions of a record's fields by their meaning.

    ``columns`` are the table's columns found, ``before`` the columns whose before images were found, ``unknown``
    the names that the table does not have, ``repeated`` names that occur more than once.
    """

    width: int
    operation: int | None = None
    timestamp: int | None = None
    sequence: int | None = None
    transaction: int | None = None
    columns: Mapping[str, int] = field(default_factory=dict)
    before: Mapping[str, int] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    repeated: tuple[str, ...] = ()


def layout_by_names(names: Sequence[str], settings: TableSettings, declared: Iterable[str] | None) -> Layout:
    """Return the layout by a file's names; without ``declared`` every other name is a column."""
    renamed = [settings.renames.get(name, name) for name in names]
    positions = {name: position for position, name in enumerate(renamed)}
    known = set(renamed if declared is None else declared)
    protected = set(() if declared is None else declared)
    operation = _metadata_name(settings.operation_column, positions, protected)
    timestamp = _metadata_name(settings.timestamp_column, positions, protected)
    sequence = _metadata_name(settings.sequence_column, positions, protected)
    transaction = _metadata_name(settings.transaction_column, positions, protected)
    taken = {operation, timestamp, sequence, transaction} - protected
    # A column that is new in this file may have a before image, too.
    before = _before_images(positions, (known | positions.keys()) - taken, protected, settings)
    rest = [name for name in positions if name not in taken and name not in before]
    return Layout(
        width=len(renamed),
        operation=positions.get(operation or ""),
        timestamp=positions.get(timestamp or ""),
        sequence=positions.get(sequence or ""),
        transaction=positions.get(transaction or ""),
        columns={name: positions[name] for name in rest if name in known},
        before={column: positions[name] for name, column in before.items()},
        unknown=tuple(name for name in rest if name not in known),
        repeated=tuple(sorted(name for name, count in Counter(renamed).items() if count > 1)),
    )


def _metadata_name(wanted: str | None, positions: Mapping[str, int], protected: set[str]) -> str | None:
    """Return a metadata column's name: exactly, or in another case unless that is a column of the table."""
    if wanted is None or wanted in positions:
        return wanted
    return next((name for name in positions if name.lower() == wanted.lower() and name not in protected), None)


def _before_images(
    positions: Mapping[str, int], known: set[str], protected: set[str], settings: TableSettings
) -> dict[str, str]:
    """Return before-image name → column for the names that have prefix and suffix around a column of the table."""
    prefix, suffix = settings.before_image_prefix, settings.before_image_suffix
    images = {}
    for name in positions:
        is_image = bool(prefix or suffix) and name.startswith(prefix) and name.endswith(suffix)
        column = name[len(prefix) : len(name) - len(suffix)] if is_image else ""
        column = settings.renames.get(column, column)
        if column and column in known and name not in protected:
            images[name] = column
    return images


def probe_layout(records: Sequence[Sequence[str | None]], spec: ReadSpec, *, load: bool, has_operation: bool) -> Layout:
    """Decide a headerless file's layout from its first records.

    The most frequent number of fields that fits a possible layout decides; among layouts of that width, the one whose
    metadata fields fit most records. If none fits, the widest layout is used, and each row becomes a bad row.
    """
    if not spec.columns:
        msg = "the table has no schema, and headerless CSV does not contain one; declare it as schema:"
        raise UnusableFileError(msg)
    if undeclared := sorted({*dropped(spec.policy.rules)} - {*record_columns(spec)}):
        # Without their places, their values would be taken for those of other columns.
        msg = f"headerless CSV needs the places of dropped columns: declare {', '.join(undeclared)} in schema: too"
        raise UnusableFileError(msg)
    layouts = list(_possible(spec, load=load, has_operation=has_operation))
    by_width: dict[int, list[Layout]] = {}
    for layout in layouts:
        by_width.setdefault(layout.width, []).append(layout)
    for width, _ in Counter(len(record) for record in records).most_common():
        sample = [record for record in records if len(record) == width]
        if chosen := _most_plausible(by_width.get(width, []), sample, load=load):
            return chosen
    return max(layouts, key=lambda layout: layout.width)


def _most_plausible(candidates: list[Layout], sample: Sequence[Sequence[str | None]], *, load: bool) -> Layout | None:
    """Return the layout that fits most records, among layouts of one width.

    Where none fits any record, only the usual layout is accepted: otherwise a column added at the source would be
    taken for a change sequence or a before image, and a truncated change for one without operation.
    """
    best, best_share = None, 0.0
    for layout in candidates:
        share = plausible_share(layout, sample, load=load)
        is_usual = layout.width == max(layout.columns.values()) + 1 and (load or layout.operation is not None)
        if share > best_share or (best is None and is_usual):
            best, best_share = layout, share
    return best


def _possible(spec: ReadSpec, *, load: bool, has_operation: bool) -> Iterator[Layout]:
    """Yield every layout ``[Op][timestamp][columns][sequence][before images]``, the most likely first."""
    settings, names = spec.settings, record_columns(spec)
    own_timestamp = settings.timestamp_column is not None and settings.timestamp_column not in names
    own_sequence = settings.sequence_column not in names
    operations = (True,) if has_operation else (True, False)
    timestamps = (True, False) if own_timestamp else (False,)
    sequences = (True, False) if own_sequence else (False,)
    for operation, timestamp, sequence in product(operations, timestamps, sequences):
        # Changes without operations are inserts, which have no before images.
        for before in _possible_images(spec) if operation or load else [()]:
            yield _positions(spec, before, operation=operation, timestamp=timestamp, sequence=sequence)


def possible_widths(spec: ReadSpec) -> set[int]:
    """Return the numbers of fields that a headerless record of the table may have."""
    return {layout.width for load in (True, False) for layout in _possible(spec, load=load, has_operation=False)}


def _possible_images(spec: ReadSpec) -> list[tuple[str, ...]]:
    """Return the column lists that may have before images at the end of a record.

    Key columns come in the order of the table's columns, not in that of primary_key.
    """
    if spec.settings.before_image_columns is not None:
        return [(), spec.settings.before_image_columns]
    names = record_columns(spec)
    return list(dict.fromkeys([(), tuple(name for name in names if name in spec.key), names]))


def record_columns(spec: ReadSpec) -> tuple[str, ...]:
    """Return the columns of a headerless record; a column that is no longer declared stays only in the table."""
    return tuple(column.name for column in spec.settings.columns or spec.columns)


def _positions(spec: ReadSpec, before: tuple[str, ...], *, operation: bool, timestamp: bool, sequence: bool) -> Layout:
    settings, names = spec.settings, record_columns(spec)
    first = int(operation) + int(timestamp)
    columns = {name: first + offset for offset, name in enumerate(names)}
    after = first + len(names)
    return Layout(
        width=after + int(sequence) + len(before),
        operation=0 if operation else None,
        timestamp=int(operation) if timestamp else columns.get(settings.timestamp_column or ""),
        sequence=after if sequence else columns.get(settings.sequence_column),
        columns=columns,
        before={name: after + int(sequence) + offset for offset, name in enumerate(before)},
    )


def shown_names(names: Sequence[str], layout: Layout, spec: ReadSpec) -> tuple[str, ...]:
    """Return the columns that a CSV header names, for messages.

    Of a table with a column policy, a name that is not known is replaced by its place: if the file has no header after
    all, it is a value.
    """
    if not spec.hides_values:
        return (*layout.columns, *layout.unknown)
    renamed = [spec.settings.renames.get(name, name) for name in names]
    return (*layout.columns, *(f"(field {renamed.index(name) + 1} of the header)" for name in layout.unknown))


def absent_columns(layout: Layout, columns: Iterable[Column]) -> tuple[str, ...]:
    """Return the table's columns that the layout does not hold."""
    return tuple(column.name for column in columns if column.name not in layout.columns)
