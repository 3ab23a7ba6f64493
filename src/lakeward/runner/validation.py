"""Checks a table's settings against its files: before it is activated, by `tables check` and `doctor`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from shlex import quote
from typing import TYPE_CHECKING

from lakeward.column_policy import as_stored, of_files
from lakeward.columns import describe_problems, name_problems, renames_for
from lakeward.config.policy import policy_of, rules_of
from lakeward.documents import Document
from lakeward.errors import ConfigurationError, LakewardError, SchemaError
from lakeward.formats.base import FileSummary, ReadSpec
from lakeward.formats.dms.listing import UnknownFile, UnreadFile, list_folder, table_folder, unread_file
from lakeward.formats.dms.sniffing import peek
from lakeward.mirror.op.adopted import adopted_columns, adoption_problem, lake_beside, list_lake, outdated_files_hint
from lakeward.mirror.op.policy import unknown_rules
from lakeward.mirror.op.reading import check_keys, check_keys_with_spark, describe_keys
from lakeward.mirror.op.schema import known_columns, with_file_columns
from lakeward.mirror.op.settings import nearest, settings_problems
from lakeward.model import FileClass
from lakeward.storage.landing import with_lake
from lakeward.text import count

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from pyspark.sql import SparkSession

    from lakeward.columns import Column
    from lakeward.config import Config
    from lakeward.config.tables import AdoptSettings
    from lakeward.formats.dms.sniffing import Peek
    from lakeward.mirror.op.adopted import LakeFiles
    from lakeward.model import LandingFile
    from lakeward.runner.tables import KnownTable
    from lakeward.storage.landing import Landing


@dataclass(frozen=True)
class Sample:
    """A table's load parts, and the files to check: the smallest of each kind and the newest change file.

    ``unknown`` is the number of files whose names fit no rule, ``first_unknown`` one of them with the reason.
    """

    loads: tuple[LandingFile, ...] = ()
    looked_at: tuple[LandingFile, ...] = ()
    unknown: int = 0
    first_unknown: UnreadFile | None = None

    @property
    def load_bytes(self) -> int:
        """Size of the load."""
        return sum(part.identity.size for part in self.loads)


def take_sample(storage: Landing, known: KnownTable) -> Sample:
    """Return a sample of the table's files, from one walk that keeps only load parts in memory.

    Small files are chosen because a file is fetched completely; empty ones are not, as they may have no columns.
    """
    loads: list[LandingFile] = []
    smallest: LandingFile | None = None
    newest: LandingFile | None = None
    unknown, first_unknown = 0, None
    for file in list_folder(storage, table_folder(known.table, known.settings), known.settings):
        if isinstance(file, UnknownFile):
            unknown, first_unknown = unknown + 1, first_unknown or unread_file(file, known.settings)
        elif file.file_class is FileClass.LOAD:
            loads.append(file)
        elif file.identity.size:
            smallest = file if smallest is None or file.identity.size < smallest.identity.size else smallest
            newest = file if newest is None or file.order > newest.order else newest
    filled = [part for part in loads if part.identity.size]
    first = min(filled, key=lambda part: (part.identity.size, part.path)) if filled else None
    chosen = dict.fromkeys(file for file in (first, smallest, newest) if file is not None)
    parts = tuple(sorted(loads, key=lambda part: part.order))
    return Sample(parts, tuple(chosen), unknown, first_unknown)


# A load up to this size is read in this process, a larger one by Spark.
LOCAL_BYTES = 64 << 20
_OPTIONS = {
    "primary_key": "--primary-key COLUMN",
    "partition_by": "--partition-by FIELD",
    "columns": "--column NAME=RULE",
    "hash_key": "--set hash_key=env:NAME",
    "schema": "--set schema='id int, name string, …'",
}


class Severity(StrEnum):
    """The severity of a finding: an error would stop the table or lose rows, a warning needs judgement."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True)
class Finding(Document):
    """A problem of a table. ``setting`` is the setting to change, or ``files`` if the files are wrong."""

    table: str
    severity: Severity
    setting: str
    message: str
    hint: str | None = None

    @property
    def is_error(self) -> bool:
        """Whether the table must not be activated as it is."""
        return self.severity is Severity.ERROR


class SettingsCheck:
    """The check of one table's settings against its files.

    ``spark`` starts Spark for a large load; without it the keys of such a load are not checked, with a warning.
    """

    def __init__(
        self,
        known: KnownTable,
        config: Config,
        storage: Landing,
        *,
        check_data: bool = True,
        spark: Callable[[], SparkSession] | None = None,
    ) -> None:
        self._known = known
        self._table, self._settings = known.table, known.settings
        self._config = config
        self._storage = with_lake(config, storage, known.settings)
        self._check_data = check_data
        self._spark = spark

    def findings(self) -> list[Finding]:
        """Return all problems, errors first."""
        found: list[Finding] = []
        try:
            # Findings before an exception are kept.
            found.extend(self._check())
        except SchemaError as error:
            found.append(self._error("schema", error.message))
        except LakewardError as error:
            found.append(self._error("files", error.message))
        except Exception as error:  # one table's files must not hide findings of the others
            from lakeward.spark.errors import as_lakeward_error

            found.append(self._error("files", as_lakeward_error(error, str(self._table)).message))
        return sorted(found, key=lambda finding: finding.severity)

    def _check(self) -> Iterator[Finding]:
        if not self._settings.primary_key:
            message = "there is no primary key: the table is insert-only, updates and deletes would be bad rows"
            yield self._warning("primary_key", message)
        if self._settings.snapshots.every is not None and self._settings.timestamp_column is None:
            message = "snapshots on a schedule need timestamp_column: which changes belong to a day is unknown without"
            yield self._error("snapshots", message)
        try:
            policy_of(self._settings)
        except ConfigurationError as error:
            yield self._error("hash_key", error.message)
            return  # without the key nothing can be read
        sample = take_sample(self._storage, self._known)
        yield from self._about_files(sample)
        columns, rules = known_columns(self._table, (), self._settings), rules_of(self._settings)
        in_lake: tuple[Column, ...] = ()
        if self._settings.adopt is not None:
            lake = self._lake(self._settings.adopt)
            if (conflict := adoption_problem(self._settings, lake.partitions if lake else ())) is not None:
                yield self._error(conflict.setting, conflict.message)
                return
            if lake is None:
                where = self._settings.adopt.lake
                yield self._warning(
                    "adopt", f"the lake {where} is not there; a run needs it until the table has a load"
                )
            else:
                sample = replace(sample, loads=lake.files)
                in_lake = adopted_columns(self._table, self._storage, self._settings, lake.files)
                columns = columns or as_stored(of_files(in_lake, rules), rules)
        yield from self._check_columns(sample, columns, in_lake)

    def _check_columns(
        self, sample: Sample, columns: tuple[Column, ...], in_lake: Sequence[Column]
    ) -> Iterator[Finding]:
        """Yield findings on the columns and keys; without known columns those of the files are taken."""
        if not columns:
            rules = rules_of(self._settings)
            first = [peek(self._storage, file, self._spec(())) for file in sample.looked_at]
            typed = next((found.columns for found in first if found.columns and found.has_types), ())
            columns = as_stored(of_files(typed, rules), rules)
            if not columns:
                yield from self._without_columns(first)
                return
        peeks = [peek(self._storage, file, self._spec(columns)) for file in sample.looked_at]
        stops = [self._error("files", f"{found.path}: {found.problem}") for found in peeks if found.problem]
        suggested = list(self._about_looks(peeks))
        yield from (*stops, *suggested)
        if any(finding.is_error for finding in suggested):
            return  # further findings would be made with wrong settings
        columns = with_file_columns(self._table, columns, map(peek_summary, peeks, sample.looked_at), self._settings)
        problems = list(settings_problems(columns, self._settings))
        yield from (self._error(problem.setting, problem.message) for problem in problems)
        yield from self._about_rules(peeks, (*columns, *in_lake))
        yield from self._about_names(columns)
        yield from self._about_renames(columns)
        yield from self._about_changes(peeks, columns)
        if self._check_data and not problems and not stops:
            yield from self._about_keys(sample, columns)

    def _lake(self, adopt: AdoptSettings) -> LakeFiles | None:
        """Return the files of the lake to adopt, None where it is not there."""
        lake = lake_beside(self._storage).lake
        return list_lake(lake, adopt) if lake.exists("") else None

    def _spec(self, columns: Sequence[Column]) -> ReadSpec:
        return ReadSpec(self._table, tuple(columns), self._settings)

    def _about_files(self, sample: Sample) -> Iterator[Finding]:
        if not sample.looked_at and not self._config.transactions:
            folder, landing = table_folder(self._table, self._settings), self._config.landing
            message = f"there is no load or change file in folder {folder} of landing {landing}: nothing can be checked"
            yield self._warning("path", message)
        if (first := sample.first_unknown) is not None:
            many = f"{sample.unknown:,} files such as " if sample.unknown > 1 else ""
            yield self._warning("files", f"{many}{first.path}: nobody reads it; {first.reason}")
        files = self._settings.files
        if files.load is not None and not sample.loads:
            yield self._warning("files.load", f"no file fits the pattern {files.load}")
        if files.changes is not None and not any(file.file_class is FileClass.CHANGES for file in sample.looked_at):
            yield self._warning("files.changes", f"no file with content fits the pattern {files.changes}")

    def _without_columns(self, peeks: Sequence[Peek]) -> Iterator[Finding]:
        problems = [self._error("files", f"{found.path}: {found.problem}") for found in peeks if found.problem]
        yield from problems
        if peeks and not problems:
            message = "there is no schema: CSV files have no types, and types are never guessed"
            yield self._error("schema", message)

    def _about_looks(self, peeks: Sequence[Peek]) -> Iterator[Finding]:
        """Yield the settings that would make the files readable, each once."""
        found = {(tip.setting, tip.value): (file.path, tip) for file in reversed(peeks) for tip in file.suggestions}
        for path, tip in found.values():
            make = self._error if tip.stops else self._warning
            yield make(tip.setting, f"{path}: {tip.message}", tip.value)

    def _about_rules(self, peeks: Sequence[Peek], columns: Sequence[Column]) -> Iterator[Finding]:
        seen = {column.name for found in peeks for column in found.columns or ()}
        names = sorted({*(column.name for column in columns), *seen})
        for name in unknown_rules(names, self._settings):
            message = f"columns: has a rule for {name!r}, which is not a column of the table; {nearest(name, names)}"
            yield self._error("columns", message)

    def _about_names(self, columns: Sequence[Column]) -> Iterator[Finding]:
        if problems := name_problems([column.name for column in columns]):
            message = f"the lake cannot have these columns: {describe_problems(problems)}"
            yield self._error("renames", message, renames_for(problems, self._settings.renames))

    def _about_renames(self, columns: Sequence[Column]) -> Iterator[Finding]:
        names = [column.name for column in columns]
        for old, new in self._settings.renames.items():
            if new not in names:
                message = f"renames calls {old!r} {new!r}, a name that no file or schema has; {nearest(new, names)}"
                yield self._warning("renames", message)

    def _about_changes(self, peeks: Sequence[Peek], columns: Sequence[Column]) -> Iterator[Finding]:
        """Yield findings on the columns that the capture tool adds to change files."""
        settings, explicit = self._settings, self._settings.model_fields_set
        changes = [found for found in peeks if found.has_layout and found.file_class is not FileClass.LOAD]
        for change in changes:
            if settings.timestamp_column and not (change.has_timestamp or change.has_sequence):
                message = (
                    f"{change.path} has no column {settings.timestamp_column!r}, by which changes are to be ordered"
                )
                names = [column.name for column in change.columns or columns]
                yield self._error("timestamp_column", f"{message}; {nearest(settings.timestamp_column, names)}")
            if not change.has_operation:
                message = f"{change.path} has no column {settings.operation_column!r}: every row counts as an insert"
                yield self._warning("operation_column", message)
            if "sequence_column" in explicit and not change.has_sequence:
                yield self._warning("sequence_column", f"{change.path} has no column {settings.sequence_column!r}")
            if explicit & {"before_image_prefix", "before_image_suffix"} and not change.has_before_images:
                pattern = f"{settings.before_image_prefix}…{settings.before_image_suffix}"
                yield self._warning("before_image_prefix", f"{change.path} has no before-image column named {pattern}")

    def _about_keys(self, sample: Sample, columns: Sequence[Column]) -> Iterator[Finding]:
        """Yield findings on the keys of the load."""
        if not self._settings.primary_key or not sample.loads:
            return
        spec = self._spec(columns)
        if sample.load_bytes <= LOCAL_BYTES:
            report = check_keys(self._storage, sample.loads, spec)
        elif self._spark is not None:
            report = check_keys_with_spark(self._spark(), self._storage, sample.loads, spec)
        else:
            yield self._warning("primary_key", f"the load has {sample.load_bytes:,} bytes: its keys were not checked")
            return
        yield from (self._error("files", problem) for problem in report.problems)
        if report.unread:
            unread = count(
                len(report.unread),
                "load part has other columns and was not read",
                "load parts have other columns and were not read",
            )
            message = f"{unread}: {report.unread[0]} …"
            yield self._warning("primary_key", message)
        if report.bad:
            unfit = "does not fit" if report.bad == 1 else "do not fit"
            message = f"{report.bad:,} of {count(report.rows, 'row')} of the load {unfit} the schema"
            yield self._warning("on_bad_row", message)
        if report.repeated:
            keys = count(report.repeated, "key occurs", "keys occur")
            shown = describe_keys(report.examples)
            if self._settings.adopt is not None:
                yield self._about_outdated(sample, report.sharing, f"{keys} more than once in the lake: {shown}")
            else:
                message = f"{keys} more than once in the load, where only the last row would stay: {shown}"
                yield self._error("primary_key", message)
        for name, nulls in report.nulls.items():
            if nulls:
                rows = count(nulls, "row of the load has", "rows of the load have")
                message = f"{rows} NULL in key column {name}; it counts as a value like others"
                yield self._warning("primary_key", message)

    def _about_outdated(self, sample: Sample, sharing: Collection[tuple[str, str]], message: str) -> Finding:
        """Return the finding on keys that several files of the adopted lake hold."""
        written = {file.path: file.identity.mtime_us for file in sample.loads}
        hint = outdated_files_hint(self._table, self._storage, sharing, written)
        return Finding(str(self._table), Severity.ERROR, "adopt", message, hint)

    def _error(self, setting: str, message: str, value: str | None = None) -> Finding:
        return Finding(str(self._table), Severity.ERROR, setting, message, self._remedy(setting, value))

    def _warning(self, setting: str, message: str, value: str | None = None) -> Finding:
        return Finding(str(self._table), Severity.WARNING, setting, message, self._remedy(setting, value))

    def _remedy(self, setting: str, value: str | None) -> str:
        """Return how to change a setting, to ``value`` if that is known."""
        if setting == "files":
            return f"repair or remove the files, then: lakeward tables check {quote(str(self._table))}"
        if self._known.declared and value is None:
            return f"correct tables: {self._table}: {setting}: in lakeward.yaml"
        if self._known.declared:
            outer, _, inner = setting.partition(".")
            written = f"{outer}: {{{inner}: {value}}}" if inner else f"{setting}: {value}"
            return f"set tables: {self._table}: {written} in lakeward.yaml"
        options = _OPTIONS.get(setting, f"--set {setting}=VALUE") if value is None else None
        chosen = options or f"--set {quote(f'{setting}={value}')}"
        return f"lakeward tables set {quote(str(self._table))} {chosen}"


def require_fitting(
    table: KnownTable, findings: Sequence[Finding], *, force: bool, on_finding: Callable[[Finding], None] | None
) -> None:
    """Raise if a table with errors is to be activated, unless forced; warnings are passed to ``on_finding``.

    Raises:
        ConfigurationError: some finding is an error.
    """
    errors = [finding for finding in findings if finding.is_error]
    if errors and not force:
        shown = "".join(f"\n  {error.setting}: {error.message}" for error in errors)
        msg = f"{table.table} was not activated: its settings do not fit its files:{shown}"
        raise ConfigurationError(msg, hint=f"{errors[0].hint}; or --force")
    if on_finding is not None:
        for finding in findings:
            on_finding(finding)


def peek_summary(found: Peek, file: LandingFile) -> FileSummary:
    """Return the result of a peek in the form of a reader's summary."""
    columns = None if found.columns is None else tuple((column.name, column.type) for column in found.columns)
    return FileSummary(
        found.path, found.file_class, file.time, file.identity, "", mismatch=found.mismatch, columns=columns
    )
