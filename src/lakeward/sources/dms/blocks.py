"""A stretch of a file's rows, its fields told apart and converted, before it is decided what each row does."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakeward.sources.dms.cells import Cells, any_true, null_where, to_mask
from lakeward.sources.dms.values import parse_commit_times, parse_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    import numpy.typing as npt

    from lakeward.sources.base import ReadSpec
    from lakeward.sources.dms.cells import Mask
    from lakeward.sources.dms.layout import Layout
    from lakeward.sources.dms.records import BadRow

    Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TextRows:
    """Rows as text: ``texts`` has one string array per field; ``raw`` gives a row's own text.

    With ``empty_is_missing`` an empty before image is none, as in CSV, where DMS leaves those of inserts empty
    whatever the null token is.
    """

    rows: Rows
    texts: Sequence[pa.Array]
    raw: Callable[[int], str]
    bad: tuple[BadRow, ...] = ()
    empty_is_missing: bool = True


@dataclass(frozen=True)
class Block:
    """Rows with their fields by meaning.

    ``before`` holds the before images of key columns; ``unchanged`` marks rows whose value for a column is the
    sign for "not spoken of". With ``images_by_count`` the before images were told by the number of fields alone.
    """

    rows: Rows
    raw: Callable[[int], str]
    operation: pa.Array | None = None
    timestamp: Cells | None = None
    sequence: pa.Array | None = None
    columns: dict[str, Cells] = field(default_factory=dict)
    before: dict[str, Cells] = field(default_factory=dict)
    unchanged: dict[str, Mask] = field(default_factory=dict)
    images_by_count: bool = False


def text_block(rows: TextRows, layout: Layout, spec: ReadSpec, *, load: bool, images_by_count: bool) -> Block:
    """Convert rows of text by a layout."""
    texts, csv = rows.texts, spec.settings.csv
    columns, unchanged, before = {}, {}, {}
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
            image = texts[layout.before[column.name]]
            image = empty_as_null(image) if rows.empty_is_missing else image
            before[column.name] = parse_text(image, column.type, csv.binary)
    return Block(
        rows=rows.rows,
        raw=rows.raw,
        operation=None if layout.operation is None else texts[layout.operation],
        timestamp=None if layout.timestamp is None else parse_moments(texts[layout.timestamp]),
        sequence=None if layout.sequence is None else texts[layout.sequence],
        columns=columns,
        before=before,
        unchanged=unchanged,
        images_by_count=images_by_count,
    )


def parse_moments(text: pa.Array) -> Cells:
    """Convert a commit time column of text; an empty field is a missing time."""
    return parse_commit_times(empty_as_null(text))


def empty_as_null(text: pa.Array) -> pa.Array:
    """Give null for empty text."""
    return null_where(pc.equal(text, ""), text)
