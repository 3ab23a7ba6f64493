"""A stretch of a file's rows, its fields told apart and converted, before it is decided what each row does."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.sources.dms.cells import Cells, any_true, null_where, to_mask
from lakeward.sources.dms.values import parse_commit_times, parse_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt

    from lakeward.config import CsvSettings
    from lakeward.datatypes import Column
    from lakeward.sources.base import ReadSpec
    from lakeward.sources.dms.cells import Mask
    from lakeward.sources.dms.layout import Layout
    from lakeward.sources.dms.records import BadRow

    Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TextRows:
    """Rows as text: ``texts`` has one string array per field; ``raw`` gives a row's own text.

    With ``empty_is_missing`` an empty before image is none, as in CSV, where DMS leaves those of inserts empty
    whatever the null token is; ``quoted_empty`` has, by field, the rows that are empty within quotes.
    """

    rows: Rows
    texts: Sequence[pa.Array]
    raw: Callable[[int], str]
    bad: tuple[BadRow, ...] = ()
    empty_is_missing: bool = True
    quoted_empty: Mapping[int, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Block:
    """Rows with their fields by meaning.

    ``before`` holds the before images of key columns, ``missing`` marks rows that have none (in contrast to one that is
    NULL), and ``images`` gives those of the other columns. ``unchanged`` marks rows whose value for a column is the
    sign for "not spoken of". With ``images_by_count`` the before images were told by the number of fields alone.
    """

    rows: Rows
    raw: Callable[[int], str]
    operation: pa.Array | None = None
    timestamp: Cells | None = None
    sequence: pa.Array | None = None
    transaction: pa.Array | None = None
    columns: dict[str, Cells] = field(default_factory=dict)
    before: dict[str, Cells] = field(default_factory=dict)
    missing: dict[str, Mask] = field(default_factory=dict)
    images: Callable[[], dict[str, Cells]] = dict
    unchanged: dict[str, Mask] = field(default_factory=dict)
    images_by_count: bool = False


def text_block(rows: TextRows, layout: Layout, spec: ReadSpec, *, load: bool, images_by_count: bool) -> Block:
    """Convert rows of text by a layout."""
    texts, csv = rows.texts, spec.settings.csv
    columns, unchanged, before, missing = {}, {}, {}, {}
    for column in spec.columns:
        if column.name in layout.columns:
            text = given = texts[layout.columns[column.name]]
            if csv.unchanged is not None and not load:
                marked = pc.equal(text, csv.unchanged)
                if any_true(mask := to_mask(marked)):
                    unchanged[column.name] = mask
                    text = null_where(marked, text)
            columns[column.name] = replace(parse_text(text, column.type, csv.binary), source=given)
        if column.name in layout.before and column.name in spec.key and not load:
            image, absent = _image_text(rows, layout, column, csv)
            before[column.name], missing[column.name] = parse_text(image, column.type, csv.binary), absent

    def images() -> dict[str, Cells]:
        others = (one for one in spec.columns if one.name in layout.before and one.name not in spec.key)
        return {one.name: parse_text(_image_text(rows, layout, one, csv)[0], one.type, csv.binary) for one in others}

    return Block(
        rows=rows.rows,
        raw=rows.raw,
        operation=None if layout.operation is None else texts[layout.operation],
        timestamp=None if layout.timestamp is None else parse_moments(texts[layout.timestamp]),
        sequence=None if layout.sequence is None else texts[layout.sequence],
        transaction=None if layout.transaction is None else empty_as_null(texts[layout.transaction]),
        columns=columns,
        before=before,
        missing=missing,
        images=images,
        unchanged=unchanged,
        images_by_count=images_by_count,
    )


def quotes_count(layout: Layout, spec: ReadSpec) -> bool:
    """Whether an empty before image means something else within quotes than without."""
    texts = any(one.type == "string" and one.name in layout.before for one in spec.columns)
    return texts and not _empty_is_value(spec.settings.csv)


def _empty_is_value(csv: CsvSettings) -> bool:
    """Whether a null token is declared that is not empty: then an empty field can only be empty text."""
    return bool(csv.null) and "null" in csv.model_fields_set


def _image_text(rows: TextRows, layout: Layout, column: Column, csv: CsvSettings) -> tuple[pa.Array, Mask]:
    """Return a column's before images as text, and which rows have none: an empty field, unless it is empty text."""
    position = layout.before[column.name]
    image = rows.texts[position]
    empty = to_mask(pc.equal(image, ""))
    if not rows.empty_is_missing:
        return image, np.zeros(len(empty), dtype=bool)
    if column.type == "string":
        # Whatever the null token is, DMS leaves the before images of inserts empty.
        inserts = to_mask(pc.equal(rows.texts[layout.operation], "I")) if layout.operation is not None else empty
        quoted = np.zeros(len(empty), dtype=bool)
        quoted[list(rows.quoted_empty.get(position, ()))] = True
        empty = empty & (inserts | ~(quoted | _empty_is_value(csv)))
    return null_where(pa.array(empty), image), empty


def parse_moments(text: pa.Array) -> Cells:
    """Convert a commit time column of text; an empty field is a missing time."""
    return parse_commit_times(empty_as_null(text))


def empty_as_null(text: pa.Array) -> pa.Array:
    """Give null for empty text."""
    return null_where(pc.equal(text, ""), text)
