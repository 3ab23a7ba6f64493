"""The configuration with which Lakeward reads a simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakeward.datatypes import format_ddl
from lakeward.model import FileClass
from lakeward.testing.simulator.files import SourceFile, column_names, nulls_are_values
from lakeward.testing.simulator.naming import START, TRANSACTION_FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakeward.testing.simulator.options import SimulatorOptions
    from lakeward.testing.simulator.tables import TableSpec

LANDING = "landing"


def configuration_of(tables: Iterable[TableSpec], options: SimulatorOptions) -> dict[str, Any]:
    """Give the configuration of a simulation in the shape of ``lakeward.yaml``."""
    csv: dict[str, Any] = {"header": options.header, "delimiter": options.delimiter, "null": options.null}
    if options.unchanged is not None:
        csv["unchanged"] = options.unchanged
    # Small random tables lose most of their rows in one batch now and then. Modification times are the capture's own.
    defaults: dict[str, Any] = {"max_delete_share": 1.0, "csv": csv, "landing_times": "trusted", "reload_settle": 0}
    # Parts that land late belong to their load also where no key shows it; all times are long past.
    defaults["load_settle"] = 86_400
    if options.bad_rows:
        defaults["on_bad_row"] = "quarantine"
    if options.truncates:
        defaults["on_missing_folder"] = "truncate"
    if options.timestamp_column:
        defaults["timestamp_column"] = options.timestamp_column
    top: dict[str, Any] = {"landing": f"./{LANDING}", "defaults": defaults}
    if options.transactions:
        top["transactions"] = TRANSACTION_FOLDER
    return {**top, "tables": {str(table.id): _table_settings(table, options) for table in tables}}


def _table_settings(table: TableSpec, options: SimulatorOptions) -> dict[str, Any]:
    settings: dict[str, Any] = {"cdc_start": f"{START:%Y-%m-%d}"}
    if table.key:
        settings["primary_key"] = list(table.key)
    if table.nullable_key and options.before_image != "none":
        settings["before_image_nulls"] = "value" if nulls_are_values(table, options) else "unchanged"
    if options.shuffle_keys and table.key:
        settings["key_moves"] = "set"
    if table.null_unchanged:
        settings["null_means_unchanged"] = list(table.null_unchanged)
    if schema_is_declared(options):
        settings["schema"] = format_ddl(table.all_columns)
        if options.add_columns or options.drop_columns:
            settings["schema_mode"] = "evolve"
    if _needs_named_columns(options):
        settings["csv"] = {
            "columns": column_names(_layout_of(table, options, FileClass.CHANGES), table),
            "load_columns": column_names(_layout_of(table, options, FileClass.LOAD), table),
        }
    return settings


def _needs_named_columns(options: SimulatorOptions) -> bool:
    """Whether the number of fields does not tell which they are."""
    headerless = schema_is_declared(options) and not options.header and not options.transactions
    return headerless and (options.change_sequence or not options.op_in_changes)


def schema_is_declared(options: SimulatorOptions) -> bool:
    """Whether files need a declared schema: CSV never tells its types."""
    return options.transactions or options.format != "parquet"


def _layout_of(table: TableSpec, options: SimulatorOptions, file_class: FileClass) -> SourceFile:
    """Give an empty file of a table: it shows which columns its files have."""
    return SourceFile(options, file_class, "", START, "", "csv", table, table.columns)
