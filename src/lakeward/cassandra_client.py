"""The public object for tables of Cassandra and Amazon Keyspaces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack

from lakeward.api.diffs import SideOpener
from lakeward.arguments import NONE, SPAN, checked
from lakeward.cassandra.budget import RateLimits
from lakeward.cassandra.clusters import LiveTable, find_cluster
from lakeward.cassandra.connection import connected
from lakeward.cassandra.cql import TableAddress
from lakeward.cassandra.tables import check_cluster, require_table
from lakeward.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from pyspark.sql import SparkSession

    from lakeward.cassandra.compare import ComparisonReport
    from lakeward.cassandra.counting import CountReport, PartitionsReport
    from lakeward.cassandra.edits import EditReport
    from lakeward.cassandra.export import ExportReport
    from lakeward.cassandra.sync import SyncRequest
    from lakeward.cassandra.sync_rounds import SyncReport
    from lakeward.cassandra.write_plan import WriteReport
    from lakeward.config import Config
    from lakeward.diffing.comparison import DiffResult
    from lakeward.errors import LakewardError

_UNLIMITED = RateLimits()


class SyncSettings(TypedDict, total=False):
    """How a copy is kept current; see :meth:`CassandraClient.sync`."""

    source: str | None
    table: str | None
    first: str | None
    any_cluster: bool
    create_table: bool
    writetime: bool
    ttl: bool
    timestamp: str
    max_delete_share: float | None
    keep: int | None
    ledger: str | None
    dead_letters: str | None
    limits: RateLimits
    tasks: int | None


class EditSettings(TypedDict, total=False):
    """How rows are deleted or written again; see :meth:`CassandraClient.delete`."""

    apply: bool
    max_delete_share: float
    timestamp: str
    staging: str | None
    ledger: str | None
    dead_letters: str | None
    max_rejected: int | None
    limits: RateLimits
    tasks: int | None


class CassandraClient:
    """Exports, imports, compares and synchronises tables of Cassandra and Amazon Keyspaces.

    >>> with CassandraClient.open(cluster="cassandra://127.0.0.1:9042") as client:  # doctest: +SKIP
    ...     export = client.export("shop.orders", to="exports")
    ...     client.import_(export.folder, into="shop_copy.orders", create_table=True)

    Tables are ``[CLUSTER/]KEYSPACE.TABLE``, where CLUSTER is one of ``clusters:`` in ``lakeward.yaml``. Spark starts
    with the first call that needs it; :meth:`close`, or the end of a ``with`` block, frees what the client opened.
    """

    def __init__(
        self,
        config: str | Path | Config | None = None,
        *,
        cluster: str | None = None,
        spark: SparkSession | None = None,
        on_progress: Callable[[str], None] | None = None,
        during: Callable[[str], AbstractContextManager[None]] | None = None,
    ) -> None:
        """Name the clusters, and what is called while work goes on; nothing is started yet.

        Args:
            config: a configuration or its file; None: ``lakeward.yaml`` if there is one, and none is needed.
            cluster: the cluster of tables that name none: one of the configuration, or an address such as
                ``cassandra://127.0.0.1:9042`` or ``keyspaces://eu-central-1``. By default the only one configured.
            spark: a session to work in; by default one is started when it is needed.
            on_progress: called with lines about the progress.
            during: returns a context manager for a piece of work that takes time, such as the start of Spark.
        """
        self._sides = SideOpener(config, spark=spark, during=during)
        self._cluster, self._on_progress = cluster, on_progress

    @classmethod
    def open(cls, path: str | Path | None = None, **options: Any) -> Self:
        """Open a configuration file, by default ``lakeward.yaml`` if there is one; options as for the constructor.

        Raises:
            ConfigurationError: the file cannot be read, or is wrong.
        """
        client = cls(path, **options)
        _ = client.config
        return client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove temporary folders. The Spark application stays: others may use it."""
        self._sides.close()

    @property
    def config(self) -> Config:
        """The configuration, or the defaults."""
        return self._sides.config

    @property
    def spark(self) -> SparkSession:
        """The Spark session, started at first use."""
        return self._sides.spark

    def table(self, address: str, *, must_exist: bool = False, remedy: str | None = None) -> LiveTable:
        """Return a table by its address, ``[CLUSTER/]KEYSPACE.TABLE``.

        Args:
            address: the table.
            must_exist: check it against the cluster immediately, before Spark starts.
            remedy: what the error recommends where there is no such table.

        Raises:
            ConfigurationError: it is no such address, the cluster is not known, or there is no such table.
            RetriableError: the cluster does not answer.
        """
        parsed = TableAddress.parse(address)
        found = LiveTable(find_cluster(self.config, parsed, self._cluster), parsed.name)
        if must_exist:
            with connected(found.address) as session:
                require_table(session, found.name, remedy=remedy)
        return found

    def check(self, cluster: str | None = None) -> str:
        """Connect to a cluster and describe it: version, nodes, partitioner, login, driver.

        Raises:
            ConfigurationError: the cluster is not known, refuses the login, or cannot be read by token ranges.
            RetriableError: it does not answer.
        """
        return check_cluster(find_cluster(self.config, None, cluster or self._cluster))

    def export(
        self,
        table: str,
        *,
        to: str,
        format: str = "parquet",  # noqa: A002 - the word that the command uses
        layout: str = "set",
        where: str | None = None,
        columns: Iterable[str] = (),
        writetime: bool = False,
        ttl: bool = False,
        counters: bool = False,
        splits: int | None = None,
        restart: bool = False,
        limits: RateLimits = _UNLIMITED,
        tasks: int | None = None,
    ) -> ExportReport:
        """Export a table as a snapshot below ``to/KEYSPACE/TABLE/snapshot/``: complete, or not there.

        An export that was interrupted is resumed by the same call: what was read is not read again.

        Args:
            table: the table, ``[CLUSTER/]KEYSPACE.TABLE``.
            to: folder of exports.
            format: ``parquet``, ``json`` or ``csv``.
            layout: ``set``: in buckets by key, with checksums; ``plain``: files as they were read.
            where: only rows that meet a condition in CQL.
            columns: only these columns, and the key.
            writetime: keep when each value was written.
            ttl: keep when each value expires too.
            counters: export counters, which cannot be imported again.
            splits: into how many ranges of tokens the ring is cut.
            restart: start over instead of resuming.
            limits: how much is read per second.
            tasks: how many tasks read at one time.

        Raises:
            ConfigurationError: the table, the columns, the condition or the cluster is not as it must be.
            RefusedInputError: the minute has an export already, or an interrupted one was of something else.
            ConflictError: another one is under way.
            RetriableError: the cluster did not answer; the same call resumes the export.
        """
        from lakeward.cassandra.export import ExportRequest, export_table

        found = self.table(table, must_exist=True)
        request = ExportRequest(
            found.name,
            to,
            format=format,
            layout=layout,
            where=where,
            columns=tuple(columns),
            writetime=writetime,
            ttl=ttl,
            counters=counters,
            tasks=tasks,
            splits=splits,
            limits=limits,
            restart=restart,
        )
        return export_table(self.spark, self.config, found.address, request, on_progress=self._on_progress)

    def import_(
        self,
        snapshot: str,
        *,
        into: str,
        create_table: bool = False,
        timestamp: str = "snapshot",
        schema: str | None = None,
        format: str | None = None,  # noqa: A002 - the word that the command uses
        dry_run: bool = False,
        force: bool = False,
        ledger: str | None = None,
        dead_letters: str | None = None,
        max_rejected: int | None = None,
        limits: RateLimits = _UNLIMITED,
        tasks: int | None = None,
    ) -> WriteReport:
        """Write all rows of a snapshot into a table, or resume an import that was interrupted.

        Args:
            snapshot: an export, another snapshot, or plain files; also ``PATH/latest`` below a folder of exports.
            into: the table, ``[CLUSTER/]KEYSPACE.TABLE``.
            create_table: make the table as the export's was, where there is none.
            timestamp: ``snapshot``: the recorded times of writing, else the export's start; ``now``; or microseconds.
            schema: columns of JSON and CSV files that are no export.
            format: format of files that are no export.
            dry_run: only estimate what would be written.
            force: write all of it, whatever is recorded of the table.
            ledger: table of the same cluster that records what was written.
            dead_letters: folder for rows that are rejected.
            max_rejected: end where more rows are rejected; None: 1,000, or 1 % of the rows if that is more.
            limits: how much is written per second.
            tasks: how many tasks write at one time.

        Raises:
            RefusedInputError: the snapshot is not complete or does not fit, or the table holds something else.
            DataError: too many rows are rejected.
            RetriableError: the cluster does not answer; the same call resumes the import.
        """
        from lakeward.cassandra.imports import CREATE_TABLE, ImportRequest, import_snapshot

        found = self.table(into, must_exist=not create_table, remedy=CREATE_TABLE)
        request = ImportRequest(
            snapshot,
            found.name,
            timestamp=timestamp,
            limits=limits,
            ledger=found.ledger(ledger),
            dead_letters=dead_letters,
            tasks=tasks,
            max_rejected=max_rejected,
            dry_run=dry_run,
            force=force,
            create_table=create_table,
            schema=schema,
            format=format,
        )
        return import_snapshot(self.spark, self.config, found.address, request, on_progress=self._on_progress)

    def apply(
        self,
        change_set: str,
        *,
        into: str,
        timestamp: str = "snapshot",
        max_delete_share: float = 0.5,
        csv_columns: Iterable[str] = (),
        dry_run: bool = False,
        force: bool = False,
        ledger: str | None = None,
        dead_letters: str | None = None,
        max_rejected: int | None = None,
        limits: RateLimits = _UNLIMITED,
        tasks: int | None = None,
    ) -> WriteReport:
        """Apply a change set to a table, or resume one that was interrupted.

        Args:
            change_set: what :meth:`diff` or :meth:`compare` wrote.
            into: the table, ``[CLUSTER/]KEYSPACE.TABLE``.
            timestamp: ``snapshot``: the start of the export that the change set leads to; ``now``; or microseconds.
            max_delete_share: refuse where a larger part of the past's rows would be deleted.
            csv_columns: columns of a change set that is CSV files without a line of names, in their order.
            dry_run: only estimate what would be written.
            force: apply all of it, whatever is recorded of the table.
            ledger: table of the same cluster that records what was written.
            dead_letters: folder for rows that are rejected.
            max_rejected: end where more rows are rejected; None: 1,000, or 1 % of the rows if that is more.
            limits: how much is written per second.
            tasks: how many tasks write at one time.

        Raises:
            RefusedInputError: the change set is not complete, not the next one, does not fit, or deletes too much.
            DataError: too many rows are rejected.
            RetriableError: the cluster does not answer; the same call resumes it.
        """
        from lakeward.cassandra.apply import FILL, ApplyRequest, apply_change_set

        found = self.table(into, must_exist=True, remedy=FILL)
        request = ApplyRequest(
            change_set,
            found.name,
            timestamp=timestamp,
            limits=limits,
            ledger=found.ledger(ledger),
            dead_letters=dead_letters,
            tasks=tasks,
            max_rejected=max_rejected,
            dry_run=dry_run,
            force=force,
            max_delete_share=max_delete_share,
            csv_columns=tuple(csv_columns),
        )
        return apply_change_set(self.spark, self.config, found.address, request, on_progress=self._on_progress)

    def diff(
        self,
        past: str,
        current: str,
        *,
        folder: str | None = None,
        to: str | None = None,
        max_delete_share: float | None = None,
        limit: int = 5,
        dry_run: bool = False,
    ) -> DiffResult:
        """Compare two complete exports of a table and write what changed as a change set for :meth:`apply`.

        Args:
            past: the earlier export: its folder, or within ``folder`` ``previous``, a date or a moment.
            current: the later one.
            folder: folder of the table's exports.
            to: folder of exports below which the change set is written; None: that of the current export.
            max_delete_share: refuse where more would be deleted; None: half of the rows, from 1,000 on.
            limit: how many examples of each kind are returned, with ``dry_run``.
            dry_run: write nothing.

        Raises:
            RefusedInputError: a side is no complete export, they are of different tables or parts of one, too much
                would be deleted, or the minute has a change set already.
        """
        from lakeward.cassandra.diff import diff_exports

        return diff_exports(
            self.spark,
            self.config,
            past,
            current,
            to=to,
            root=folder,
            max_delete_share=max_delete_share,
            limit=limit,
            write=not dry_run,
        )

    def compare(
        self,
        table: str,
        copy: str,
        *,
        to: str | None = None,
        rechecks: int = 1,
        pause: float = 3.0,
        ranges: int | None = None,
        staging: str | None = None,
        max_delete_share: float | None = None,
        limit: int = 5,
        limits: RateLimits = _UNLIMITED,
        tasks: int | None = None,
    ) -> ComparisonReport:
        """Compare two tables, mostly of two clusters, range of tokens by range of tokens.

        Args:
            table: the table, ``[CLUSTER/]KEYSPACE.TABLE``.
            copy: its copy.
            to: folder below which the change set is written that makes the copy like the table; None: none is.
            rechecks: how often rows that differ are read again, each time after ``pause`` seconds.
            pause: seconds before rows are read again.
            ranges: into about how many ranges of tokens the ring is cut.
            staging: folder for rows that differ while they are compared, which all tasks must see; None: ``to``, or a
                temporary one where Spark runs on this machine alone.
            max_delete_share: write no change set that would delete more of the copy.
            limit: how many examples of each kind are returned.
            limits: how much is read per second from each of the clusters.
            tasks: how many tasks read at one time.

        Raises:
            ConfigurationError: a table is not there, the two have different keys, or there is no place for staging.
            RefusedInputError: the change set would delete too much, or the minute has one already.
            RetriableError: a cluster did not answer.
        """
        from lakeward.cassandra.compare import CompareRequest, compare_tables, open_staging_folder

        first, second = (self.table(address, must_exist=True) for address in (table, copy))
        request = CompareRequest(
            first,
            second,
            to=to,
            rechecks=rechecks,
            pause=pause,
            limits=limits,
            ranges=ranges,
            limit=limit,
            max_delete_share=max_delete_share,
        )
        with open_staging_folder(self.spark, self.config, staging or to, tasks) as stage:
            return compare_tables(self.spark, self.config, request, stage, on_progress=self._on_progress)

    def count(
        self, table: str, *, where: str | None = None, limits: RateLimits = _UNLIMITED, tasks: int | None = None
    ) -> CountReport:
        """Count the rows of a table, by ranges of tokens; exact if nobody writes to it meanwhile.

        Args:
            table: the table, ``[CLUSTER/]KEYSPACE.TABLE``.
            where: a condition in SQL; rows for which it is true are counted too.
            limits: how much is read per second.
            tasks: how many tasks read at one time.

        Raises:
            ConfigurationError: there is no such table, or the condition is not valid.
            RefusedInputError: a value does not fit the type in which the condition compares it.
            RetriableError: the cluster did not answer.
        """
        from lakeward.cassandra.counting import CountRequest, count_table

        request = CountRequest(self.table(table, must_exist=True), where, limits, tasks)
        return count_table(self.spark, request, on_progress=self._on_progress)

    def top_partitions(
        self,
        table: str,
        *,
        limit: int = 10,
        by: str = "rows",
        limits: RateLimits = _UNLIMITED,
        tasks: int | None = None,
    ) -> PartitionsReport:
        """Return the largest partitions of a table.

        Args:
            table: the table, ``[CLUSTER/]KEYSPACE.TABLE``.
            limit: how many.
            by: ``rows``, or ``bytes`` of all values.
            limits: how much is read per second.
            tasks: how many tasks read at one time.

        Raises:
            ConfigurationError: there is no such table, or no such measure.
            RetriableError: the cluster did not answer.
        """
        from lakeward.cassandra.counting import PartitionsRequest, top_partitions

        request = PartitionsRequest(self.table(table, must_exist=True), limit, by, limits, tasks)
        return top_partitions(self.spark, request, on_progress=self._on_progress)

    def delete(self, table: str, *, where: str, **choices: Unpack[EditSettings]) -> EditReport:
        """Delete the rows of a table that meet a condition, by their full keys.

        Rows that others write after the call has begun to read stay. A call that was interrupted is repeated.

        Args:
            table: the table, ``[CLUSTER/]KEYSPACE.TABLE``.
            where: a condition in SQL; only rows for which it is true are deleted.
            **choices: ``apply``: delete; by default rows are only counted and the cost is estimated.
                ``max_delete_share``: refuse to delete a larger share of the rows, from 1,000 on; half by default.
                ``timestamp``: ``read``: the time at which reading begins; ``now`` for tables without client timestamps.
                ``staging``: folder for the keys, which all tasks must reach; a temporary one by default.
                ``ledger``, ``dead_letters``, ``max_rejected``, ``limits``, ``tasks``: as for :meth:`apply`.

        Raises:
            ConfigurationError: there is no such table, or the condition is not valid.
            RefusedInputError: too many rows would be deleted, or the table has counters or an unfinished import.
            DataError: too many rows are rejected.
            RetriableError: the cluster does not answer; the same call does the rest.
        """
        return self._edit(table, where, None, choices)

    def set_ttl(
        self, table: str, seconds: float, *, where: str = "true", **choices: Unpack[EditSettings]
    ) -> EditReport:
        """Write rows of a table again, so that they expire.

        Every value of a row, and the row itself, gets the TTL, which counts from the write. Values that others write
        after the call has begun to read stay as they are.

        Args:
            table: the table, ``[CLUSTER/]KEYSPACE.TABLE``.
            seconds: the TTL; 0 removes it.
            where: a condition in SQL; only rows for which it is true are written.
            **choices: as for :meth:`delete`, except ``max_delete_share``.

        Raises:
            ConfigurationError: there is no such table, or the condition or the TTL is not valid.
            RefusedInputError: the table has counters or an unfinished import.
            DataError: too many rows are rejected.
            RetriableError: the cluster does not answer; the same call does the rest.
        """
        from lakeward.cassandra.edits import whole_seconds

        return self._edit(table, where, whole_seconds(seconds), choices)

    def _edit(self, table: str, where: str, ttl: int | None, choices: EditSettings) -> EditReport:
        from lakeward.cassandra.edits import EditRequest, edit_rows

        given: dict[str, Any] = {**choices}
        found, is_applied = self.table(table, must_exist=True), given.pop("apply", False)
        ledger = found.ledger(given.pop("ledger", None))
        request = EditRequest(
            str(found), found.name, where=where, ttl=ttl, dry_run=not is_applied, ledger=ledger,
            **{"timestamp": "read", **given},
        )  # fmt: skip
        return edit_rows(self.spark, self.config, found.address, request, on_progress=self._on_progress)

    def sync(self, *, into: str, to: str, **settings: Unpack[SyncSettings]) -> SyncReport:
        """Bring a copy of a table up to date: export the table, compare with what the copy holds, apply the difference.

        The first time the copy is filled from the whole export. A call that was interrupted is finished by the next
        one before it exports again.

        Args:
            into: the copy, ``[CLUSTER/]KEYSPACE.TABLE``.
            to: folder of exports and change sets.
            **settings: ``source``: the table to copy; None follows the exports that another job puts into the folder,
                then ``table`` names whose. ``first``: what happens to a copy with rows of which nothing is recorded:
                ``import`` writes the export over them, ``assume`` takes them for what it holds; None refuses.
                ``any_cluster``: follow exports of any cluster. ``create_table``, ``timestamp``, ``ledger``,
                ``dead_letters``, ``max_delete_share``, ``limits``, ``tasks``: as for the other methods.
                ``writetime``, ``ttl``: as for :meth:`export`. ``keep``: how many exports stay in the folder.

        Raises:
            RefusedInputError: the copy holds something unknown, too much would be deleted, or exports do not fit.
            RetriableError: a cluster did not answer.
        """
        from lakeward.cassandra.sync import sync_once

        return sync_once(self.spark, self.config, self._sync_request(into, to, settings), on_progress=self._on_progress)

    def keep_in_sync(
        self,
        *,
        into: str,
        to: str,
        every: float | None = None,
        poll: float | None = None,
        on_report: Callable[[SyncReport], None] | None = None,
        on_error: Callable[[LakewardError], None] | None = None,
        stop: Callable[[], bool] | None = None,
        **settings: Unpack[SyncSettings],
    ) -> None:
        """Call :meth:`sync` again and again, at an interval or whenever another job adds an export.

        A cluster that does not answer, or another writer, does not end it: the next round tries again.

        Args:
            into: the copy, ``[CLUSTER/]KEYSPACE.TABLE``.
            to: folder of exports and change sets.
            every: with ``source``: seconds from the beginning of a round to that of the next; None: without
                ``source``, wait for exports in the folder.
            poll: without ``every``: seconds between looks into the folder; None: 5 for a local one, else 30.
            on_report: called with the report of every round; None: only its warnings are logged.
            on_error: called with an error that the next round may not have; None: it is logged as a warning.
            stop: called after every round and every wait; true ends the loop.
            **settings: as for :meth:`sync`.

        Raises:
            ConfigurationError: the arguments contradict each other; nothing was done.
            RefusedInputError: as for :meth:`sync`.
        """
        from lakeward.cassandra.sync import sync_forever

        _require_rounds(settings.get("source"), every, poll)
        request = self._sync_request(into, to, settings)
        sync_forever(
            self.spark,
            self.config,
            request,
            every=every,
            poll=poll,
            on_report=on_report,
            on_error=on_error,
            stop=stop,
            on_progress=self._on_progress,
        )

    def _sync_request(self, into: str, to: str, settings: SyncSettings) -> SyncRequest:
        from lakeward.cassandra.sync import SyncRequest, followed_table
        from lakeward.cassandra.sync_steps import First

        if settings.get("source") and settings.get("table"):
            msg = "table is for exports of another job, source is exported by this one: pass only one of them"
            raise ConfigurationError(msg, hint="leave out table")
        given: dict[str, Any] = {"source": None, "table": None, "first": None, "ledger": None, **settings}
        named, first, limits = given.pop("source"), given.pop("first"), given.pop("limits", _UNLIMITED)
        target, source = self.table(into), self.table(named) if named else None
        return SyncRequest(
            source=source.address if source is not None else None,
            table=followed_table(given.pop("table"), (source or target).name),
            target=target.address,
            into=target.name,
            to=to,
            first=First(first) if first else None,
            ledger=target.ledger(given.pop("ledger")),
            export_limits=limits.for_reading(),
            limits=limits.for_writing(),
            **given,
        )


def _require_rounds(source: str | None, every: float | None, poll: float | None) -> None:
    """Refuse a source without an interval, and the reverse: exports of another job are waited for, not made."""
    checked("keep_in_sync", "every", every, SPAN | NONE)
    checked("keep_in_sync", "poll", poll, SPAN | NONE)
    if every is not None and not source:
        msg = "every needs source; without both, the exports of another job are waited for"
        raise ConfigurationError(msg, hint="pass source, or leave out every")
    if source and every is None:
        msg = "source needs every: only the exports of another job can be waited for"
        raise ConfigurationError(msg, hint="pass every, or leave out source")
    if poll is not None and every is not None:
        msg = "poll is how often the folder is looked at for exports of another job; with every it has no effect"
        raise ConfigurationError(msg, hint="leave out poll, or every and source")
