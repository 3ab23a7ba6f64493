"""Compare two exports of a table, and write the change set that can be applied to another cluster."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakeward import schemas as S
from lakeward.cassandra.export_folder import SNAPSHOTS, table_folder
from lakeward.cassandra.snapshots import EXPIRES, WRITETIME, origin_of, shown_like_cql
from lakeward.diffing.comparison import ComparisonRequest, run_comparison
from lakeward.diffing.frames.options import DiffMode, DiffOptions
from lakeward.diffing.stored.addresses import is_choice
from lakeward.diffing.stored.open import open_side
from lakeward.errors import RefusedInputError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from pyspark.sql import SparkSession

    from lakeward.cassandra.snapshots import ExportOrigin
    from lakeward.config import Config
    from lakeward.diffing.comparison import DiffResult
    from lakeward.diffing.stored.addresses import Side


def diff_exports(
    spark: SparkSession,
    config: Config,
    past: str,
    current: str,
    *,
    to: str | None = None,
    root: str | None = None,
    max_delete_share: float | None = None,
    limit: int = 5,
    write: bool = True,
) -> DiffResult:
    """Compare two complete exports of a table and write what changed as a change set.

    Args:
        spark: a session that counts in UTC and takes column names exactly (``table_session``).
        config: how file systems are reached.
        past: the earlier export; a path, or a word such as ``previous`` or a date within ``root``.
        current: the later one.
        to: folder of exports below which the change set is written; None: that of the current export.
        root: folder of the table's exports in which ``latest`` or a date is looked up.
        max_delete_share: refuse where more would be deleted; None: half of the rows, from 1,000 on.
        limit: how many examples of each kind are returned; only where nothing is written.
        write: False only compares.

    Raises:
        RefusedInputError: a side is not a complete export, they are of different tables or parts of one, too much would
            be deleted, or the minute has a change set already.
    """
    sides = [_opened(spark, config, address, root) for address in (past, current)]
    origins = [_origin(side) for side in sides]
    _require_comparable(sides, origins)
    options = diff_options(sides[1].primary_key, [side.frame.columns for side in sides])
    target = _target(to, sides[1], origins[1]) if write else None
    wanted = ComparisonRequest(to=target, max_delete_share=max_delete_share, limit=limit, shown=shown_like_cql(*sides))
    with remedy_for_types(f"copy the table again: lakeward cassandra import {current} --into KEYSPACE.TABLE"):
        return run_comparison(config, sides[0], sides[1], sides[1].primary_key, options, wanted)


def _opened(spark: SparkSession, config: Config, address: str, root: str | None) -> Side:
    try:
        return open_side(spark, config, address, root=root)
    except RefusedInputError as error:
        if root is not None or not is_choice(address):
            raise
        hint = f"--in URI/KEYSPACE/TABLE   (the folder of exports in which {address} is looked up)"
        raise RefusedInputError(error.message, hint=hint) from error


@contextmanager
def remedy_for_types(hint: str) -> Iterator[None]:
    """Replace the hint where columns have types that cannot be compared: here none can be ignored.

    Raises:
        RefusedInputError: columns have such types.
    """
    try:
        yield
    except RefusedInputError as error:
        if "--ignore" not in (error.hint or ""):
            raise
        raise RefusedInputError(error.message, hint=hint) from error


def diff_options(keys: Collection[str], columns: Sequence[Sequence[str]]) -> DiffOptions:
    """Return the options for the columns of a past and a current side.

    Expiry times are not compared: computed from the time left, they may be off by a second. Write times are, where both
    sides have them.
    """
    found = [set(column) for column in columns]
    ignored = {name for name in set.union(*found) if name.startswith(EXPIRES)}
    if any(not any(name.startswith(WRITETIME) for name in names) for names in found):
        ignored |= {name for name in set.union(*found) if name.startswith(WRITETIME)}
    return DiffOptions(
        diff_column=_free("diff", keys),
        left_column_prefix=_free("left", keys),
        right_column_prefix=_free("right", keys),
        change_column=_free("changes", keys),
        diff_mode=DiffMode.STRUCTS,
        ignore_columns=tuple(sorted(ignored)),
        evolve=True,
    )


def _free(name: str, keys: Collection[str]) -> str:
    """Return a name that no key column has; other columns are inside the structs."""
    return name if name not in keys else f"{S.PREFIX}{name}"


def _origin(side: Side) -> ExportOrigin:
    found = origin_of(side.identity)
    if found is None:
        msg = f"{side.label} is not an export of a Cassandra table: its manifest names no cluster"
        raise RefusedInputError(msg, hint="lakeward diff PAST CURRENT --keys COLUMN,…   (compares any two snapshots)")
    return found


def _require_comparable(sides: Sequence[Side], origins: Sequence[ExportOrigin]) -> None:
    labels = [side.label for side in sides]
    names = [str(origin.schema.name) for origin in origins]
    if names[0] != names[1]:
        msg = f"{labels[0]} is an export of {names[0]}, {labels[1]} of {names[1]}"
        raise RefusedInputError(msg, hint="name two exports of one table")
    keys = [side.primary_key for side in sides]
    if keys[0] != keys[1]:
        shown_keys = " and ".join(", ".join(key) for key in keys)
        msg = f"{names[0]} was created again with another key between the two exports: {shown_keys}"
        raise RefusedInputError(msg, hint=f"lakeward cassandra import {labels[1]} --into KEYSPACE.TABLE")
    parts = [origin.part or "all" for origin in origins]
    if parts[0] != parts[1]:
        msg = f"{labels[0]} holds {parts[0]} of {names[0]}, {labels[1]} holds {parts[1]}"
        raise RefusedInputError(msg, hint="export both with the same --where and --columns")
    if origins[0].started > origins[1].started:
        msg = (
            f"{labels[0]} was started at {origins[0].started.isoformat()}, after {labels[1]} "
            f"({origins[1].started.isoformat()}): a target would keep its newer values"
        )
        raise RefusedInputError(msg, hint=f"lakeward cassandra diff {labels[1]} {labels[0]}")


def _target(to: str | None, current: Side, origin: ExportOrigin) -> str:
    if to is not None:
        return table_folder(to, origin.schema.name)
    folder, found, _ = str(current.identity["location"]).rpartition(f"/{SNAPSHOTS}/")
    if not found:
        msg = f"{current.label} is not in a folder of exports, so there is no folder for the change set"
        raise RefusedInputError(msg, hint="--to URI, or --dry-run to see what differs")
    return folder
