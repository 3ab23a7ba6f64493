"""The settings of tables: ``defaults:`` and each one's own under ``tables:``."""

from __future__ import annotations

import re
from datetime import date, datetime
from typing import Any, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from lakeward.column_policy import MIN_KEY_BYTES, parse_rule
from lakeward.columns import Column, describe_problems, name_problems, parse_ddl
from lakeward.config.base import ENVIRONMENT_MARK, NameList, OptionalSpan, Settings, Span
from lakeward.errors import ConfigurationError
from lakeward.path_patterns import path_pattern


class MaintenanceSettings(Settings):
    """How much debt a table may have before maintenance starts, and how much maintenance does at a time."""

    deleted_share: float = Field(
        0.2, gt=0, le=1, description="a data file is rewritten when this share of its rows is deleted"
    )
    delete_files: int = Field(20, ge=1, description="delete files that may accumulate before they are merged")
    small_files: int = Field(50, ge=1, description="surplus files that may accumulate before they are merged")
    snapshots: int = Field(100, ge=1, description="snapshots that may accumulate beyond the undo window")
    file_bytes: int = Field(128 << 20, ge=1 << 20, description="size that data files of mirrors are merged up to")
    slice_bytes: int = Field(
        512 << 20, ge=1 << 20, description="bytes that are rewritten at a time: a run that starts meanwhile waits"
    )
    max_seconds: Span = Field(
        60.0, gt=0, description="after this time, maintenance after a run starts no further slice"
    )
    max_bytes: int = Field(
        4 << 30, ge=1, description="after so many rewritten bytes, maintenance after a run starts no further slice"
    )
    orphan_age: Span = Field(
        3 * 86_400.0,
        ge=86_400.0,
        description="files that belong to no snapshot are removed when they are older than this",
    )


BadRowPolicy = Literal["fail", "quarantine"]
KeylessRule = Literal["stop", "quarantine", "inserts"]
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME_OF_DAY = re.compile(r"([01]\d|2[0-3]):[0-5]\d", re.ASCII)
_DAY_OR_TIME = re.compile(r"\d{4}-\d\d-\d\d([T ].+)?", re.ASCII)


class CsvSettings(Settings):
    """How a table's CSV files are written."""

    header: bool = Field(False, description="first record of every file names the columns")
    delimiter: str = Field(",", min_length=1, max_length=1, description="field delimiter")
    quote: str = Field('"', min_length=1, max_length=1, description="quote character, doubled inside quotes")
    null: str | None = Field("NULL", description="unquoted text that means NULL; '' for the empty field")
    unchanged: str | None = Field(None, description="text that means: this column is unchanged")
    binary: Literal["hex", "base64", "utf8"] = Field("hex", description="how binary values are written")
    columns: NameList | None = Field(None, description="exact columns of headerless change files, in order")
    load_columns: NameList | None = Field(None, description="exact columns of headerless load files, in order")


FileOrder = Literal["name", "column", "arrival"]


class FilesSettings(Settings):
    """Which files of a table's folder are read, where they are not named as DMS names them."""

    load: str | None = Field(
        None, description="pattern of load files below the table's folder: part-*.parquet; default LOAD and a counter"
    )
    changes: str | None = Field(
        None, description="pattern of change files: delta_*.csv, **/delta_*.csv; default the times that DMS writes"
    )
    order: FileOrder | None = Field(
        None, description="what orders change files, set together with changes: their names with digits as numbers, "
        "the order column of their rows, or when each was first seen"
    )  # fmt: skip

    @field_validator("load", "changes")
    @classmethod
    def _must_match_files(cls, value: str | None) -> str | None:
        if value is not None:
            path_pattern(value)
        return value

    @model_validator(mode="after")
    def _order_is_decided(self) -> Self:
        if (self.changes is None) != (self.order is None):
            msg = "changes: and order: must be set together: nothing but order: says in which order files are applied"
            raise ValueError(msg)
        return self

    @property
    def records_arrival(self) -> bool:
        """Whether the place of a change file is the number under which it was recorded when it was first seen."""
        return self.order in ("column", "arrival")


_FILE_FORMATS = {"csv": "csv", "parquet": "parquet", "orc": "orc", "json": "json", "jsonl": "json"}
_SINGLE_FILE = re.compile(rf"[^/\\_.][^/\\]*?\.({'|'.join(_FILE_FORMATS)})(\.gz)?")
_PACKED_FORMATS = ("csv", "json")


class PublishSettings(Settings):
    """Plain files refreshed after each run."""

    to: str = Field(description="folder of the files, which are put below it by table")
    format: Literal["parquet", "csv", "json", "orc"] = Field(
        "parquet", description="format of the files; that of the name with single_file"
    )
    layout: Literal["flat", "dated"] = Field("flat", description="dated: one folder per date of date_column")
    date_column: str | None = Field(None, description="date or timestamp column of the dated layout")
    partition_by: NameList = Field((), description="columns whose values name the folders: dept=Toys/, nested in order")
    columns: NameList = Field((), description="columns to publish, in this order; default all")
    single_file: str | None = Field(
        None, description="one file of this name instead of a folder, replaced in one step: final.csv, final.csv.gz"
    )
    header: bool = Field(True, description="whether CSV files begin with the names of the columns")
    registered: bool | str = Field(
        False,
        alias="register",
        description="external table database.table that points to the files, in Glue or a Hive metastore; true: "
        "default.<table>_current",
    )

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _format_of_the_name(cls, value: Any) -> Any:
        """Fill in the format of a single file."""
        if not isinstance(value, dict) or not isinstance(value.get("single_file"), str) or "format" in value:
            return value
        return {**value, "format": _file_format(value["single_file"])}

    @model_validator(mode="after")
    def _dates_need_a_column(self) -> Self:
        if (self.layout == "dated") != (self.date_column is not None):
            msg = "layout: dated and date_column: must be set together"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _must_go_together(self) -> Self:
        if self.partition_by and self.layout == "dated":
            msg = "partition_by: and layout: dated both make the folders: use one of them"
            raise ValueError(msg)
        if self.single_file is not None and (self.partition_by or self.layout == "dated"):
            msg = "single_file: has no folders: leave out partition_by: and layout: dated"
            raise ValueError(msg)
        if self.single_file is not None and self.format != _file_format(self.single_file):
            msg = f"single_file: {self.single_file} does not end as format: {self.format} does"
            raise ValueError(msg)
        if not self.header and self.format != "csv":
            msg = f"header: false is for CSV, and the format is {self.format}"
            raise ValueError(msg)
        return self

    @field_validator("partition_by", "columns")
    @classmethod
    def _names_once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if repeated := sorted({name for name in value if value.count(name) > 1}):
            msg = f"names a column more than once: {', '.join(repeated)}"
            raise ValueError(msg)
        return value


def _file_format(name: str) -> str:
    """Return the format of a single file by the end of its name."""
    found = _SINGLE_FILE.fullmatch(name)
    if found is None or (found[2] and _FILE_FORMATS[found[1]] not in _PACKED_FORMATS):
        msg = (
            f"single_file: {name!r} is not a file name ending in .csv, .csv.gz, .json, .jsonl, .json.gz, .jsonl.gz, "
            ".parquet or .orc; it names a file, not a path, and begins with neither _ nor a dot"
        )
        raise ValueError(msg)
    return _FILE_FORMATS[found[1]]


class AdoptSettings(Settings):
    """A lake of Parquet files that another system wrote: its rows are the table's first load."""

    lake: str = Field(description="folder of the table's Parquet files, with partition folders name=value")
    last_file: str = Field(
        "", description="newest change file that the other system applied, by its path below the table's folder"
    )
    keep_op: bool = Field(False, description="keep the column Op as a column of the mirror")
    partition_types: dict[str, str] = Field(
        {}, description="types of partition columns, which the lake has only as names of folders: {dept: string}"
    )
    empty_partition: Literal["null", "empty"] | None = Field(
        None,
        description="what the folder for NULL and for the empty text means for a text column; the table stops without",
    )
    leave_out: NameList = Field((), description="files of the lake that are not read, by their paths below it")
    listing: str | None = Field(
        None, description="fingerprint of the lake's files: the table stops when they differ from it before its load"
    )


class SnapshotSettings(Settings):
    """Snapshots that runs make on a schedule, and which stay; by default none is made and none is dropped."""

    keep: int | None = Field(
        None,
        ge=1,
        description="snapshots that stay in each folder, and tags, the newest first; with every: of the schedule alone",
    )
    older_than: OptionalSpan = Field(
        None,
        gt=0,
        description="snapshots made longer ago than this are dropped: 30d; with every: of the schedule alone, by the "
        "end of their day or hour",
    )
    every: Literal["day", "hour"] | None = Field(
        None, description="make a snapshot of each past day (in timezone) or hour (in UTC); needs to"
    )
    to: str | None = Field(None, description="folder of the scheduled snapshots: TO/<schema>.<table>/version=<day>/")
    at: str = Field("00:00", description='time in timezone on the following day at which a day is due: "00:30"')
    settle: Span = Field(0.0, description="how long after its end a day or hour is due at the earliest: 30m")
    start: str | None = Field(None, description="day of the first one; default that on which a run first sees every")
    format: Literal["parquet", "csv", "json", "orc"] = Field("parquet", description="format of the files")
    layout: Literal["flat", "dated"] = Field("flat", description="dated: one folder per date of date_column")
    date_column: str | None = Field(None, description="date or timestamp column of the dated layout")
    registered: str | None = Field(
        None,
        alias="register",
        description="external table database.table that points to the newest one; {schema} and {table} are replaced",
    )
    register_all: str | None = Field(
        None, description="external table database.table over all of them, partitioned by version; likewise"
    )
    version_column: str = Field(
        "version", pattern=r"^[A-Za-z_]\w*$", description="partition column of the table over all of them"
    )

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, populate_by_name=True)

    @field_validator("at", mode="before")
    @classmethod
    def _time_of_day(cls, value: Any) -> str:
        """Return a time of day; YAML reads 12:30 without quotes as the number 750."""
        if not isinstance(value, str) or not _TIME_OF_DAY.fullmatch(value):
            msg = f'{value} is not a time of day; expected "00:30", in quotes'
            raise ValueError(msg)
        return value

    @field_validator("start", mode="before")
    @classmethod
    def _day(cls, value: Any) -> str | None:
        """Return a day as text, which YAML reads as a date."""
        if value is None:
            return None
        text = value.isoformat() if isinstance(value, date) else str(value)
        try:
            is_day = bool(_DAY.fullmatch(text)) and bool(date.fromisoformat(text))
        except ValueError:
            is_day = False
        if not is_day:
            msg = f"{text} is not a day; expected 2020-11-14"
            raise ValueError(msg)
        return text

    @field_validator("registered", "register_all")
    @classmethod
    def _table_name(cls, value: str | None) -> str | None:
        """Refuse names whose braces name nothing."""
        left = (value or "").replace("{schema}", "").replace("{table}", "")
        if "{" in left or "}" in left:
            msg = f"{value!r}: only {{schema}} and {{table}} are replaced"
            raise ValueError(msg)
        return value

    @model_validator(mode="after")
    def _schedule_is_complete(self) -> Self:
        if self.every is not None and self.to is None:
            msg = "every: needs to:, the folder of the snapshots"
            raise ValueError(msg)
        if self.every == "hour" and self.at != "00:00":
            msg = "at: is for every: day; with every: hour, settle: sets how long after its end an hour is due"
            raise ValueError(msg)
        if (self.layout == "dated") != (self.date_column is not None):
            msg = "layout: dated and date_column: must be set together"
            raise ValueError(msg)
        if self.registered is not None and self.registered == self.register_all:
            msg = "register: and register_all: name the same table; one points to the newest, the other to all"
            raise ValueError(msg)
        return self


class MetadataColumns(Settings):
    """Columns of the mirror, and of files published from it, that hold where each row comes from; off by default."""

    op: str | None = Field(None, description="name of a column with the operation that wrote the row: I or U")
    commit_time: str | None = Field(None, description="name of a column with the commit time of the row's last change")
    op_number: str | None = Field(None, description="name of a column with the number of the op that wrote the row")
    file: str | None = Field(None, description="name of a column with the landing file of the row's last change")

    @model_validator(mode="after")
    def _names_can_be_columns(self) -> Self:
        names = [*self.names().values()]
        if problems := name_problems(names):
            msg = f"metadata_columns: {describe_problems(problems)}"
            raise ValueError(msg)
        return self

    def names(self) -> dict[str, str]:
        """Return the wanted columns' names by what they hold."""
        wanted = {"op": self.op, "commit_time": self.commit_time, "op_number": self.op_number, "file": self.file}
        return {kind: name for kind, name in wanted.items() if name is not None}

    @property
    def listed(self) -> tuple[str, ...]:
        """The wanted columns' names."""
        return tuple(self.names().values())


class TableDefaults(Settings):
    """Settings that hold for every table unless the table overrides them."""

    on_bad_row: BadRowPolicy = Field("fail", description="a row that does not fit: stop the batch, or set it aside")
    without_key: KeylessRule | None = Field(
        None,
        description="updates and deletes of a table without a key: stop the table, set the rows aside, or take inserts "
        "only and count the others as ignored; by default on_bad_row decides. No effect on tables with a key",
    )
    max_delete_share: float = Field(0.5, ge=0, le=1, description="a batch may delete at most this share of the mirror")
    format_version: Literal[2, 3] = Field(2, description="Iceberg format version of new mirrors")
    timestamp_column: str | None = Field(None, description="commit time column that DMS adds")
    sequence_column: str = Field("AR_H_CHANGE_SEQ", description="change sequence column, used when present")
    transaction_column: str | None = Field(
        None,
        description="column with the id of a change's transaction, where files name columns: it separates commits",
    )
    operation_column: str = Field("Op", description="name of the operation column where files name columns")
    before_image_prefix: str = Field("BI_", description="prefix of before-image columns")
    before_image_suffix: str = Field("", description="suffix of before-image columns")
    before_image_nulls: Literal["unchanged", "value"] | None = Field(
        None,
        description="what NULL in a before image means: as it is now, or NULL; default unchanged, but a table "
        "whose key columns hold NULL stops where it matters",
    )
    key_moves: Literal["set", "single"] | None = Field(
        None,
        description="changes of one commit time that change keys: one commit (set), or each for itself (single); by "
        "default the rows' contents decide, and the table stops where they do not",
    )
    absent_columns: Literal["unchanged", "null"] = Field(
        "unchanged", description="what a column missing from a file means for its rows"
    )
    name_timezone: str = Field("UTC", description="time zone of the times in change file names")
    load_settle: float = Field(0, ge=0, description="seconds without new load parts before a load is taken")
    reload_settle: Span = Field(
        600.0, description="how long load files must stay as they are before a reload is taken: 10m; 0: at once"
    )
    landing_times: Literal["untrusted", "trusted"] = Field(
        "untrusted", description="trusted: only the replication tool writes landing, so modification times are its own"
    )
    landing_retention: OptionalSpan = Field(
        None, gt=0, description="consumed landing files older than this may vanish: 30d; without it none may"
    )
    on_missing_folder: Literal["stop", "truncate"] = Field(
        "stop", description="what it means that all files of a table are gone: an error, or an empty table"
    )
    max_files: int = Field(1000, ge=1, description="change files per batch")
    max_bytes: int = Field(1 << 30, ge=1, description="bytes of change files per batch")
    max_value_bytes: int = Field(64 << 20, ge=1, description="a larger value in a landing file stops the table")
    max_row_bytes: int = Field(128 << 20, ge=1, description="a larger row in a landing file stops the table")
    max_expansion: float = Field(
        200, ge=1, description="a file that unpacks to over 64 MiB and over so many times its size stops the table"
    )
    hash_key: str | None = Field(
        None,
        repr=False,
        description=f"env:NAME, the key of at least {MIN_KEY_BYTES} characters for hashed columns; the same key in all "
        "tables whose hashes are to be joined",
    )
    freshness: OptionalSpan = Field(
        None, gt=0, description="how old a change may be that the mirror lacks, before the table counts as late: 5m"
    )
    priority: int = Field(0, description="tables with a higher number run first")
    time_limit: float | None = Field(
        None, gt=0, description="seconds after which a run begins no further op of the table; an op may take as long"
    )
    rewrite_share: float = Field(0.6, gt=0, description="share of touched rows from which the mirror is rewritten")
    broadcast_keys: int = Field(1_000_000, ge=0, description="touched keys up to which they are sent to every task")
    undo_window: Span = Field(
        7 * 86_400.0, description="how long states of the past are kept, so that an undo can reach them: 7d"
    )
    maintain: Literal["auto", "manual"] = Field(
        "manual", description="auto: after a run that changed the table, maintenance works on debt beyond its limits"
    )
    maintenance: MaintenanceSettings = Field(MaintenanceSettings(), description="limits of debt and of maintenance")
    metadata_columns: MetadataColumns = Field(
        MetadataColumns(),
        description="columns of the mirror that hold where each row comes from: {op: Op, commit_time: committed_at}; a "
        "table that has rows must be built anew to change them",
    )
    snapshots: SnapshotSettings = Field(
        SnapshotSettings(), description="snapshots on a schedule, and which snapshots stay"
    )
    csv: CsvSettings = Field(CsvSettings(), description="how CSV files are written")
    files: FilesSettings = Field(FilesSettings(), description="which files are read")

    @field_validator("hash_key")
    @classmethod
    def _only_named(cls, value: str | None) -> str | None:
        mark, _, name = (value or "").partition(":")
        if value is None or (mark + ":" == ENVIRONMENT_MARK and name.isidentifier()):
            return value
        msg = "must be env:NAME, the name of an environment variable: keys do not belong in the file"
        raise ValueError(msg)


class TableSettings(TableDefaults):
    """One table's settings. An empty body is allowed: no key, insert-only."""

    path: str | None = Field(None, description="folder under landing; default <schema>/<table>")
    primary_key: NameList = Field((), description="key columns; without them the table is insert-only")
    partition_by: NameList = Field((), description="partition of the mirror: dept, days(ts), bucket(16, id) …")
    table_schema: str | None = Field(None, alias="schema", description="columns and types as DDL")
    schema_mode: Literal["strict", "evolve"] | None = Field(
        None, description="strict: any difference stops the table; default strict where schema is declared"
    )
    column_policies: dict[str, str] = Field(
        {},
        alias="columns",
        description="what becomes of a column's values before they are stored, by its name: mask, hash, drop, redact "
        "or truncate(n)",
    )
    renames: dict[str, str] = Field({}, description="column renames as the source made them, old: new")
    null_means_unchanged: NameList = Field((), description="columns whose NULL in an update means: unchanged")
    before_image_columns: NameList | None = Field(
        None,
        description="columns with before images in headerless CSV, in order; default those of the key or all, by count",
    )
    cdc_start: str | None = Field(None, description="day the capture began, or the time, as timezone: counts")
    loaded_by: str | None = Field(
        None, description="day or time by which the load was complete, where its files were copied later"
    )
    publish: PublishSettings | None = Field(None, description="plain files refreshed after each run")
    adopt: AdoptSettings | None = Field(None, description="a lake of another system that takes the place of a load")

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    @field_validator("cdc_start", "loaded_by", mode="before")
    @classmethod
    def _day_or_time(cls, value: Any) -> str | None:
        """Return a day or a time as text; YAML reads 2020-11-13 as a date, and 20201113 as a number."""
        if value is None:
            return None
        text = value.isoformat() if isinstance(value, date) else str(value)
        msg = f"{text} is not a day; expected 2020-11-13, or a time such as 2020-11-13T10:30:00"
        if not _DAY_OR_TIME.fullmatch(text):
            raise ValueError(msg)
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            raise ValueError(msg) from None
        return text if len(text) == len("2020-11-13") else found.isoformat()

    @field_validator("table_schema")
    @classmethod
    def _schema_must_parse(cls, value: str | None) -> str | None:
        if value is not None:
            parse_ddl(value)
        return value

    @field_validator("column_policies")
    @classmethod
    def _rules_must_parse(cls, value: dict[str, str]) -> dict[str, str]:
        try:
            return {name: parse_rule(text).text for name, text in value.items()}
        except ConfigurationError as error:
            raise ValueError(error.message) from None

    @property
    def columns(self) -> tuple[Column, ...] | None:
        """Declared columns; None when they come from the files."""
        return parse_ddl(self.table_schema) if self.table_schema is not None else None

    @property
    def is_strict(self) -> bool:
        """Whether any difference between files and declared schema stops the table."""
        if self.schema_mode is not None:
            return self.schema_mode == "strict"
        return self.table_schema is not None
