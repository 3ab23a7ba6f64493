"""The main class of the library: open a configuration, then discover, plan, run, query.

from lakeward import Lakeward

with Lakeward.open("lakeward.yaml") as lake:
    report = lake.run()

Methods that need Spark import it themselves, so that listing tables does not take seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

from lakeward.api.deprecated import former_spellings
from lakeward.api.opened import OpenedLake, TableRegistry
from lakeward.arguments import (  # fmt: skip
    COUNT,
    COUNT_OR_0,
    FLAG,
    MAPPING,
    MAPPINGS,
    NONE,
    OPTIONAL_NUMBER,
    OPTIONAL_TEXT,
    OPTIONAL_WHOLE,
    PATH,
    POSITIVE,
    SPAN,
    TEXT,
    TEXTS,
    Kind,
    checked,
    instance,
    mapping,
    takes,
)
from lakeward.config import Config, load_config
from lakeward.errors import ConfigurationError
from lakeward.mirror.op.context import RunOptions
from lakeward.model import TableId
from lakeward.runner.observers import Reporting
from lakeward.runner.tables import Discovery, KnownTable, discover, require_landing

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from lakeward.api.doctor import Check
    from lakeward.api.history import History
    from lakeward.api.opened import During
    from lakeward.api.points import Points
    from lakeward.api.snapshots import Snapshots
    from lakeward.config.services import WatchSettings
    from lakeward.mirror.columns_repair import ColumnsRepair
    from lakeward.mirror.maintenance import MaintenanceReport
    from lakeward.mirror.op.report import RunReport, TablePlan
    from lakeward.mirror.op.steps import Step
    from lakeward.mirror.quarantine import BadRow, QuarantineReport
    from lakeward.mirror.reset import ResetPlan, TableReset
    from lakeward.mirror.undo import Undone, UndoPlan
    from lakeward.runner.declaring import TakenProposal, WrittenProposals
    from lakeward.runner.generator import GeneratorTables
    from lakeward.runner.history import RunDetail, RunSummary
    from lakeward.runner.metrics import Metrics
    from lakeward.runner.observers import Observer
    from lakeward.runner.proposals import Proposal
    from lakeward.runner.removing import RemovalPlan, TableRemoval
    from lakeward.runner.renaming import RenamePlan
    from lakeward.runner.status import TableStatus
    from lakeward.runner.validation import Finding
    from lakeward.runner.walkthrough import ImportedTable
    from lakeward.runner.watch.watcher import RunObserver, Watcher
    from lakeward.state.base import StateStore
    from lakeward.storage.landing import Landing
    from lakeward.views.erasure import Receipt
    from lakeward.views.verification.report import VerifyReport

_CONFIG = instance("a Config", Config)
_OPTIONS = instance("RunOptions", RunOptions) | NONE
_TABLE = instance("a KnownTable", KnownTable)
# Not by the class, whose module imports what reads files.
_PROPOSALS = mapping(
    "texts to Proposals",
    Kind("a Proposal", lambda value: hasattr(value, "doubts") and hasattr(value, "partition_candidates")),
)


class Lakeward:
    """A configured lake. Spark starts at the first call that needs it; ``close`` releases what was opened."""

    def __init__(
        self,
        config: Config,
        *,
        spark: SparkSession | None = None,
        on_step: Callable[[str, Step], None] | None = None,
        observers: Iterable[Observer] = (),
        during: During | None = None,
    ) -> None:
        """Open a lake by its configuration.

        Args:
            config: the configuration.
            spark: a session whose catalog ``lake`` is this lake; without it one is started when needed.
            on_step: called with (table, step) as an op passes its steps, from the thread that works on the table.
            observers: called with the events of every run.
            during: called with a description of work that takes time, such as starting Spark; returns a context
                manager that is open meanwhile.
        """
        checked("Lakeward", "config", config, _CONFIG)
        self._opened = OpenedLake(config, spark=spark, on_step=on_step, during=during)
        self._registry = TableRegistry(self._opened)
        self._observers = tuple(observers)
        self._reporting = Reporting(config, self.state, self.status)

    @property
    def config(self) -> Config:
        """The configuration that the lake was opened with."""
        return self._opened.config

    @property
    def storage(self) -> Landing:
        """The landing folder."""
        return self._opened.storage

    @property
    def state(self) -> StateStore:
        """The state store."""
        return self._opened.state

    @classmethod
    @takes(path=PATH | NONE)
    def open(cls, path: str | Path | None = None, **options: Any) -> Self:
        """Open ``lakeward.yaml`` or the given file; options as for the constructor."""
        return cls(load_config(path), **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the state store and the metrics' port. The Spark application keeps running: other lakes may use it."""
        self._reporting.close()
        self._opened.close()

    @property
    def spark(self) -> SparkSession:
        """The Spark session, started at first use."""
        return self._opened.spark

    def has_spark(self) -> bool:
        """Whether the Spark application was started and still runs."""
        return self._opened.has_spark()

    @takes(start_spark=FLAG)
    def doctor(self, *, start_spark: bool = True) -> list[Check]:
        """Check everything that a run needs: Java, jars, landing, warehouse, state, tables, clusters, Spark.

        Args:
            start_spark: write and read a table of the lake.
        """
        from lakeward.api.doctor import doctor

        return doctor(self.config, start_spark=start_spark)

    # Tables and their settings

    def tables(self) -> list[KnownTable]:
        """Return all tables that are declared or registered."""
        return self._opened.tables()

    @takes(name=TEXT)
    def table(self, name: str) -> KnownTable:
        """Return a table by its name ``schema.table``.

        Raises:
            ConfigurationError: there is no such table.
        """
        return self._opened.table(name)

    @takes(name=TEXT)
    def find_table(self, name: str) -> KnownTable | None:
        """Return a table by its name ``schema.table``, None where it is neither declared nor registered."""
        return self._registry.find(name)

    @takes(name=TEXT)
    def own_settings(self, name: str) -> dict[str, Any]:
        """Return the settings that ``set_table`` stored for a table, without any defaults."""
        return self._registry.own_settings(name)

    @takes(read_transactions=FLAG)
    def discover(self, *, read_transactions: bool = False) -> Discovery:
        """Register tables found in landing as inactive; return which are new and what was left out.

        Args:
            read_transactions: read transaction files too, for tables that have no folder.
        """
        require_landing(self.config, self.storage)
        return discover(self.config, self.storage, self.state, read_transactions=read_transactions)

    @takes(name=TEXT)
    def propose_settings(self, name: str) -> Proposal:
        """Return settings that fit a table's files, each with its evidence, and what a person must decide.

        Proposed are a key that is unique in the load, the commit time's column, how CSV files are written, columns with
        types, and partitions. Nothing is changed.

        Args:
            name: the table as ``schema.table``.
        """
        from lakeward.runner.proposals import propose

        return propose(self.config, self.storage, self.table(name))

    def undecided_tables(self) -> list[KnownTable]:
        """Return the tables that discovery registered and that nobody has declared, set or activated since."""
        return self._registry.undecided()

    @takes(proposals=_PROPOSALS)
    def write_proposals(self, proposals: Mapping[str, Proposal]) -> WrittenProposals:
        """Add proposed settings to ``lakeward.yaml`` with their evidence; everything else in it stays byte for byte.

        Tables about which nothing is in doubt are declared, others written in comments. Tables that the file holds
        already are left alone. This lake keeps the settings that it was opened with.

        Args:
            proposals: what ``propose_settings`` returned, by table.

        Raises:
            ConfigurationError: the file is written in a way in which nothing can be added safely; it is not changed.
            ConflictError: another program changed the file meanwhile.
        """
        from lakeward.runner.declaring import write_proposals

        return write_proposals(self.config, proposals)

    @takes(proposals=_PROPOSALS)
    def activate_proposed(self, proposals: Mapping[str, Proposal]) -> list[TakenProposal]:
        """Activate tables with their proposed settings, except those about which anything is in doubt.

        Args:
            proposals: what ``propose_settings`` returned, by table.
        """
        return self._registry.activate_proposed(proposals)

    @takes(tables=TEXTS, check_data=FLAG)
    def check_tables(self, tables: Iterable[str] = (), *, check_data: bool = True) -> list[Finding]:
        """Compare the settings of tables with their files: all known ones, or those named.

        Args:
            tables: names as ``schema.table``.
            check_data: search the loads for keys that occur twice; Spark starts where one is large.
        """
        return self._registry.check(self._opened.named(tables), check_data=check_data)

    @takes(name=TEXT, settings=MAPPING | NONE, active=FLAG | NONE, force=FLAG, check_data=FLAG)
    def set_table(
        self,
        name: str,
        *,
        settings: Mapping[str, Any] | None = None,
        active: bool | None = None,
        force: bool = False,
        check_data: bool = True,
        on_finding: Callable[[Finding], None] | None = None,
    ) -> KnownTable:
        """Change a table's settings or activate it; a table is activated only if its settings fit its files.

        Settings of a refused activation are stored, unless the table is active already.

        Args:
            name: the table as ``schema.table``.
            settings: values by name; None restores the default.
            active: take part in runs, or no longer.
            force: activate in spite of findings.
            check_data: search the load for keys that occur twice.
            on_finding: called with each finding before activation.

        Raises:
            ConfigurationError: the table is declared in the configuration file, or a setting does not fit.
        """
        self._registry.set(
            TableId.parse(name),
            settings or {},
            active=active,
            force=force,
            check_data=check_data,
            on_finding=on_finding,
        )
        return self.table(name)

    @takes(before=_TABLE, after=_TABLE)
    def changed_reading(self, before: KnownTable, after: KnownTable) -> str | None:
        """Return what a change of settings does not change in rows that were read before; None: nothing."""
        return self._registry.changed_reading(before, after)

    @takes(name=TEXT, column=TEXT, values=TEXTS)
    def hash_values(self, name: str, column: str, values: Iterable[str]) -> list[str]:
        """Return what texts become in a column that a table hashes, to look for them in the lake.

        Args:
            name: the table as ``schema.table``.
            column: a column with the rule ``hash``.
            values: values as a CSV file would have them.

        Raises:
            ConfigurationError: the column is not hashed, a value is not of its type, or the key is not there.
        """
        return self._registry.hash_values(name, column, list(values))

    @takes(name=TEXT, dry_run=FLAG)
    def repair_table(self, name: str, *, dry_run: bool = False) -> ColumnsRepair:
        """Change the columns of a mirror to those that its settings declare; rows stay as they are.

        Columns get the names that ``renames`` declares, which makes a mirror with unreadable names readable again, and
        columns that the settings declare to be those of the capture, such as a commit time, are removed.

        Args:
            name: the table as ``schema.table``.
            dry_run: only return what would be done.

        Raises:
            ConfigurationError: the settings are not sufficient, or do not fit the remaining columns.
            ConflictError: another writer holds the table or committed first.
        """
        return self._registry.repair_columns(name, dry_run=dry_run)

    @takes(name=TEXT, drop_data=FLAG)
    def remove_table(self, name: str, *, drop_data: bool = False) -> TableRemoval:
        """Remove a table from the registry and from ``lakeward.yaml``, with ``drop_data`` all that is kept of it too.

        Landing stays as it is: discovery registers the table again, as inactive, while its folder is there. This lake
        keeps the settings that it was opened with. An interrupted call is completed by the same call.

        Args:
            name: the table as ``schema.table``; with ``drop_data`` also one that is no longer registered.
            drop_data: remove mirror, changelog, history, tags and published files, except for files of others.

        Raises:
            ConfigurationError: there is no such table, or its lines in the file cannot be removed.
            ConflictError: another writer holds the table, or another program changed the file meanwhile.
        """
        from lakeward.runner.removing import remove_table

        return remove_table(self._opened.workbench(), TableId.parse(name), drop_data=drop_data)

    @takes(name=TEXT, drop_data=FLAG)
    def plan_remove_table(self, name: str, *, drop_data: bool = False) -> RemovalPlan:
        """Return what a removal would do; nothing is changed.

        Args:
            name: as for ``remove_table``.
            drop_data: as for ``remove_table``.
        """
        from lakeward.runner.removing import plan_removal

        return plan_removal(self._opened.workbench(), TableId.parse(name), drop_data=drop_data)

    @takes(name=TEXT, to=TEXT)
    def rename_table(self, name: str, to: str) -> RenamePlan:
        """Rename a table with its mirror, changelog, history, settings and runs; return what was done.

        It is read from the same folder as before. An interrupted call is completed by the same call, and no op is done
        in between.

        Args:
            name: the table as ``schema.table``.
            to: its new name.

        Raises:
            ConfigurationError: there is no such table, the name is taken, or the catalog cannot rename tables.
            ConflictError: another writer holds the table, or another program changed the file meanwhile.
        """
        from lakeward.runner.renaming import rename

        return rename(self._opened.workbench(), TableId.parse(name), TableId.parse(to))

    @takes(name=TEXT, to=TEXT)
    def plan_rename_table(self, name: str, to: str) -> RenamePlan:
        """Return what a renaming would do; nothing is changed.

        Args:
            name: as for ``rename_table``.
            to: as for ``rename_table``.
        """
        from lakeward.runner.renaming import plan_renaming

        return plan_renaming(self._opened.workbench(), TableId.parse(name), TableId.parse(to))

    @takes(dynamodb=TEXT, lake=OPTIONAL_TEXT, region=OPTIONAL_TEXT, endpoint=OPTIONAL_TEXT, dry_run=FLAG)
    def import_walkthrough(
        self,
        dynamodb: str,
        *,
        lake: str | None = None,
        region: str | None = None,
        endpoint: str | None = None,
        dry_run: bool = False,
    ) -> list[ImportedTable]:
        """Import the tables of a DMS walkthrough deployment; return the result for each item.

        Args:
            dynamodb: the DynamoDB table of its controller.
            lake: folder of the lake that it wrote; tables whose load files are gone from landing begin with its rows.
                A relative one counts from here.
            region: AWS region of the table; default from the environment.
            endpoint: address of the service, if it is not that of AWS.
            dry_run: only return what would be imported.
        """
        from lakeward.diffing.stored.addresses import absolute
        from lakeward.runner.walkthrough import scan_items, take_over

        items = scan_items(dynamodb, region=region, endpoint=endpoint)
        place = absolute(lake) if lake is not None else None
        return list(take_over(items, self.config, self.storage, self.state, lake=place, dry_run=dry_run))

    @takes(file=PATH)
    def read_generator(self, file: str | Path) -> GeneratorTables:
        """Return the tables of a Spark CDC snapshot generator as proposals, for ``write_proposals``.

        Args:
            file: its ``core/sources.py``, which is parsed and never executed.

        Raises:
            ConfigurationError: the file has no dictionary ``cdc``.
        """
        from lakeward.runner.generator import read_generator

        return read_generator(file, self.config)

    def rebuild_state(self) -> list[str]:
        """Rebuild the state store from the lake and return the names of the tables found."""
        return self._registry.rebuild()

    # Runs

    @takes(tables=TEXTS, options=_OPTIONS)
    def plan(self, tables: Iterable[str] = (), *, options: RunOptions | None = None) -> list[TablePlan]:
        """Return what a run would do next for each table, without writing.

        Args:
            tables: as for ``run``.
            options: as for ``run``.

        Raises:
            ConfigurationError: as for ``run``.
        """
        from lakeward.runner.workbench import plan_tables

        chosen, decided = self._decided(tables, options)
        return plan_tables(self._opened.workbench(), chosen, decided)

    @takes(tables=TEXTS, options=_OPTIONS, wait=SPAN, parallel=COUNT | NONE)
    def run(
        self,
        tables: Iterable[str] = (),
        *,
        options: RunOptions | None = None,
        wait: float = 0,
        parallel: int | None = None,
        stop: threading.Event | None = None,
        observers: Iterable[Observer] = (),
    ) -> RunReport:
        """Bring mirrors up to date: all active tables, or those named.

        Args:
            tables: names as ``schema.table``; none: all active ones, or those that read ``options.files``.
            options: decisions for this run.
            wait: seconds to wait for a table that another writer holds.
            parallel: number of tables that run at the same time; default as configured.
            stop: an event that ends the run as Ctrl-C would, with KeyboardInterrupt, when another thread sets it.
            observers: called with the events of this run, after those of the constructor.

        Raises:
            ConfigurationError: a table is unknown or inactive, or a file of the options is not there or not theirs.
        """
        from lakeward.runner.observers import fan_out
        from lakeward.runner.run import run_tables

        chosen, decided = self._decided(tables, options)
        bench = self._opened.workbench()
        observer = fan_out((*self._reporting.observers(), *self._observers, *observers))
        return run_tables(bench, chosen, decided, observer, wait=wait, parallel=parallel, stop=stop)

    def _decided(self, tables: Iterable[str], options: RunOptions | None) -> tuple[list[KnownTable], RunOptions]:
        """Return the tables of a run and its options, both checked against landing."""
        from lakeward.runner.watch.requests import resolve_files

        require_landing(self.config, self.storage)
        names, decided = resolve_files(self, tables, options or RunOptions())
        chosen = self._opened.active(names)
        if decided.reload and not names and len(chosen) > 1:
            msg = "reload decides about the load files of single tables: name the table"
            raise ConfigurationError(msg, hint=f"lake.run([{str(chosen[0].table)!r}], options=RunOptions(reload=True))")
        return chosen, decided

    @takes(tables=TEXTS)
    def watch(
        self,
        tables: Iterable[str] = (),
        *,
        settings: WatchSettings | None = None,
        observers: Sequence[RunObserver] = (),
    ) -> Watcher:
        """Return a watcher that runs tables as files land: call its ``run``, which lasts until ``stop``, or ``once``.

        Args:
            tables: names as ``schema.table``; none: all active ones, also those activated later.
            settings: how to watch; default as configured.
            observers: their ``run_finished(report)`` is called after every run.
        """
        from lakeward.runner.watch.watcher import open_watcher

        return open_watcher(self, tables, settings or self.config.watch, observers)

    @takes(tables=TEXTS, files=TEXTS)
    def choose_files(
        self, tables: Iterable[str] = (), *, files: Iterable[str]
    ) -> tuple[tuple[str, ...], frozenset[str]]:
        """Return the tables that landing files belong to, and the files' paths under landing.

        Args:
            tables: names as ``schema.table``; none: those that read the files.
            files: paths under landing, local paths, file:// or s3:// URIs.

        Raises:
            ConfigurationError: a file is not under landing, or belongs to none of the tables.
        """
        from lakeward.runner.watch.requests import choose_files

        return choose_files(self, tables, files)

    @takes(file=TEXT)
    def landing_path(self, file: str) -> str:
        """Return a landing file's path under landing.

        Raises:
            ConfigurationError: it is not under landing.
        """
        from lakeward.runner.watch.requests import landing_path

        return landing_path(self, file)

    @takes(tables=TEXTS)
    def status(self, tables: Iterable[str] = ()) -> list[TableStatus]:
        """Return the status of tables: all known ones, or those named."""
        from lakeward.runner.status import table_statuses

        chosen = self._opened.named(tables)
        return table_statuses(self._opened.workbench(), chosen) if chosen else []

    @takes(table=OPTIONAL_TEXT, limit=COUNT)
    def runs(self, table: str | None = None, *, limit: int = 20) -> list[RunSummary]:
        """Return the newest runs, newest first; with ``table`` only its runs, and only its part of them."""
        from lakeward.runner.history import list_runs

        return list_runs(self.state, TableId.parse(table) if table else None, limit=limit)

    @takes(run_id=TEXT, table=OPTIONAL_TEXT)
    def run_detail(self, run_id: str, table: str | None = None) -> RunDetail:
        """Return one run with the reports of all its tables, or of one."""
        from lakeward.runner.history import run_detail

        return run_detail(self.state, run_id, TableId.parse(table) if table else None)

    @property
    def metrics(self) -> Metrics:
        """Metrics of this lake for Prometheus: every run after their first use, or with ``metrics: file:`` all runs."""
        return self._reporting.metrics

    def count_poison(self) -> None:
        """Count a message of the watched queue that could not be read, for metrics."""
        self._reporting.count_poison()

    # Queries, history, snapshots

    @takes(query=TEXT, allow_writes=FLAG)
    def sql(self, query: str, *, allow_writes: bool = False) -> DataFrame:
        """Run Spark SQL over the lake; ``sales.product`` is the mirror.

        Raises:
            ConfigurationError: the statement is wrong, or it does more than read the lake and ``allow_writes`` is not
                set. Errors of Spark while the rows are read are not translated: :func:`lakeward.query_errors` does it.
        """
        from lakeward.session.statements import read_only
        from lakeward.spark.errors import query_errors

        spark = self.spark
        with query_errors():
            return spark.sql(query) if allow_writes else read_only(spark, query)

    @property
    def history(self) -> History:
        """The history of rows, versions with their times, and the feed of changes."""
        from lakeward.api.history import History

        return History(self._opened)

    @property
    def snapshots(self) -> Snapshots:
        """Versions of tables as of a moment: create, read, list, refresh, drop."""
        from lakeward.api.snapshots import Snapshots

        return Snapshots(self._opened)

    @property
    def points(self) -> Points:
        """Moments at which all tables of a group show one state of their database: list them, set their tags."""
        from lakeward.api.points import Points

        return Points(self._opened)

    # Quarantine

    @takes(name=TEXT, limit=COUNT_OR_0 | NONE)
    def bad_rows(self, name: str, *, limit: int | None = None) -> Iterator[BadRow]:
        """Yield a table's bad rows that wait for a decision."""
        from lakeward.mirror.quarantine import bad_rows

        return bad_rows(self._opened.context(name), limit=limit)

    @takes(name=TEXT, ids=TEXTS, replacements=MAPPING | NONE)
    def retry_bad_rows(
        self, name: str, ids: Collection[str] = (), replacements: Mapping[str, str] | None = None
    ) -> QuarantineReport:
        """Apply bad rows at their place in the order, by the present settings or with replacements."""
        from lakeward.mirror.quarantine import retry_rows

        with self._opened.leased(name) as context:
            return retry_rows(context, ids, replacements or {})

    @takes(name=TEXT, ids=TEXTS)
    def drop_bad_rows(self, name: str, ids: Collection[str] = ()) -> QuarantineReport:
        """Drop bad rows: they stay in the changelog and are no longer listed."""
        from lakeward.mirror.quarantine import drop_rows

        with self._opened.leased(name) as context:
            return drop_rows(context, ids)

    # Verification, undo, erasure, maintenance

    @takes(tables=TEXTS, basis=TEXT, sample=OPTIONAL_NUMBER, key_ranges=TEXTS, repair=FLAG, limit=COUNT_OR_0)
    @takes(against=OPTIONAL_TEXT, against_table=OPTIONAL_TEXT, cut_off=OPTIONAL_TEXT, changed_at=OPTIONAL_TEXT)
    def verify(
        self,
        tables: Iterable[str] = (),
        *,
        basis: str = "auto",
        sample: float | None = None,
        key_ranges: Iterable[str] = (),
        against: str | None = None,
        against_table: str | None = None,
        cut_off: str | None = None,
        changed_at: str | None = None,
        repair: bool = False,
        limit: int = 20,
    ) -> VerifyReport:
        """Compute mirrors again and compare them row by row: all active tables, or those named.

        Args:
            tables: names as ``schema.table``.
            basis: ``files`` reads the landing files again, ``changelog`` folds load and changelog, ``auto`` uses the
                files where all still exist unchanged.
            sample: compare only this share of the keys.
            key_ranges: compare only keys in these ranges, each as ``id=1..1000``.
            against: compare with another copy instead: a ``jdbc:`` address, a folder of files or a published version.
            against_table: the table's name there, or a query in parentheses with an alias; default ``schema.table``.
            cut_off: leave out keys that changed after this day or time.
            changed_at: the other copy's column with the time of a row's last change, for the cut-off.
            repair: correct the differences, by one op per table.
            limit: how many findings to return per table.

        Raises:
            ConfigurationError: the arguments contradict each other; nothing was compared.
        """
        from lakeward.api.operations import other_copy, verify_options, verify_tables

        names = list(tables)
        chosen = self._opened.named(names) if names else self._opened.active(())
        other = other_copy(self.config, chosen, against, against_table, cut_off, changed_at)
        options = verify_options(basis, sample, key_ranges, other, limit)
        return verify_tables(self._opened, chosen, options, repair=repair)

    @former_spellings(plan="plan_undo")
    @takes(name=TEXT, to_op=COUNT_OR_0 | NONE, to_time=OPTIONAL_TEXT, skip_files=TEXTS, newest_op=OPTIONAL_WHOLE)
    def undo(
        self,
        name: str,
        *,
        to_op: int | None = None,
        to_time: str | None = None,
        skip_files: Iterable[str] = (),
        newest_op: int | None = None,
    ) -> Undone:
        """Undo every op after a certain one, by a new op, and return what was undone.

        Args:
            name: the table as ``schema.table``.
            to_op: the op whose state to restore; 0 for the empty table.
            to_time: a day or time instead: the last op without changes that were committed later.
            skip_files: change files of the undone ops that later runs must not read again.
            newest_op: refuse when the table's newest op is another one, as the plan is then out of date.

        Raises:
            ConfigurationError: there is no such op, or a file was not read by an op that is undone.
            ConflictError: another writer holds the table or committed first.
        """
        from lakeward.api.operations import undo_ops, undo_request

        return undo_ops(self._opened, name, undo_request(self._opened, to_op, to_time, skip_files, newest_op))

    @takes(name=TEXT, to_op=COUNT_OR_0 | NONE, to_time=OPTIONAL_TEXT, skip_files=TEXTS, finish=FLAG)
    def plan_undo(
        self,
        name: str,
        *,
        to_op: int | None = None,
        to_time: str | None = None,
        skip_files: Iterable[str] = (),
        finish: bool = False,
    ) -> UndoPlan:
        """Return what an undo would do, down to the rows; nothing is written.

        Args:
            name: the table as ``schema.table``.
            to_op: as for ``undo``.
            to_time: as for ``undo``.
            skip_files: as for ``undo``.
            finish: first finish an op that a crash interrupted, as the undo itself would.
        """
        from lakeward.api.operations import plan_undo, undo_request

        return plan_undo(self._opened, name, undo_request(self._opened, to_op, to_time, skip_files), finish=finish)

    @takes(name=TEXT, newest_op=OPTIONAL_WHOLE)
    def reset_table(self, name: str, *, newest_op: int | None = None) -> TableReset:
        """Read everything in a table's landing folder again and publish the result in one step; it is an op.

        Readers keep the former state until then, and it stays tagged for ``undo_window``. Decisions on load files and
        fenced files are kept, decisions on single rows are not.

        Args:
            name: the table as ``schema.table``.
            newest_op: refuse when the table's newest op is another one, as the plan is then out of date.

        Raises:
            ConfigurationError: nothing was read yet, or something must be decided or finished first.
            DataError: landing lacks files that the table was made from, or they cannot be read; nothing was changed.
            ConflictError: another writer holds the table or committed first.
        """
        from lakeward.api.operations import reset_table

        return reset_table(self._opened, name, newest_op)

    @takes(name=TEXT, finish=FLAG)
    def plan_reset_table(self, name: str, *, finish: bool = False) -> ResetPlan:
        """Return what a reset would read and what it would not keep; nothing is written.

        Args:
            name: the table as ``schema.table``.
            finish: first finish an op that a crash interrupted, as the reset itself would.
        """
        from lakeward.api.operations import plan_reset

        return plan_reset(self._opened, name, finish=finish)

    @former_spellings(plan="plan_erasure", resume="resume_erasure")
    @takes(name=TEXT, keys=MAPPINGS, reason=TEXT, landing=FLAG, moves=OPTIONAL_TEXT)
    def erase(
        self,
        name: str,
        keys: Sequence[Mapping[str, Any]],
        *,
        reason: str,
        landing: bool = False,
        moves: Literal["erase", "keep"] | None = None,
    ) -> list[Receipt]:
        """Erase keys from mirror, changelog, quarantine, branches, tags, history, publications and old snapshots.

        The last receipt is that of this erasure. An interrupted erasure is finished first, and its receipt comes
        before.

        Args:
            name: the table as ``schema.table``.
            keys: the keys, each with a value for every key column.
            reason: why, for the record.
            landing: rewrite the landing files too.
            moves: whether to erase or keep the keys that rows of these keys moved to or from.

        Raises:
            ConfigurationError: a key does not fit, there is no reason, or ``moves`` must be decided.
            ConflictError: another writer holds the table.
        """
        from lakeward.api.operations import require_keyed, require_reason
        from lakeward.views.erasure import erase

        require_reason(reason)
        require_keyed(self._opened, name)
        with self._opened.leased(name) as context:
            return erase(context, keys, reason, landing=landing, moves=moves)

    @takes(name=TEXT, keys=MAPPINGS, moves=OPTIONAL_TEXT)
    def plan_erasure(
        self, name: str, keys: Sequence[Mapping[str, Any]], *, moves: Literal["erase", "keep"] | None = None
    ) -> Receipt:
        """Return what an erasure would remove from where; nothing is written."""
        from lakeward.api.operations import require_keyed
        from lakeward.views.erasure import plan

        require_keyed(self._opened, name)
        return plan(self._opened.context(name), keys, "", moves=moves)

    @takes(name=TEXT, reason=TEXT)
    def apply_column_policy(self, name: str, *, reason: str) -> list[Receipt]:
        """Replace the stored values of columns whose rule is new, wherever :meth:`erase` removes rows; permanently.

        The last receipt is that of this erasure. An interrupted one is finished first, and its receipt comes before.

        Args:
            name: the table as ``schema.table``.
            reason: why, for the record.

        Raises:
            ConfigurationError: every stored value follows its rule, or a rule cannot be applied to what is stored.
            ConflictError: another writer holds the table.
        """
        from lakeward.api.operations import require_reason
        from lakeward.views.value_erasure import apply_column_policy

        require_reason(reason)
        with self._opened.leased(name) as context:
            return apply_column_policy(context, reason)

    @takes(name=TEXT)
    def plan_column_policy(self, name: str) -> Receipt:
        """Return which stored values a new column policy would replace, and where; nothing is written."""
        from lakeward.views.value_erasure import plan_column_policy

        return plan_column_policy(self._opened.context(name))

    @takes(name=TEXT)
    def resume_erasure(self, name: str) -> list[Receipt]:
        """Finish an interrupted erasure and return its receipt; an empty list where there is none."""
        from lakeward.views.erasure import resume

        with self._opened.leased(name) as context:
            return resume(context)

    @former_spellings(plan="plan_maintenance")
    @takes(tables=TEXTS, only=OPTIONAL_TEXT, max_seconds=POSITIVE | NONE, max_bytes=COUNT | NONE, wait=SPAN)
    def maintain(
        self,
        tables: Iterable[str] = (),
        *,
        only: str | None = None,
        max_seconds: float | None = None,
        max_bytes: int | None = None,
        wait: float = 0,
    ) -> MaintenanceReport:
        """Compact mirrors, cluster changelogs, expire snapshots and remove orphan files.

        Args:
            tables: names as ``schema.table``; none: all active ones.
            only: one kind of work: ``compact``, ``cluster``, ``expire`` or ``orphans``.
            max_seconds: start no further slice after this time, over all tables.
            max_bytes: start no further slice after this number of bytes was rewritten, over all tables.
            wait: seconds to wait for a table that another writer holds, before it is skipped and reported.
        """
        from lakeward.api.operations import maintain, work_kinds
        from lakeward.runner.maintain import MaintenanceBudget, MaintenanceRequest

        return maintain(
            self._opened,
            tables,
            MaintenanceRequest(work_kinds(only), wait=wait),
            MaintenanceBudget(max_seconds, max_bytes),
        )

    @takes(tables=TEXTS, only=OPTIONAL_TEXT)
    def plan_maintenance(self, tables: Iterable[str] = (), *, only: str | None = None) -> MaintenanceReport:
        """Return what the first slice of each kind of maintenance would do; nothing is written."""
        from lakeward.api.operations import maintain, work_kinds
        from lakeward.runner.maintain import MaintenanceBudget, MaintenanceRequest

        return maintain(self._opened, tables, MaintenanceRequest(work_kinds(only), dry_run=True), MaintenanceBudget())
