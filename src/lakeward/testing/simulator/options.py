"""The options of a simulation, checked for contradictions, and the configuration to read it with."""

from __future__ import annotations

from dataclasses import dataclass, fields
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

from lakeward.columns import format_ddl
from lakeward.errors import ConfigurationError
from lakeward.model import FileClass
from lakeward.testing.simulator.files import START, TRANSACTION_FOLDER, SourceFile, column_names, nulls_are_values

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakeward.testing.simulator.tables import TableSpec


FileFormat = Literal["csv", "parquet", "mixed"]
BeforeImage = Literal["none", "pk-only", "all"]
Segments = Literal["none", "prefix", "folder"]
DateSequence = Literal["YYYYMMDD", "YYYYMMDDHH", "YYYYMM", "MMYYYYDD", "DDMMYYYY"]
DateDelimiter = Literal["SLASH", "DASH", "UNDERSCORE", "NONE"]

_COUNTS = ("tables", "batches", "stages", "load_parts", "row_group_rows")
_SHARES = ("duplicate", "delay", "reorder", "split", "empty_files", "bad_rows")


@dataclass(frozen=True)
class SimulatorOptions:
    """Options of a simulation; the same options produce the same bytes.

    ``rows`` counts per table, ``changes`` over all tables. ``batches`` is how often the capture flushes its files,
    ``stages`` how often files land. ``overlap`` changes are both in the first load and in change files. The
    misbehaviours ``duplicate``, ``delay``, ``reorder`` and ``split`` are shares of the files they happen to;
    ``bad_rows`` is the share of changes that are followed by a row that no reader can take. ``truncates`` is how often
    a table's folder vanishes between two stages: what lands later is all that the table has.
    """

    seed: int = 0
    tables: int = 3
    rows: int = 100
    changes: int = 1000
    batches: int = 10
    stages: int = 4
    # how files look
    format: FileFormat = "parquet"
    header: bool = False
    gzip: bool = False
    delimiter: str = ","
    null: str = "NULL"
    unchanged: str | None = None
    rfc4180: bool = True
    op_in_load: bool = False
    op_in_changes: bool = True
    timestamp_column: str | None = "cdc_timestamp"
    change_sequence: bool = False
    before_image: BeforeImage = "none"
    row_group_rows: int = 10_000
    # where files are
    date_folders: DateSequence | None = None
    date_delimiter: DateDelimiter = "SLASH"
    segments: Segments = "none"
    load_parts: int = 2
    load_start: int = 1
    odd_widths: bool = False
    transactions: bool = False
    # what tables look like
    composite_keys: bool = True
    nullable_keys: bool = False
    keyless: bool = False
    odd_names: bool = False
    odd_values: bool = True
    # what the source does
    null_updates: bool = True
    null_means_unchanged: bool = False
    key_only_deletes: bool = False
    odd_operations: bool = False
    change_keys: bool = False
    shuffle_keys: bool = False
    add_columns: bool = False
    drop_columns: bool = False
    overlap: int = 0
    reloads: int = 0
    reload_fewer_parts: bool = False
    truncates: int = 0
    # how the delivery misbehaves
    duplicate: float = 0.0
    delay: float = 0.0
    reorder: float = 0.0
    split: float = 0.0
    empty_files: float = 0.0
    late_load: bool = False
    bad_rows: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what no capture can write."""
        problems = [f"{name} must be at least 1" for name in _COUNTS if getattr(self, name) < 1]
        problems += [f"{name} must be between 0 and 1" for name in _SHARES if not 0 <= getattr(self, name) <= 1]
        problems += [f"{name} cannot be simulated: {reason}" for name, reason in contradictions(self)]
        if problems:
            raise ConfigurationError("; ".join(problems))

    @property
    def has_order_column(self) -> bool:
        """Whether changes have a column that orders them beyond their file."""
        return self.change_sequence or self.timestamp_column is not None

    @property
    def changes_are_replayed(self) -> bool:
        """Whether a change may be applied to a state that already holds it.

        A replayed key change must be a full image: the old row it would take omitted columns from is gone.
        """
        return bool(self.overlap or self.reloads or self.duplicate)


_NOTHING: dict[str, Any] = {
    "header": False, "date_folders": None, "timestamp_column": None, "change_sequence": False, "add_columns": False,
    "op_in_changes": True, "change_keys": False, "shuffle_keys": False, "before_image": "none", "unchanged": None,
    "null_means_unchanged": False, "drop_columns": False, "bad_rows": 0.0, "truncates": 0, "segments": "none",
}  # fmt: skip
# Values worth trying for each option of a small simulation.
CHOICES: dict[str, tuple[Any, ...]] = {
    "tables": (1, 2, 3), "rows": (0, 1, 7, 20), "changes": (0, 1, 15, 60), "batches": (1, 3, 6),
    "stages": (1, 2, 4), "format": ("csv", "parquet", "mixed"), "header": (False, True), "gzip": (False, True),
    "delimiter": (",", ";", "|", "\t"), "null": ("NULL", "", "\\N"), "unchanged": (None, "<same>"),
    "rfc4180": (True, False), "op_in_load": (False, True), "op_in_changes": (True, True, True, False),
    "timestamp_column": (None, "cdc_timestamp"), "change_sequence": (False, True),
    "before_image": ("none", "pk-only", "all"), "row_group_rows": (1, 3, 10_000),
    "date_folders": (None, "YYYYMMDD", "YYYYMMDDHH", "YYYYMM", "MMYYYYDD", "DDMMYYYY"),
    "date_delimiter": ("SLASH", "DASH", "UNDERSCORE", "NONE"), "segments": ("none", "prefix", "folder"),
    "load_parts": (1, 2, 5), "load_start": (1, 9, 15), "odd_widths": (False, True),
    "transactions": (False, False, True), "composite_keys": (False, True), "nullable_keys": (False, True),
    "keyless": (False, True), "odd_names": (False, True), "odd_values": (False, True),
    "null_updates": (False, True), "null_means_unchanged": (False, True), "key_only_deletes": (False, True),
    "odd_operations": (False, True), "change_keys": (False, True), "shuffle_keys": (False, True),
    "add_columns": (False, True), "overlap": (0, 5), "reloads": (0, 1, 2), "reload_fewer_parts": (False,),
    "duplicate": (0.0, 0.4),
    "delay": (0.0, 0.4), "reorder": (0.0, 1.0), "split": (0.0, 0.4), "empty_files": (0.0, 0.3),
    "late_load": (False, True), "drop_columns": (False, True), "bad_rows": (0.0, 0.0, 0.2),
}  # fmt: skip


def contradictions(options: SimulatorOptions | SimpleNamespace) -> list[tuple[str, str]]:
    """Return each option that others exclude, with the reason."""
    named_columns = options.format == "parquet" or options.header
    some_csv = options.transactions or options.format != "parquet"
    unmarked = not options.op_in_changes
    plain_transactions = "transaction files (transactions) are plain CSV in one folder without added columns"
    needs_operation = "it needs op_in_changes"
    replayed = options.overlap or options.reloads or options.duplicate
    taken_along = "a key change that occurs twice has nowhere to take the values of a dropped column from (change_keys)"
    untimed = "without a timestamp_column a commit that occurs twice cannot be distinguished from two"
    rules = [
        ("header", options.transactions and options.header, plain_transactions),
        ("date_folders", options.transactions and options.date_folders is not None, plain_transactions),
        ("timestamp_column", options.transactions and options.timestamp_column is not None, plain_transactions),
        ("change_sequence", options.transactions and options.change_sequence, plain_transactions),
        ("add_columns", options.transactions and options.add_columns, plain_transactions),
        ("drop_columns", options.transactions and options.drop_columns, plain_transactions),
        ("op_in_changes", options.transactions and unmarked, plain_transactions),
        ("add_columns", options.add_columns and not named_columns, "CSV without header cannot show a new column"),
        ("drop_columns", options.drop_columns and not named_columns, "CSV without header cannot show a dropped column"),
        ("drop_columns", options.drop_columns and options.change_keys and replayed, taken_along),
        ("bad_rows", options.bad_rows and unmarked, needs_operation),
        ("truncates", options.truncates and options.transactions, "transaction files lie in no folder of a table"),
        ("truncates", options.truncates and options.reloads, "a load after a truncate is not a reload (reloads)"),
        ("segments", options.segments != "none" and options.reloads, "segments of several loads look alike (reloads)"),
        ("before_image", options.before_image != "none" and unmarked, needs_operation),
        ("change_keys", options.change_keys and unmarked, needs_operation),
        ("change_keys", options.change_keys and options.before_image == "none", "it needs a before_image"),
        ("shuffle_keys", options.shuffle_keys and not options.change_keys, "it needs change_keys"),
        (
            "shuffle_keys",
            options.shuffle_keys and options.odd_operations,
            "moved rows need true operations",
        ),
        ("shuffle_keys", options.shuffle_keys and replayed and options.timestamp_column is None, untimed),
        ("unchanged", options.unchanged is not None and not some_csv, "Parquet has no marker"),
        ("unchanged", options.unchanged is not None and unmarked, needs_operation),
        ("null_means_unchanged", options.null_means_unchanged and unmarked, needs_operation),
    ]
    return [(name, reason) for name, broken, reason in rules if broken]


def compatible(choices: dict[str, Any]) -> SimulatorOptions:
    """Return options with these choices, without those that other choices exclude."""
    defaults = {field.name: field.default for field in fields(SimulatorOptions)}
    chosen = SimpleNamespace(**{**defaults, **choices})
    while broken := contradictions(chosen):
        setattr(chosen, broken[0][0], _NOTHING[broken[0][0]])
    return SimulatorOptions(**vars(chosen))


def random_options(seed: int, **fixed: Any) -> SimulatorOptions:
    """Return options of a small simulation by seed; ``fixed`` options are kept unless others exclude them."""
    random = Random(f"options:{seed}")
    choices = {name: random.choice(values) for name, values in CHOICES.items()}
    return compatible({"seed": seed, **choices, **fixed})


LANDING = "landing"


def configuration_of(tables: Iterable[TableSpec], options: SimulatorOptions) -> dict[str, Any]:
    """Return the configuration of a simulation in the shape of ``lakeward.yaml``."""
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
    """Whether the number of fields does not determine their meaning."""
    headerless = schema_is_declared(options) and not options.header and not options.transactions
    return headerless and (options.change_sequence or not options.op_in_changes)


def schema_is_declared(options: SimulatorOptions) -> bool:
    """Whether files need a declared schema, because CSV has no types."""
    return options.transactions or options.format != "parquet"


def _layout_of(table: TableSpec, options: SimulatorOptions, file_class: FileClass) -> SourceFile:
    """Return an empty file of a table: it shows which columns its files have."""
    return SourceFile(options, file_class, "", START, "", "csv", table, table.columns)
