"""An opened lake: configuration, landing files, state store, Spark once it is needed; and its tables' registry."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from lakeward.column_policy import hashed_names
from lakeward.config.policy import policy_of
from lakeward.errors import ConfigurationError
from lakeward.model import TableId
from lakeward.runner.tables import KnownTable, find_tables, known_tables, require_table, settings_for
from lakeward.state.base import open_state
from lakeward.storage.landing import open_landing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

    from lakeward.config import Config
    from lakeward.mirror.columns_repair import ColumnsRepair
    from lakeward.mirror.op.context import TableContext
    from lakeward.mirror.op.policy import ChangedRule
    from lakeward.mirror.op.steps import Step
    from lakeward.runner.declaring import TakenProposal
    from lakeward.runner.proposals import Proposal
    from lakeward.runner.validation import Finding
    from lakeward.runner.workbench import Workbench


if TYPE_CHECKING:
    During = Callable[[str], AbstractContextManager[None]]


def silently(_message: str) -> AbstractContextManager[None]:
    """Return a context that announces nothing; the default for ``during``."""
    return nullcontext()


class OpenedLake:
    """The resources that all parts of :class:`lakeward.Lakeward` share."""

    def __init__(
        self,
        config: Config,
        *,
        spark: SparkSession | None = None,
        on_step: Callable[[str, Step], None] | None = None,
        during: During | None = None,
    ) -> None:
        """Open landing and state store; nothing else is started.

        Args:
            config: the configuration.
            spark: a session whose catalog ``lake`` is this lake; without it one is started when needed.
            on_step: called with (table, step) as an op passes its steps.
            during: called with what takes time, such as starting Spark; returns a context manager around it.
        """
        self.config = config
        self.storage = open_landing(config.resolve(config.landing), config.s3, config.landing_symlinks)
        self.state = open_state(config.state, config.base, config.file_access)
        self._spark = spark
        # Temporary tables are useful in a session of the caller, but end with a session that is started here.
        self._is_own_session = spark is None
        self._on_step = on_step
        self._during = during or silently

    def close(self) -> None:
        """Close the state store. The Spark application stays: other lakes may use it."""
        self.state.close()

    @property
    def spark(self) -> SparkSession:
        """The Spark session, started at first use."""
        if self._spark is None:
            from lakeward.session.sessions import open_session

            with self._during("starting Spark"):
                self._spark = open_session(self.config)
        return self._spark

    def has_spark(self) -> bool:
        """Whether the Spark application was started and still runs."""
        from lakeward.session.sessions import is_alive

        return self._spark is not None and is_alive(self._spark)

    def tables(self) -> list[KnownTable]:
        """Return all tables that are declared or registered."""
        return known_tables(self.config, self.state)

    def table(self, name: str) -> KnownTable:
        """Return a table by name.

        Raises:
            ConfigurationError: there is no such table.
        """
        return require_table(self.tables(), TableId.parse(name))

    def named(self, names: Iterable[str]) -> list[KnownTable]:
        """Return the named tables, all known ones when none is named."""
        known = self.tables()
        return [require_table(known, TableId.parse(name)) for name in names] or known

    def active(self, names: Iterable[str]) -> list[KnownTable]:
        """Return the named tables, all active ones when none is named.

        Raises:
            ConfigurationError: a named table is unknown or inactive.
        """
        return find_tables(self.config, self.state, names)

    def workbench(self) -> Workbench:
        """Return the workbench, with which tables are worked on; it starts Spark."""
        from lakeward.runner.workbench import Workbench

        return Workbench(self.config, self.spark, self.storage, self.state, self._on_step, self._is_own_session)

    def context(self, name: str) -> TableContext:
        """Return the context for reading a table."""
        return self.workbench().context(self.table(name))

    def leased(self, name: str) -> AbstractContextManager[TableContext]:
        """Return a context that holds the lease of a table for writing.

        Raises:
            ConflictError: another writer holds it.
        """
        return self.workbench().leased(self.table(name))


if TYPE_CHECKING:
    Settings = Mapping[str, Any]

# Those that make up a table's column policy.
_POLICY_SETTINGS = {"columns", "hash_key"}


class TableRegistry:
    """The tables of a lake and their settings: check, change, activate, repair."""

    def __init__(self, lake: OpenedLake) -> None:
        self._lake = lake

    def find(self, name: str) -> KnownTable | None:
        """Return a table by name, None where it is neither declared nor registered."""
        table = TableId.parse(name)
        return next((known for known in self._lake.tables() if known.table == table), None)

    def own_settings(self, name: str) -> dict[str, Any]:
        """Return the settings of a table in the registry, without defaults and the configuration file."""
        registered = self._lake.state.find_table(TableId.parse(name))
        return dict(registered.settings) if registered else {}

    def check(self, known: Iterable[KnownTable], *, check_data: bool) -> list[Finding]:
        """Return the findings where tables' settings do not fit their files."""
        from lakeward.runner.validation import SettingsCheck

        lake, findings = self._lake, []
        for table in known:
            check = SettingsCheck(table, lake.config, lake.storage, check_data=check_data, spark=self._spark)
            findings += check.findings()
        return findings

    def set(
        self,
        table: TableId,
        settings: Settings,
        *,
        active: bool | None,
        force: bool,
        check_data: bool,
        on_finding: Callable[[Finding], None] | None,
    ) -> None:
        """Change a table's settings or activate it.

        Raises:
            ConfigurationError: the table is declared in the configuration file, or a setting does not fit.
        """
        lake = self._lake
        declared = lake.config.declared().get(table)
        if settings and declared:
            msg = f"{table} is declared in the configuration file; its settings are changed there"
            raise ConfigurationError(msg, hint=f"edit tables: {table}: in lakeward.yaml")
        before = lake.state.find_table(table)
        merged = {**(before.settings if before else {}), **settings}
        complete = settings_for(lake.config, table, {key: value for key, value in merged.items() if value is not None})
        if settings.keys() & _POLICY_SETTINGS:
            self._require_fitting_policy(KnownTable(table, complete, active=False, declared=False))
        if active:
            proposed = KnownTable(table, declared or complete, active=True, declared=declared is not None)
            try:
                self._require_fitting(proposed, force=force, check_data=check_data, on_finding=on_finding)
            except ConfigurationError as refusal:
                raise self._kept(table, settings, refusal, is_active=bool(before and before.active)) from None
        lake.state.set_table(table, active=active, settings=dict(settings))

    def undecided(self) -> list[KnownTable]:
        """Return the tables that discovery registered and that nobody has declared, set or activated since."""
        settings = {registered.table: registered.settings for registered in self._lake.state.registered()}
        return [
            known for known in self._lake.tables() if not (known.declared or known.active or settings.get(known.table))
        ]

    def activate_proposed(self, proposals: Mapping[str, Proposal]) -> list[TakenProposal]:
        """Activate tables as proposed, except those with a doubt; return what became of each."""
        from lakeward.runner.declaring import TakenProposal, why_left

        taken = []
        for name, proposal in proposals.items():
            reason = why_left(proposal)
            if reason is None:
                try:
                    self.set(
                        TableId.parse(name),
                        proposal.settings,
                        active=True,
                        force=False,
                        check_data=True,
                        on_finding=None,
                    )
                except ConfigurationError as refusal:
                    reason = refusal.message
            taken.append(TakenProposal(name, activated=reason is None, reason=reason))
        return taken

    def changed_reading(self, before: KnownTable, after: KnownTable) -> str | None:
        """Return what a change of settings does not change in rows that were read before; None: nothing."""
        from lakeward.mirror.op.settings import describe_changed_reading, describe_ignored, reading_settings

        if not self._lake.state.has_files(after.table):
            return None
        progress = self._lake.state.progress(after.table)
        ignored = progress.rows_ignored if progress else 0
        found = (
            describe_changed_reading(after.table, reading_settings(before.settings), after.settings),
            describe_ignored(after.table, before.settings, after.settings, ignored),
            self._unfollowed_rules(before, after),
        )
        return "\n".join(text for text in found if text) or None

    def _unfollowed_rules(self, before: KnownTable, after: KnownTable) -> str | None:
        """Return that stored values do not follow new rules, and what replaces them."""
        from lakeward.mirror.op.policy import describe_rules, replace_command

        if before.settings.column_policies == after.settings.column_policies:
            return None
        if not (changed := self._replaceable_rules(after)):
            return None
        return (
            f"{after.table}: {describe_rules(changed)}; the rows that are there were stored before, and the table is "
            f"not run until their values are replaced too, permanently: {replace_command(after.table)}"
        )

    def repair_columns(self, name: str, *, dry_run: bool) -> ColumnsRepair:
        """Change the columns of a mirror to those that its settings declare."""
        from lakeward.mirror.columns_repair import plan_columns_repair, repair_columns

        if dry_run:
            return plan_columns_repair(self._lake.context(name))
        with self._lake.leased(name) as context:
            return repair_columns(context)

    def hash_values(self, name: str, column: str, values: Sequence[str]) -> list[str]:
        """Return the hashes of texts as values of a hashed column."""
        import pyarrow as pa

        from lakeward.formats.dms.protection import hashes
        from lakeward.formats.dms.values import parse_text

        known = self._lake.table(name)
        policy = policy_of(known.settings)
        source = self._source_type(known, column) if column in hashed_names(policy.rules) else None
        if source is None or policy.key is None:
            msg = f"{name}: {column} is not a hashed column of the table"
            raise ConfigurationError(msg, hint=f"lakeward tables show {name}")
        cells = parse_text(pa.array(values, pa.string()), source, known.settings.csv.binary)
        if cells.failed is not None and cells.failed.any():
            place = int(cells.failed.argmax()) + 1
            msg = f"{name}: value {place} is not of type {source}, which {column} has at the source"
            raise ConfigurationError(msg)
        return [str(found) for found in hashes(cells.values, policy.key).to_pylist()]

    def _source_type(self, known: KnownTable, column: str) -> str | None:
        """Return the type that a column has at the source: as declared, or as the mirror records it."""
        declared = {found.name: found.type for found in known.settings.columns or ()}
        if column in declared:
            return declared[column]
        metadata = self._lake.context(str(known.table)).mirror.find_metadata()
        return next((found.source for found in metadata.columns() if found.name == column), None) if metadata else None

    def rebuild(self) -> list[str]:
        """Fill the state store again from the lake and return the names of the tables found."""
        from lakeward.mirror.op.ledger import rebuild
        from lakeward.runner.workbench import rebuild_registry

        lake = self._lake
        found = rebuild_registry(lake.spark, lake.config, lake.state)
        for table in found:
            context = lake.context(str(table))
            rebuild(context, context.changelog.require_head().id)
        return [str(table) for table in found]

    def _require_fitting_policy(self, known: KnownTable) -> None:
        """Refuse rules that contradict other settings, or to which the table's stored rows cannot be changed."""
        from lakeward.mirror.op.effect import capture
        from lakeward.mirror.op.policy import rule_conflicts

        if conflict := next(rule_conflicts(known.settings), None):
            msg = f"{known.table}: {conflict}"
            raise ConfigurationError(msg, hint=f"lakeward tables show {known.table}")
        if self._lake.state.has_files(known.table) and not self._replaceable_rules(known):
            capture(self._lake.workbench().context(known))

    def _replaceable_rules(self, known: KnownTable) -> list[ChangedRule]:
        """Return the new rules that the table's stored values do not follow yet, if they can be replaced by all."""
        from lakeward.column_policy import POLICY_PROPERTY, stored_policy
        from lakeward.mirror.op.policy import changed_rules, why_not_replaced

        mirror = self._lake.workbench().context(known).mirror.find_metadata()
        if mirror is None:
            return []
        stored, columns = stored_policy(mirror.property(POLICY_PROPERTY)), mirror.columns()
        changed = changed_rules(known.settings, stored, columns)
        return [] if any(why_not_replaced(rule, known.settings, columns) for rule in changed) else changed

    def _require_fitting(
        self, known: KnownTable, *, force: bool, check_data: bool, on_finding: Callable[[Finding], None] | None
    ) -> None:
        from lakeward.runner.validation import require_fitting

        require_fitting(known, self.check([known], check_data=check_data), force=force, on_finding=on_finding)

    def _kept(
        self, table: TableId, settings: Settings, refusal: ConfigurationError, *, is_active: bool
    ) -> ConfigurationError:
        """Store the settings of a refused activation, so that the next command need not repeat them; return the error.

        An active table keeps its former settings.
        """
        if not settings:
            return refusal
        if is_active:
            msg = f"{refusal.message}\nthe table is active already and keeps its earlier settings"
            return ConfigurationError(msg, hint=refusal.hint)
        self._lake.state.set_table(table, settings=dict(settings))
        return ConfigurationError(f"{refusal.message}\nthe settings of this command were kept", hint=refusal.hint)

    def _spark(self) -> Any:
        return self._lake.spark
