"""Tables and their settings: found in landing, checked against files, changed, activated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakeward.controller.tables import KnownTable, settings_for
from lakeward.errors import ConfigurationError
from lakeward.model import TableId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lakeward.api.opened import OpenedLake
    from lakeward.controller.validation import Finding
    from lakeward.pipeline.columns_repair import ColumnsRepair

    Settings = Mapping[str, Any]


class TableRegistry:
    """Changes which tables a lake has and how they are set."""

    def __init__(self, lake: OpenedLake) -> None:
        self._lake = lake

    def find(self, name: str) -> KnownTable | None:
        """Return a table by name, None where it is neither declared nor registered."""
        table = TableId.parse(name)
        return next((known for known in self._lake.tables() if known.table == table), None)

    def own_settings(self, name: str) -> dict[str, Any]:
        """Return what was set for a table in the registry, without defaults and the configuration file."""
        registered = self._lake.state.find_table(TableId.parse(name))
        return dict(registered.settings) if registered else {}

    def check(self, known: Iterable[KnownTable], *, check_data: bool) -> list[Finding]:
        """Return what does not fit between tables' settings and their files."""
        from lakeward.controller.validation import SettingsCheck

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
        if active:
            proposed = KnownTable(table, declared or complete, active=True, declared=declared is not None)
            try:
                self._require_fitting(proposed, force=force, check_data=check_data, on_finding=on_finding)
            except ConfigurationError as refusal:
                raise self._kept(table, settings, refusal, is_active=bool(before and before.active)) from None
        lake.state.set_table(table, active=active, settings=dict(settings))

    def changed_reading(self, before: KnownTable, after: KnownTable) -> str | None:
        """Return what a change of settings leaves as it is in a table whose files were read before; None: nothing."""
        from lakeward.pipeline.settings import describe_changed_reading, reading_settings

        if not self._lake.state.has_files(after.table):
            return None
        return describe_changed_reading(after.table, reading_settings(before.settings), after.settings)

    def repair_columns(self, name: str, *, dry_run: bool) -> ColumnsRepair:
        """Bring the columns of a table that was run to what its settings say."""
        from lakeward.pipeline.columns_repair import plan_columns_repair, repair_columns

        if dry_run:
            return plan_columns_repair(self._lake.context(name))
        with self._lake.leased(name) as context:
            return repair_columns(context)

    def rebuild(self) -> list[str]:
        """Fill the state store again from the lake and return the names of the tables found."""
        from lakeward.controller.registry import rebuild_registry
        from lakeward.pipeline.ledger import rebuild

        lake = self._lake
        found = rebuild_registry(lake.spark, lake.config, lake.state)
        for table in found:
            context = lake.context(str(table))
            rebuild(context, context.changelog.require_head().id)
        return [str(table) for table in found]

    def _require_fitting(
        self, known: KnownTable, *, force: bool, check_data: bool, on_finding: Callable[[Finding], None] | None
    ) -> None:
        from lakeward.controller.validation import require_fitting

        require_fitting(known, self.check([known], check_data=check_data), force=force, on_finding=on_finding)

    def _kept(
        self, table: TableId, settings: Settings, refusal: ConfigurationError, *, is_active: bool
    ) -> ConfigurationError:
        """Keep the settings that came with a refused activation: the next command need not repeat them.

        A table that takes part in runs keeps those that it has.
        """
        if not settings:
            return refusal
        if is_active:
            msg = f"{refusal.message}\nit is active already and keeps the settings that it had"
            return ConfigurationError(msg, hint=refusal.hint)
        self._lake.state.set_table(table, settings=dict(settings))
        return ConfigurationError(f"{refusal.message}\nthe settings of this command were kept", hint=refusal.hint)

    def _spark(self) -> Any:
        return self._lake.spark
