"""The evidence by which points are judged: what each table read of the transaction files, and what waits for it.

The changelogs' control rows show which files were read and what they held. They are summarised by Spark, so that what
reaches the driver depends on the number of tables and candidates, not on that of files.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakeward import schemas as S
from lakeward.errors import ConfigurationError, LakewardError
from lakeward.iceberg.define import REPAIRED_STAMP
from lakeward.mirror.op.as_of import first_digits
from lakeward.mirror.op.changelog import OpRecord
from lakeward.mirror.op.checkpoints import parse_moment
from lakeward.mirror.op.choose import Scan, choose, pending_changes
from lakeward.mirror.op.context import Waiting, Work
from lakeward.mirror.op.effect import capture
from lakeward.mirror.op.ledger import applied_progress
from lakeward.mirror.op.loads import is_part
from lakeward.model import Disposition, FileClass, OpKind, Place, digits_micros
from lakeward.spark.errors import as_lakeward_error
from lakeward.spark.workspace import Workspace
from lakeward.text import count
from lakeward.transforms.columns import column, columns
from lakeward.transforms.fold import is_standing
from lakeward.views.points.rule import Bar, Candidate, GroupTable, HeldRows, LoadEnd, Prevented, judge, merged

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import Column, Row

    from lakeward.config import Config
    from lakeward.mirror.op.context import TableContext
    from lakeward.mirror.op.effect import Bases
    from lakeward.model import Generation, LandingFile, Progress

_TABLE, _TIME, _FILE, _OWN, _FENCED = (f"{S.PREFIX}{name}" for name in ("table", "time", "path", "own", "fenced"))
_CLASS, _HELD, _BAD, _IGNORED, _FOUND = (f"{S.PREFIX}{name}" for name in ("class", "held", "bad", "ignored", "found"))
_OLDEST, _NEWEST, _TIMED, _FIRST, _LAST = (
    f"{S.PREFIX}{name}" for name in ("oldest", "newest", "timed", "first", "last")
)
_SPAN, _READERS = f"{S.PREFIX}span", f"{S.PREFIX}readers"
_PLACE = "struct<sequence:string,file_time:string,file:string,row:bigint,step:int>"
_RECORD = (
    "disposition string, generation int, file struct<file_class:string,rows:bigint,bad:bigint,ignored:bigint,"
    f"oldest_commit:bigint,newest_commit:bigint,first:{_PLACE},last:{_PLACE}>"
)
_NO_END = Prevented(None, "no transaction file that was read is named so")
_READ = (Disposition.CONSUMED.value, Disposition.EMPTY.value)


@dataclass(frozen=True)
class _Member:
    """A table of the group whose state is known, with its number in the frames."""

    number: int
    context: TableContext
    bases: Bases
    progress: Progress
    generation: Generation

    @property
    def name(self) -> str:
        return str(self.context.table)

    def log(self) -> DataFrame:
        """Return the rows of the changelog that count."""
        assert self.bases.changelog is not None  # a member has been run
        log = self.context.changelog.read(self.bases.changelog.id)
        return log.filter((column(S.OP) <= F.lit(self.progress.op)) & is_standing(self.progress.undone))

    def own(self) -> Column:
        """Return the condition for rows of the newest generation."""
        return column(S.GENERATION) == F.lit(self.generation.number)


@dataclass(frozen=True)
class Evidence:
    """The candidates of a group, ascending, and the tables that no transaction file has ever named."""

    candidates: tuple[Candidate, ...]
    unnamed: tuple[str, ...] = ()


def require_transactions(config: Config) -> None:
    """Refuse a lake whose tables are not read from transaction files.

    Raises:
        ConfigurationError: ``transactions`` is not set.
    """
    if not config.transactions:
        msg = (
            "transactions: is not set: change files of single tables do not show whether a table without new files is "
            "complete, so no moment is known at which several tables show one state of their database"
        )
        hint = (
            "let DMS write transaction files (PreserveTransactions and CdcPath, docs/dms-setup.md) and set "
            "transactions: to their folder; a moment of single tables: lakeward snapshot create --as-of"
        )
        raise ConfigurationError(msg, hint=hint)


def collect(contexts: Sequence[TableContext], *, newest: int, times: Iterable[str] = ()) -> Evidence:
    """Return the newest candidates of the tables, and those at ``times``, each judged.

    All contexts have one Spark session. Nothing is written but the cache of the ledgers.
    """
    require_transactions(contexts[0].config)
    members: list[_Member] = []
    tables: list[GroupTable] = []
    for context in contexts:
        found = _member(context, len(members))
        tables.append(_described(found) if isinstance(found, _Member) else found)
        members += [found] if isinstance(found, _Member) else []
    if not members:
        return Evidence(tuple(judge(sorted(set(times)), tables, {}, declared=False)))
    with Workspace() as workspace:
        files = workspace.keep(reduce(DataFrame.unionAll, [_files(member) for member in members]))
        asked = set(times)
        known = _known_times(files, newest, asked)
        ends = sorted(known | asked)
        facts = _facts(files)
        bars = _unread(files, members)
        held = _held(files, members, ends)
        for member in members:
            own = facts.get(member.number)
            bars.setdefault(member.name, []).extend([*_own_bars(own), *_repaired(member)])
            if own is not None and own[_BAD]:
                bars[member.name] += _not_put_back(member)
                held = _with_rows_put_back(held, member, ends)
    tables = [GroupTable(t.name, t.since, t.load_end, (*t.bars, *bars.get(t.name, ()))) for t in tables]
    declared = contexts[0].config.whole_transactions
    named = {members[number].name for number, own in facts.items() if own[_FOUND]}
    unnamed = tuple(sorted(table.name for table in tables if table.name not in named))
    candidates = [
        candidate if candidate.time in known else replace(candidate, prevented=(_NO_END,))
        for candidate in judge(ends, tables, held, declared=declared)
    ]
    return Evidence(tuple(candidates), unnamed)


def _member(context: TableContext, number: int) -> _Member | GroupTable:
    """Return a table of which something is known, or the reason why nothing is."""
    name = str(context.table)
    try:
        bases = capture(context)
        if bases.changelog is None or not bases.logged:
            return GroupTable(name, bars=(Bar("", "it has not been run yet"),))
        if bases.applied < bases.logged:
            return GroupTable(name, bars=(Bar("", f"op {bases.logged} is being applied, or was interrupted"),))
        progress = applied_progress(context, bases)
        if progress.generation is None:
            return GroupTable(name, bars=(Bar("", "all its ops are undone"),))
        return _Member(number, context, bases, progress, progress.generation)
    except LakewardError as error:
        return GroupTable(name, bars=(Bar("", error.message),))


def _described(member: _Member) -> GroupTable:
    """Return a table's load, and what keeps waiting for it."""
    context, generation = member.context, member.generation
    since = max(generation.began, _captured_from(context))
    end = load_end(context, generation)
    missing = Bar("", "no load of it was read: it may still come (loaded_by declares that there is none to wait for)")
    bars = [missing] if end is None else []
    return GroupTable(member.name, since, end, (*bars, *_waiting(member)))


def load_end(context: TableContext, generation: Generation) -> LoadEnd | None:
    """Return when the newest generation's load ended at the latest, None where it has none."""
    parts = [entry for entry in context.state.load_parts(context.table, generation.number) if is_part(entry)]
    if context.settings.loaded_by is not None:
        declared = parse_moment(context.settings.loaded_by, context.config.timezone)
        # A declaration from before a reload is about the load before it.
        if declared.micros is not None and declared.digits >= generation.began:
            return LoadEnd(declared.micros, "loaded_by", is_declared=True)
    if not parts:
        return LoadEnd(digits_micros(generation.since), "the truncate was noticed then") if generation.emptied else None
    if generation.timed_by_row and generation.load_to is not None:
        return LoadEnd(generation.load_to, "the times in its rows")
    written = max(entry.identity.mtime_us for entry in parts)
    return LoadEnd(written, "its files were written then; loaded_by declares an earlier time if they were only copied")


def _waiting(member: _Member) -> Iterator[Bar]:
    """Yield what waits for a table: what the next run would read, or why that run would stop."""
    try:
        work = choose(member.context, member.progress)
    except Exception as error:
        stopped = as_lakeward_error(error, member.name)
        yield Bar("", f"its next run would stop: {stopped.message}")
        return
    if work is None or (isinstance(work, Work) and work.kind is OpKind.BATCH and not work.files):
        return
    if isinstance(work, Waiting):
        yield Bar("", work.reason)
    elif work.kind is not OpKind.BATCH or work.generation.number != member.generation.number:
        what = "change files from before its load" if work.kind is OpKind.BATCH else f"a {work.kind}"
        yield Bar("", f"{what} waits to be applied: lakeward run {member.name}")
    else:
        pending: Iterable[LandingFile] = work.files
        if not work.is_last:
            pending = (file for _, file in pending_changes(member.context, member.progress, Scan()))
        if own := next((file for file in pending if file.file_class is not FileClass.TRANSACTIONS), None):
            yield _own_folder(own.path)
        yield Bar(work.files[0].time, f"it has not read {work.files[0].path}")


def _own_folder(path: str) -> Bar:
    return Bar(
        "",
        f"it has change files of its own, {path} first: these do not show how they relate to transactions of others",
    )


def _files(member: _Member) -> DataFrame:
    """Return one row for every file that a table has a record of."""
    record = F.from_json(column(S.DETAIL), _RECORD).alias("record")
    rows = member.log().filter(column(S.KIND) == S.KIND_FILE)
    found = rows.select(S.FILE, S.FILE_TIME, S.GENERATION, record)
    detail, generation = F.col("record"), F.coalesce(F.col("record.generation"), column(S.GENERATION))
    is_own, is_read = generation == F.lit(member.generation.number), detail["disposition"].isin(*_READ)
    file = detail["file"]
    good = F.coalesce(file["rows"], F.lit(0)) - F.coalesce(file["bad"], F.lit(0))
    return found.select(
        F.lit(member.number).alias(_TABLE),
        F.coalesce(column(S.FILE_TIME), F.lit("")).alias(_TIME),
        column(S.FILE).alias(_FILE),
        file["file_class"].alias(_CLASS),
        (is_own & is_read).alias(_OWN),
        (detail["disposition"] == Disposition.FENCED.value).alias(_FENCED),
        good.alias(_HELD),
        F.coalesce(file["bad"], F.lit(0)).alias(_BAD),
        F.coalesce(file["ignored"], F.lit(0)).alias(_IGNORED),
        file["oldest_commit"].alias(_OLDEST),
        file["newest_commit"].alias(_NEWEST),
        file["first"].alias(_FIRST),
        file["last"].alias(_LAST),
    )


def _is_transactions() -> Column:
    return column(_CLASS) == F.lit(FileClass.TRANSACTIONS.value)


def _known_times(files: DataFrame, newest: int, asked: set[str]) -> set[str]:
    """Return the newest times in names of transaction files, and those that are asked for, as far as there are such."""
    times = files.filter(_is_transactions()).select(_TIME).distinct()
    last = times.orderBy(column(_TIME).desc_nulls_last()).limit(newest)
    found = last.unionAll(times.filter(column(_TIME).isin(*asked))) if asked else last
    return {row[0] for row in found.collect()}


def _facts(files: DataFrame) -> dict[int, Row]:
    """Return, by table, the first file with ignored rows and of its own folder, and whether it had bad rows."""
    at, own = F.struct(*columns((_TIME, _FILE))), column(_OWN)
    is_changes = column(_CLASS) == F.lit(FileClass.CHANGES.value)
    rows = files.groupBy(_TABLE).agg(
        F.min(F.when(own & (column(_IGNORED) > 0), at)).alias(_IGNORED),
        F.min(F.when(own & is_changes, at)).alias(_CLASS),
        F.coalesce(F.sum(F.when(own, column(_BAD))), F.lit(0)).alias(_BAD),
        F.max(_is_transactions() & ((column(_HELD) > 0) | (column(_BAD) > 0))).alias(_FOUND),
    )
    return {row[_TABLE]: row for row in rows.collect()}


def _own_bars(own: Row | None) -> Iterator[Bar]:
    if own is not None and own[_IGNORED] is not None:
        time, file = own[_IGNORED]
        yield Bar(time, f"updates and deletes of {file} were ignored (without_key: inserts)")
    if own is not None and own[_CLASS] is not None:
        yield _own_folder(own[_CLASS][1])


def _unread(files: DataFrame, members: Sequence[_Member]) -> dict[str, list[Bar]]:
    """Return, by table, the first transaction file that some table has a record of and this one has not read.

    Files that are gone from landing are known from the ledgers of the other tables.
    """
    readers = F.collect_set(F.when(column(_OWN), column(_TABLE))).alias(_READERS)
    fenced = F.collect_set(F.when(column(_FENCED), column(_TABLE))).alias(_FENCED)
    known = files.filter(_is_transactions()).groupBy(_TIME, _FILE).agg(readers, fenced)
    first = [
        F.min(
            F.when(
                ~F.array_contains(column(_READERS), F.lit(member.number))
                & (column(_TIME) >= F.lit(_needed_from(member))),
                F.struct(column(_TIME), column(_FILE), F.array_contains(column(_FENCED), F.lit(member.number))),
            )
        ).alias(f"{S.PREFIX}{member.number}")
        for member in members
    ]
    found = known.agg(*first).collect()[0]
    return {
        member.name: [Bar(time, f"{path} is fenced: an undo left it out" if is_fenced else f"it has not read {path}")]
        for member, missing in zip(members, found, strict=True)
        if missing is not None
        for time, path, is_fenced in [missing]
    }


def _needed_from(member: _Member) -> str:
    """Return the name time from which a table must have read every transaction file.

    Files from before its load are contained in that; those from before its capture began cannot name it.
    """
    return max(member.generation.cut, _captured_from(member.context))


def _captured_from(context: TableContext) -> str:
    start = context.settings.cdc_start
    return first_digits(start, context.config.timezone) if start is not None else ""


def _held(files: DataFrame, members: Sequence[_Member], ends: Sequence[str]) -> dict[tuple[str, int], HeldRows]:
    """Return what each table read between one candidate and the next."""
    is_timed = (column(_HELD) <= 0) | column(_OLDEST).isNotNull()
    own = files.filter(column(_OWN) & _is_transactions()).withColumn(_SPAN, _span(column(_TIME), ends))
    rows = own.groupBy(_TABLE, _SPAN).agg(
        F.min(_OLDEST).alias(_OLDEST),
        F.max(_NEWEST).alias(_NEWEST),
        F.min(is_timed).alias(_TIMED),
        F.min(_FIRST).alias(_FIRST),
        F.max(_LAST).alias(_LAST),
        F.min(F.when(column(_HELD) > 0, column(_TIME))).alias(_TIME),
    )
    return {(members[row[_TABLE]].name, row[_SPAN]): _summary(row) for row in rows.collect()}


def _span(time: Column, ends: Sequence[str]) -> Column:
    """Return the number of the first candidate at or after a time."""
    listed = F.array(*[F.lit(end) for end in ends]) if ends else F.array().cast("array<string>")
    return F.size(F.filter(listed, lambda end: end < time))


def _summary(row: Row) -> HeldRows:
    first, last = (Place(**found.asDict()) if found is not None else None for found in (row[_FIRST], row[_LAST]))
    return HeldRows(row[_OLDEST], row[_NEWEST], bool(row[_TIMED]), first, last, row[_TIME])


def _repaired(member: _Member) -> Iterator[Bar]:
    """Yield a repair from another copy: the moment of that copy is no place between two files."""
    if not member.context.mirror.stamp(REPAIRED_STAMP):
        return
    ops = member.log().filter((column(S.KIND) == S.KIND_CONTROL) & column(S.FILE).isNull() & member.own())
    is_repair = F.get_json_object(column(S.DETAIL), "$.kind") == F.lit(OpKind.REPAIR.value)
    for row in ops.filter(is_repair).select(S.DETAIL).toLocalIterator():
        record = OpRecord.from_json(row[0])
        last = record.progress.last_place
        if last is not None and last.file.endswith(f"~repair-{record.op}"):
            yield Bar("", f"op {record.op} corrected it from another copy, whose moment is not known among the files")


def _bad(member: _Member) -> DataFrame:
    return member.log().filter((column(S.KIND) == S.KIND_BAD) & member.own())


def _not_put_back(member: _Member) -> Iterator[Bar]:
    """Yield the first bad row that was set aside and not put back; dropped ones are not."""
    resolved = member.log().filter((column(S.KIND) == S.KIND_CONTROL) & column(S.FILE).isNotNull() & member.own())
    is_back = F.get_json_object(column(S.DETAIL), "$.resolved") == F.lit("retried")
    back = resolved.filter(is_back).select(S.FILE, S.ROW).distinct()
    at = F.struct(F.coalesce(column(S.FILE_TIME), F.lit("")), column(S.FILE))
    found = _bad(member).join(back, on=[S.FILE, S.ROW], how="left_anti").agg(F.min(at), F.count(F.lit(1))).collect()[0]
    if found[0] is not None:
        rows = count(found[1], "bad row was", "bad rows were")
        time, file = found[0]
        yield Bar(
            time, f"{rows} set aside and not put back, the first in {file}: lakeward quarantine list {member.name}"
        )


def _with_rows_put_back(
    held: dict[tuple[str, int], HeldRows], member: _Member, ends: Sequence[str]
) -> dict[tuple[str, int], HeldRows]:
    """Add the rows that were put back: the summaries of their files lack them."""
    changes = member.log().filter((column(S.KIND) == S.KIND_CHANGE) & member.own())
    back = changes.join(_bad(member).select(S.FILE, S.ROW).distinct(), on=[S.FILE, S.ROW], how="left_semi")
    timed = F.unix_micros(column(S.COMMIT_TIME))
    names = (S.SEQUENCE, S.FILE_TIME, S.FILE, S.ROW, S.STEP)
    place = F.struct(
        *[column(name).alias(field) for name, field in zip(names, Place.__dataclass_fields__, strict=True)]
    )
    of_files = back.filter(F.coalesce(column(S.FILE_TIME), F.lit("")) != "")
    rows = of_files.groupBy(_span(column(S.FILE_TIME), ends).alias(_SPAN)).agg(
        F.min(timed).alias(_OLDEST),
        F.max(timed).alias(_NEWEST),
        F.min(column(S.COMMIT_TIME).isNotNull()).alias(_TIMED),
        F.min(place).alias(_FIRST),
        F.max(place).alias(_LAST),
        F.min(S.FILE_TIME).alias(_TIME),
    )
    found = {(member.name, row[_SPAN]): _summary(row) for row in rows.collect()}
    return {**held, **{key: merged([*([held[key]] if key in held else []), more]) for key, more in found.items()}}
