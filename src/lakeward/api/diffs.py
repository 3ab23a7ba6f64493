"""Diffs of snapshots and patches by change sets, by address: files, published versions, mirrors as of a moment."""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from lakeward.api.opened import OpenedLake, silently
from lakeward.arguments import COUNT_OR_0, FLAG, NONE, OPTIONAL_TEXT, PATH, SHARE, TEXT, TEXTS, instance, takes
from lakeward.config import Config, load_config
from lakeward.config.loading import DEFAULT_FILE
from lakeward.diffing.stored.addresses import parse_address
from lakeward.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from lakeward.api.opened import During
    from lakeward.diffing.comparison import DiffResult
    from lakeward.diffing.frames.options import DiffOptions
    from lakeward.diffing.stored.addresses import Side
    from lakeward.diffing.stored.applying import Applied
    from lakeward.diffing.stored.changesets import ChangeSet
    from lakeward.mirror.op.context import TableContext


class SideOpener:
    """Opens sides of comparisons for the duration of a ``with`` block. Spark starts with the first one.

    Files need no ``lakeward.yaml``; where there is one, it configures S3 and Spark. ``during`` is called with what
    takes time, as for :class:`lakeward.Lakeward`.
    """

    def __init__(
        self,
        config: str | Path | Config | None = None,
        *,
        spark: SparkSession | None = None,
        during: During | None = None,
    ) -> None:
        """Set the configuration; None: ``lakeward.yaml`` of this folder, or the defaults where there is none."""
        self._named, self._root, self._during = config, spark, during or silently
        self._stack = ExitStack()
        self._session: SparkSession | None = None
        self._lake: OpenedLake | None = None
        self._config: Config | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove temporary folders and close what was opened; Spark stays."""
        self._stack.close()

    @property
    def config(self) -> Config:
        """The configuration, or the defaults with a temporary folder."""
        if self._config is None:
            self._config = self._found_config()
        return self._config

    @property
    def has_configuration(self) -> bool:
        """Whether there is a configuration file or object."""
        if self._named is not None or "LAKEWARD_CONFIG" in os.environ:
            return True
        return Path(DEFAULT_FILE).is_file()

    def _found_config(self) -> Config:
        if isinstance(self._named, Config):
            return self._named
        if self.has_configuration:
            return load_config(self._named)
        folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="lakeward-", ignore_cleanup_errors=True))
        return Config(base=Path(folder))

    @property
    def spark(self) -> SparkSession:
        """A session in UTC with case-sensitive names, started at first use."""
        if self._session is None:
            from lakeward.session.sessions import open_session, table_session

            with self._during("starting Spark"):
                self._root = self._root or open_session(self.config)
            self._session = table_session(self._root)
        return self._session

    def open(
        self,
        address: str,
        *,
        schema: str | None = None,
        format: str | None = None,  # noqa: A002 - the word that the command uses
        incomplete_ok: bool = False,
        root: str | None = None,
    ) -> Side:
        """Open the side that an address names; see :func:`lakeward.diffing.stored.open.open_side`.

        Raises:
            ConfigurationError: it is not an address, or is in a lake and there is no configuration.
            RefusedInputError: there is not exactly one complete snapshot.
        """
        parsed = parse_address(address, root)
        if parsed.needs_lake and not self.has_configuration:
            msg = f"{address} is in a lake, and there is no {DEFAULT_FILE} in the working directory that defines it"
            raise ConfigurationError(msg, hint="--config FILE")
        from lakeward.diffing.stored.open import open_side
        from lakeward.spark.workspace import Workspace

        return open_side(
            self.spark,
            self.config,
            address,
            schema=schema,
            format=format,
            incomplete_ok=incomplete_ok,
            root=root,
            contexts=self._context if parsed.needs_lake else None,
            workspace=self._stack.enter_context(Workspace()) if parsed.needs_lake else None,
        )

    def _context(self, table: str) -> TableContext:
        if self._lake is None:
            self._lake = self._stack.enter_context(closing(OpenedLake(self.config, spark=self._root)))
        return self._lake.workbench().context(self._lake.table(table), spark=self.spark)


ALL_COLUMNS = "*"
_CONFIG = PATH | instance("a Config", Config) | NONE


@takes(past=TEXT, current=TEXT, keys=TEXTS, to=OPTIONAL_TEXT, format=TEXT, plan=TEXT, exact=FLAG, limit=COUNT_OR_0)
@takes(max_delete_share=SHARE | NONE, report=PATH | NONE, folder=OPTIONAL_TEXT, incomplete_ok=FLAG, config=_CONFIG)
@takes(schema=OPTIONAL_TEXT, past_schema=OPTIONAL_TEXT, current_schema=OPTIONAL_TEXT)
@takes(past_format=OPTIONAL_TEXT, current_format=OPTIONAL_TEXT)
def diff_snapshots(
    past: str,
    current: str,
    *,
    keys: Sequence[str] = (),
    options: DiffOptions | None = None,
    to: str | None = None,
    format: str = "parquet",  # noqa: A002 - the name of the command's option
    max_delete_share: float | None = None,
    report: str | Path | None = None,
    limit: int = 5,
    plan: str = "auto",
    exact: bool = False,
    schema: str | None = None,
    past_schema: str | None = None,
    current_schema: str | None = None,
    past_format: str | None = None,
    current_format: str | None = None,
    folder: str | None = None,
    incomplete_ok: bool = False,
    config: str | Path | Config | None = None,
    spark: SparkSession | None = None,
    during: During | None = None,
) -> DiffResult:
    """Compare two snapshots and return, or write, what was inserted, changed and deleted.

    Args:
        past: a folder or file, a published version, a snapshot set, ``iceberg:schema.table@…`` or
            ``mirror:schema.table@MOMENT``; see docs/diff.md.
        current: the same for the other side.
        keys: columns that identify a row; none: the manifest's; ``["*"]``: all.
        options: names, layout and comparators; default: those of the command.
        to: folder below which a change set is written; None: none is written.
        format: format of the change set.
        max_delete_share: refuse to delete more than this share of the past's rows.
        report: file of an HTML page with counts and examples.
        limit: how many examples of each kind to return.
        plan: how to compare: ``auto``, ``join``, ``hash``, ``buckets`` or ``iceberg``.
        exact: accept no checksum, hash or shared file instead of a comparison.
        schema: columns of JSON and CSV files as DDL, or a file with them.
        past_schema: the same for the past alone.
        current_schema: the same for the current side alone.
        past_format: format of the past's files where their names do not show it.
        current_format: the same for the current side.
        folder: folder of snapshots from which ``latest``, ``previous`` or a date selects.
        incomplete_ok: accept unfinished snapshots.
        config: a configuration or its file; files need none.
        spark: a session to use instead of starting one.
        during: called with what takes time, as for :class:`lakeward.Lakeward`.

    Raises:
        ConfigurationError: an address or option does not fit.
        RefusedInputError: the sides cannot be compared, or too much would be deleted.
    """
    from lakeward.cassandra.snapshots import shown_like_cql
    from lakeward.diffing.comparison import ComparisonRequest, keys_of, run_comparison
    from lakeward.diffing.frames.options import DiffOptions, with_free_names
    from lakeward.diffing.stored.addresses import absolute

    if report is not None:
        _require_report_file(str(report))
    wanted = ComparisonRequest(
        to=absolute(to) if to else None,
        format=format,
        max_delete_share=max_delete_share,
        limit=limit,
        report=str(report) if report else None,
        plan=plan,
        exact=exact,
    )
    with SideOpener(config, spark=spark, during=during) as sides:
        left = sides.open(
            past, schema=past_schema or schema, format=past_format, incomplete_ok=incomplete_ok, root=folder
        )
        right = sides.open(
            current, schema=current_schema or schema, format=current_format, incomplete_ok=incomplete_ok, root=folder
        )
        named = () if tuple(keys) == (ALL_COLUMNS,) else keys_of(left, right, tuple(keys))
        columns = list(dict.fromkeys((*left.frame.columns, *right.frame.columns)))
        chosen = with_free_names(options or DiffOptions(evolve=True), named, columns)
        wanted = replace(wanted, shown=shown_like_cql(left, right))
        return run_comparison(sides.config, left, right, named, chosen, wanted)


@takes(past=TEXT, change_sets=TEXTS, to=OPTIONAL_TEXT, keys=TEXTS, schema=OPTIONAL_TEXT, format=OPTIONAL_TEXT)
@takes(incomplete_ok=FLAG, force=FLAG, config=_CONFIG, csv_columns=TEXTS)
def patch_snapshot(
    past: str,
    change_sets: Sequence[str],
    *,
    to: str | None = None,
    keys: Sequence[str] = (),
    schema: str | None = None,
    format: str | None = None,  # noqa: A002 - the word that the command uses
    csv_columns: Sequence[str] = (),
    incomplete_ok: bool = False,
    force: bool = False,
    config: str | Path | Config | None = None,
    spark: SparkSession | None = None,
    during: During | None = None,
) -> Applied:
    """Apply change sets to a snapshot and write the snapshot that they lead to, or only check that they fit.

    Args:
        past: the snapshot, by an address as :func:`diff_snapshots` takes it.
        change_sets: their folders, in order.
        to: folder of the result, which must not exist; None: only check.
        keys: columns that identify a row, for change sets without a manifest.
        schema: columns of the past as DDL or a file, if it consists of JSON or CSV files.
        format: format of the past's files where their names do not show it.
        csv_columns: columns of change sets that are CSV files without a line of names, in their order.
        incomplete_ok: accept unfinished snapshots and change sets.
        force: apply the change sets even if they were made from something else.
        config: a configuration or its file; files need none.
        spark: a session to use instead of starting one.
        during: called with what takes time, as for :class:`lakeward.Lakeward`.

    Raises:
        ConfigurationError: an address or option does not fit.
        RefusedInputError: a change set was made from something else, or the result is not what the last one leads to.
    """
    from lakeward.diffing.stored.addresses import absolute
    from lakeward.diffing.stored.applying import apply_change_sets
    from lakeward.storage.filesystem import open_filesystem

    with SideOpener(config, spark=spark, during=during) as sides:
        side = sides.open(past, schema=schema, format=format, incomplete_ok=incomplete_ok)
        found = _find_change_sets(
            sides, change_sets, side.frame.schema, tuple(keys), csv_columns, incomplete_ok=incomplete_ok
        )
        target = absolute(to).rstrip("/") if to else None
        store = open_filesystem(sides.spark, sides.config, target) if target else None
        with (during or silently)("applying" if target else "checking"):
            return apply_change_sets(side, found, store, target, force=force)


def _find_change_sets(
    sides: SideOpener,
    change_sets: Sequence[str],
    past: StructType,
    keys: tuple[str, ...],
    csv_columns: Sequence[str],
    *,
    incomplete_ok: bool,
) -> list[ChangeSet]:
    """Return the change sets; each has the columns that the one before it results in."""
    from lakeward.diffing.stored.addresses import absolute
    from lakeward.diffing.stored.changesets import find_change_set

    found: list[ChangeSet] = []
    for location in map(absolute, change_sets):
        last = found[-1].manifest if found else None
        past = last.current_schema if last is not None else past
        found.append(
            find_change_set(
                sides.spark,
                sides.config,
                location,
                keys=keys,
                incomplete_ok=incomplete_ok,
                past=past,
                csv_columns=csv_columns,
            )
        )
    return found


def _require_report_file(report: str) -> None:
    """Refuse a report that cannot be written, before anything is started."""
    target = Path(report).absolute()
    if not target.parent.is_dir():
        msg = f"the folder for the report {report} does not exist"
        raise ConfigurationError(msg)
    if target.is_dir():
        msg = f"{report} is a folder; expected the name of a file for the report"
        raise ConfigurationError(msg, hint=f"--report {report.rstrip('/')}/diff.html")
