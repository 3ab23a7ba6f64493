"""Rewriting a landing file without some of its rows; everything else stays as it was, in the same format."""

from __future__ import annotations

import gzip
import io
import shutil
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakeward.formats.dms.csv import BYTE_ORDER_MARK, tokenize
from lakeward.formats.dms.files import ENCODING, ENCODING_ERRORS, is_gzip, open_text, plain_file
from lakeward.formats.dms.listing import file_format

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from typing import TextIO

    from lakeward.config import CsvSettings
    from lakeward.formats.dms.files import Limits

_INT96 = "INT96"


def write_without_rows(
    source: str, target: str, path: str, rows: Collection[int], settings: CsvSettings, limits: Limits
) -> None:
    """Copy the local file ``source`` to ``target`` without the rows of these physical numbers.

    ``path`` is the file's path under landing, from which the format follows; a gzip file stays compressed. ``limits``
    are those that the rows were read with.
    """
    with _packed_like(source, target) as out:
        if file_format(path) == "parquet":
            _copy_parquet(source, out, rows, limits)
        else:
            _copy_csv(source, out, rows, settings, limits)


@contextmanager
def _packed_like(source: str, target: str) -> Iterator[BinaryIO]:
    with Path(target).open("wb") as file:
        if not is_gzip(source):
            yield file
            return
        with gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as packed:
            yield cast("BinaryIO", packed)


def _copy_parquet(source: str, out: BinaryIO, rows: Collection[int], limits: Limits) -> None:
    """Write row group by row group; numbers count from 1 over the whole file."""
    gone = np.array(sorted(rows), dtype=np.int64) - 1
    with ExitStack() as stack:
        file = stack.enter_context(pq.ParquetFile(stack.enter_context(plain_file(source, limits))))
        copy = stack.enter_context(tempfile.NamedTemporaryFile(prefix="lakeward-"))
        with _parquet_writer(file, copy.name) as writer:
            start = 0
            for number in range(file.num_row_groups):
                group = file.read_row_group(number, use_threads=False)
                own = gone[(gone >= start) & (gone < start + group.num_rows)] - start
                kept = np.ones(group.num_rows, dtype=bool)
                kept[own] = False
                start += group.num_rows
                writer.write_table(group.filter(pa.array(kept)))
        copy.seek(0)
        shutil.copyfileobj(copy, out)


def _parquet_writer(file: pq.ParquetFile, target: str) -> pq.ParquetWriter:
    """Return a writer with the compression and column types of the file."""
    metadata = file.metadata
    columns = range(metadata.num_columns) if metadata.num_row_groups else range(0)
    chunks = [metadata.row_group(0).column(number) for number in columns]
    packing = {chunk.path_in_schema: chunk.compression for chunk in chunks if chunk.compression != "UNCOMPRESSED"}
    has_int96 = any(chunk.physical_type == _INT96 for chunk in chunks)
    return pq.ParquetWriter(
        target,
        file.schema_arrow,
        version=metadata.format_version,
        compression=packing or "NONE",
        use_deprecated_int96_timestamps=has_int96,
    )


def _copy_csv(source: str, out: BinaryIO, rows: Collection[int], settings: CsvSettings, limits: Limits) -> None:
    """Copy records with their own line ends; the text is read twice in parallel, once to find where records end."""
    first = 0 if settings.header else 1
    with ExitStack() as stack:
        records, text = (stack.enter_context(open_text(source, limits)) for _ in range(2))
        target = io.TextIOWrapper(out, ENCODING, ENCODING_ERRORS, newline="", write_through=True)
        begin = text.read(1)
        if begin == BYTE_ORDER_MARK:
            target.write(begin)
            begin = ""
        for number, record in enumerate(tokenize(records, settings, limits), start=first):
            whole = begin + text.read(len(record.text) - len(begin)) if record.text else ""
            whole += _line_end(text, begin if not record.text else "")
            begin = ""
            if number not in rows or number == 0:
                target.write(whole)
        target.flush()
        target.detach()


def _line_end(text: TextIO, begun: str) -> str:
    """Read the end of a record: a line feed, alone or after a carriage return, or the end of the file."""
    end = begun or text.read(1)
    return end + text.read(1) if end == "\r" else end
