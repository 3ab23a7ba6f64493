"""Which tables there are and how they are set: found, checked, activated, taken over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakeward.api.opened import OpenedLake
from lakeward.arguments import FLAG, MAPPING, NONE, OPTIONAL_TEXT, TEXT, TEXTS, instance, takes
from lakeward.controller import discovery
from lakeward.controller.tables import KnownTable, settings_for
from lakeward.errors import ConfigurationError
from lakeward.model import TableId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lakeward.controller.proposals import Proposal
    from lakeward.controller.takeover import ImportedTable
    from lakeward.controller.validation import Finding
    from lakeward.pipeline.columns_repair import ColumnsRepair

_TABLE = instance("a KnownTable", KnownTable)


class TableRegistry(OpenedLake):
    """The tables of a lake and their settings."""

    @takes(read_transactions=FLAG)
    def discover(self, *, read_transactions: bool = False) -> discovery.Discovery:
        """Register tables found in landing as inactive; say which are new and what was left out.

        Args:
            read_transactions: look into transaction files too, for tables that have no folder.
        """
        discovery.require_landing(self.config, self.storage)
        return discovery.discover(self.config, self.storage, self.state, read_transactions=read_transactions)

    @takes(name=TEXT)
    def propose_settings(self, name: str) -> Proposal:
        """Look at a table's files for a key that is unique in its load and for the commit time's column.

        Args:
            name: the table as ``schema.table``.
        """
        from lakeward.controller.proposals import propose

        return propose(self.storage, self.table(name))

    @takes(tables=TEXTS, check_data=FLAG)
    def check_tables(self, tables: Iterable[str] = (), *, check_data: bool = True) -> list[Finding]:
        """Hold the settings of tables against their files: all known ones, or those named.

        Args:
            tables: names as ``schema.table``.
            check_data: read the loads for keys that come twice; Spark starts where one is large.
        """
        return [one for table in self._named(tables) for one in self._findings(table, check_data=check_data)]

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

        Settings that come with a refused activation are kept, unless the table is active already.

        Args:
            name: the table as ``schema.table``.
            settings: what to set; None goes back to the default.
            active: take part in runs, or no longer.
            force: activate whatever is found.
            check_data: read the load for keys that come twice.
            on_finding: hears what was found before activation.

        Raises:
            ConfigurationError: the table is declared in the configuration file, or a setting does not fit.
        """
        table = TableId.parse(name)
        if settings and table in self.config.declared():
            msg = f"{table} is declared in the configuration file; its settings are changed there"
            raise ConfigurationError(msg, hint=f"edit tables: {table}: in lakeward.yaml")
        before = self.state.find_table(table)
        merged = {**(before.settings if before else {}), **(settings or {})}
        complete = settings_for(self.config, table, {key: one for key, one in merged.items() if one is not None})
        if active:
            from lakeward.controller.validation import require_fitting

            declared = self.config.declared().get(table)
            proposed = KnownTable(table, declared or complete, active=True, declared=declared is not None)
            findings = self._findings(proposed, check_data=check_data)
            try:
                require_fitting(proposed, findings, force=force, on_finding=on_finding)
            except ConfigurationError as refusal:
                raise self._kept(table, settings, refusal, is_active=bool(before and before.active)) from None
        self.state.set_table(table, active=active, settings=dict(settings or {}))
        return self.table(name)

    def _kept(
        self, table: TableId, settings: Mapping[str, Any] | None, refusal: ConfigurationError, *, is_active: bool
    ) -> ConfigurationError:
        """Keep the settings that came with a refused activation: the next command need not repeat them.

        A table that takes part in runs keeps those that it has.
        """
        if not settings:
            return refusal
        if is_active:
            msg = f"{refusal.message}\nit is active already and keeps the settings that it had"
            return ConfigurationError(msg, hint=refusal.hint)
        self.state.set_table(table, settings=dict(settings))
        return ConfigurationError(f"{refusal.message}\nthe settings of this command were kept", hint=refusal.hint)

    @takes(before=_TABLE, after=_TABLE)
    def changed_reading(self, before: KnownTable, after: KnownTable) -> str | None:
        """Say what a change of settings leaves as it is in a table whose files were read before; None: nothing."""
        from lakeward.pipeline.settings import describe_changed_reading, reading_settings

        if not self.state.has_files(after.table):
            return None
        return describe_changed_reading(after.table, reading_settings(before.settings), after.settings)

    @takes(name=TEXT, dry_run=FLAG)
    def repair_table(self, name: str, *, dry_run: bool = False) -> ColumnsRepair:
        """Bring the columns of a table that was run to what its settings say; rows stay as they are.

        Columns get the names that ``renames`` declares, which makes a mirror readable again whose names are not, and
        columns that the settings declare to be the capture's own, a commit time for one, leave the mirror.

        Args:
            name: the table as ``schema.table``.
            dry_run: only say what would be done.

        Raises:
            ConfigurationError: the settings do not say enough, or do not fit the columns that would be left.
            ConflictError: another writer holds the table or was faster.
        """
        from lakeward.pipeline.columns_repair import plan_columns_repair, repair_columns

        bench, known = self._bench(), self.table(name)
        if dry_run:
            return plan_columns_repair(bench.context(known))
        with bench.leased(known) as context:
            return repair_columns(context)

    @takes(dynamodb=TEXT, region=OPTIONAL_TEXT, endpoint=OPTIONAL_TEXT, dry_run=FLAG)
    def import_walkthrough(
        self, dynamodb: str, *, region: str | None = None, endpoint: str | None = None, dry_run: bool = False
    ) -> list[ImportedTable]:
        """Take over the tables of a DMS walkthrough deployment, settings only; say what became of each item."""
        from lakeward.controller.takeover import take_over
        from lakeward.controller.walkthrough_items import scan_items

        items = scan_items(dynamodb, region=region, endpoint=endpoint)
        return list(take_over(items, self.config, self.storage, self.state, dry_run=dry_run))

    def _findings(self, table: KnownTable, *, check_data: bool) -> list[Finding]:
        from lakeward.controller.validation import SettingsCheck

        check = SettingsCheck(table, self.config, self.storage, check_data=check_data, spark=lambda: self.spark)
        return check.findings()
