"""What the takeover of a table of another system would do: the lake that it wrote, and the change files it applied.

Nothing is written. The rows of a lake up to 64 MiB are read in this process; a run reads and checks every lake again.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from lakeward.columns import format_plain_ddl
from lakeward.documents import Document
from lakeward.errors import DataError
from lakeward.formats.dms.folders import NO_VALUE, folder_texts
from lakeward.formats.dms.listing import list_files, table_folder
from lakeward.formats.file_order import shown_place
from lakeward.mirror.op.adopted import (
    adopted_columns,
    describe_doubtful,
    former_files,
    lake_beside,
    list_lake,
    require_adoptable,
)
from lakeward.model import FileClass
from lakeward.runner.validation import LOCAL_BYTES
from lakeward.storage.landing import open_landing, with_lake
from lakeward.text import count, listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakeward.columns import Column
    from lakeward.config import Config, TableSettings
    from lakeward.mirror.op.adopted import FormerFiles, LakeFiles
    from lakeward.model import LandingFile, TableId
    from lakeward.storage.landing import Landing, LandingWithLake


@dataclass(frozen=True)
class TakeoverPlan(Document):
    """What the first run of a table that is taken over would read.

    ``load_files`` are load parts in landing, with which the table begins if there are any; otherwise it begins with the
    files of ``lake``. ``contained`` change files are not read because the lake holds their changes, ``unread`` ones
    are applied on top of it, ``read_again`` ones too although the lake holds their changes. ``doubtful`` are files that
    the former system may have missed. ``rows`` is known for a lake up to 64 MiB. ``compare`` is the command that
    compares lake and mirror once both have applied the same files; None where the key's values are replaced.
    """

    load_files: int = 0
    lake: str | None = None
    lake_files: int = 0
    lake_bytes: int = 0
    rows: int | None = None
    columns: str | None = None
    partitions: tuple[str, ...] = ()
    contained: int = 0
    unread: int = 0
    read_again: int = 0
    doubtful: tuple[str, ...] = ()
    cut: str | None = None
    warnings: tuple[str, ...] = ()
    problem: str | None = None
    compare: str | None = None


@dataclass(frozen=True)
class LandedFiles:
    """The files of a table's folder in landing."""

    loads: tuple[LandingFile, ...] = ()
    changes: tuple[LandingFile, ...] = ()

    @property
    def are_there(self) -> bool:
        """Whether the folder holds any file of the table."""
        return bool(self.loads or self.changes)


def landed_files(storage: Landing, table: TableId, settings: TableSettings) -> LandedFiles:
    """List a table's folder in landing."""
    files = list(list_files(storage, table_folder(table, settings), settings))
    loads = tuple(file for file in files if file.file_class is FileClass.LOAD)
    return LandedFiles(loads, tuple(file for file in files if file.file_class is FileClass.CHANGES))


def find_lake(config: Config, root: str, table: TableId, settings: TableSettings) -> str | None:
    """Return the folder of a table below the folder of a lake, None where there is none.

    Raises:
        DataError: two folders may be the table's.
    """
    names = dict.fromkeys((table_folder(table, settings), f"{table.schema}/{table.name}", table.name))
    base = root.rstrip("/")
    found = [f"{base}/{name}" for name in names if _exists(config, f"{base}/{name}")]
    if len(found) > 1:
        msg = f"both {' and '.join(found)} may be the lake of {table}"
        raise DataError(msg, hint="name the lake's folder one level deeper, or declare the table with adopt: {lake: …}")
    return found[0] if found else None


def _exists(config: Config, location: str) -> bool:
    return open_landing(config.resolve(location), config.s3, config.landing_symlinks).exists("")


def fingerprint_of(config: Config, landing: Landing, settings: TableSettings) -> str:
    """Return the fingerprint of the files of a table's lake."""
    return _lake_files(with_lake(config, landing, settings), settings).fingerprint


def _lake_files(storage: Landing, settings: TableSettings) -> LakeFiles:
    assert settings.adopt is not None  # the caller checks it
    return list_lake(lake_beside(storage).lake, settings.adopt)


def plan_takeover(
    config: Config, landing: Landing, table: TableId, settings: TableSettings, landed: LandedFiles
) -> TakeoverPlan:
    """Return what the first run of a table would read.

    Raises:
        LakewardError: the lake cannot be adopted.
    """
    if settings.adopt is None or landed.loads:
        return TakeoverPlan(load_files=len(landed.loads), unread=len(landed.changes))
    storage = lake_beside(with_lake(config, landing, settings))
    lake = _lake_files(storage, settings)
    require_adoptable(table, settings, lake)
    columns = adopted_columns(table, storage, settings, lake.files)
    former = former_files(landed.changes, table_folder(table, settings), settings)
    again, contained = former.read_again(former.cut), [file for file in former.contained if file.time < former.cut]
    problem = f"change files may be missing in the lake: {describe_doubtful(former)}" if former.doubtful else None
    if again and not settings.primary_key:
        problem = f"{count(len(again), 'change file')} would be applied twice, and the table has no key"
    return TakeoverPlan(
        lake=storage.lake.root,
        lake_files=len(lake.files),
        lake_bytes=lake.size,
        rows=_row_count(storage, lake),
        columns=format_plain_ddl(settings.columns or columns),
        partitions=lake.partitions,
        contained=len(contained),
        unread=len(former.unread),
        read_again=len(again),
        doubtful=tuple(file.path for file in former.doubtful),
        cut=shown_place(former.cut) if former.cut else None,
        warnings=tuple(_warnings(storage, lake, former, settings)),
        problem=problem,
        compare=_compare_command(table, storage.lake.root, settings, columns, lake.partitions),
    )


def _compare_command(
    table: TableId, lake: str, settings: TableSettings, columns: Sequence[Column], partitions: Sequence[str]
) -> str | None:
    """Return the command that compares a lake with the mirror; folders hold texts unless a type is named.

    Columns that only one side has, or whose values are replaced in the mirror, are not compared; without the key's own
    values there is no such command.
    """
    if any(name in settings.column_policies for name in settings.primary_key):
        return None
    typed = [column for column in columns if column.name in partitions and column.type != "string"]
    parts = ["lakeward", "diff", lake, f"iceberg:{table}", "--keys", ",".join(settings.primary_key) or "*"]
    ignored = [*settings.metadata_columns.listed, *settings.column_policies]
    if settings.adopt is not None and not settings.adopt.keep_op:
        ignored.insert(0, settings.operation_column)
    if ignored:
        parts += ["--ignore", ",".join(dict.fromkeys(ignored))]
    if typed:
        parts += ["--past-schema", format_plain_ddl(typed)]
    return shlex.join(parts)


def _row_count(storage: LandingWithLake, lake: LakeFiles) -> int | None:
    """Return the number of rows by the footers of a small lake's files; they are fetched as a whole."""
    if lake.size > LOCAL_BYTES:
        return None
    rows = 0
    for file in lake.files:
        with storage.spool(file.path) as (local_path, _), pq.ParquetFile(local_path) as parquet:
            rows += parquet.metadata.num_rows
    return rows


def _warnings(storage: LandingWithLake, lake: LakeFiles, former: FormerFiles, settings: TableSettings) -> Iterator[str]:
    values = _folder_values(storage, lake.files)
    for name, texts in values.items():
        numbers = [text for text in texts if text.isdigit()]
        types = {column.name: column.type for column in settings.columns or ()}
        if numbers and len(numbers) == len(texts - {NO_VALUE}) and types.get(name, "string") == "string":
            yield (
                f"partition column {name} holds numbers only ({listed(sorted(numbers), most=3)}): if it is a text, the "
                "former system has turned values such as 007 into 7 whenever it rewrote their rows"
            )
        if NO_VALUE in texts and (settings.adopt is None or settings.adopt.empty_partition is None):
            yield (
                f"partition column {name} has rows with NULL or the empty text, which the lake does not distinguish: "
                "a text column needs adopt.empty_partition"
            )
    if not settings.primary_key and former.unread:
        yield (
            "the table has no key: change files that arrived while the former system ran last may be in the lake "
            "already, and their inserts would be doubled"
        )


def _folder_values(storage: LandingWithLake, files: Sequence[LandingFile]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for file in files:
        for name, text in folder_texts(storage.below_lake(file.path) or "").items():
            found.setdefault(name, set()).add(text)
    return found
