"""A lake of Parquet files that another system wrote, as the first load of a table.

Its rows hold the changes of the files that the system applied. Which files these were is known from the name of the
newest one: the system listed the table's folder by key and never looked at names that sort before it. Files that were
given such a name and arrived too late are in no lake: they are named, and the user decides.

Files of the lake are recorded with generation 0, so that they are never taken for files of landing. Nothing in the lake
is changed.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING

import pyarrow as pa

from lakeward.columns import Column
from lakeward.errors import BugError, ConfigurationError, CutError, DataError
from lakeward.formats.base import FileSummary
from lakeward.formats.dms.files import UnusableFileError
from lakeward.formats.dms.folders import folder_texts
from lakeward.formats.dms.listing import classify, file_format, list_files, table_folder
from lakeward.formats.dms.parquet import parquet_columns
from lakeward.mirror.op.changelog import FileRecord, LoadDecision
from lakeward.mirror.op.context import Waiting, Work
from lakeward.mirror.op.loads import dropped_part
from lakeward.mirror.op.places import order_conflict, user_cut
from lakeward.mirror.op.settings import SettingProblem
from lakeward.model import Disposition, FileClass, Generation, LandingFile, OpKind
from lakeward.storage.landing import LandingWithLake, is_hidden_in_lake
from lakeward.text import count, listed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from lakeward.config import TableSettings
    from lakeward.config.tables import AdoptSettings
    from lakeward.mirror.op.context import TableContext
    from lakeward.model import TableId
    from lakeward.storage.landing import Landing

# The generation of the former system's files: before the first one of the mirror.
FORMER = 0
LAST_FILE, USER = "last file", "user"
_SUFFIX, _FOLDER_MARK = ".parquet", "_$folder$"
# The former system lists only names that begin with this: those of the years 2000 to 2999.
_LISTED = "2"
_DIGITS = 20
_SHOWN = 5


# --- the files of the lake ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LakeFiles:
    """The files of a table's adopted lake, those that are left out, and the columns that only its folders hold."""

    files: tuple[LandingFile, ...]
    left_out: tuple[LandingFile, ...]
    partitions: tuple[str, ...]
    fingerprint: str

    @property
    def size(self) -> int:
        """Their size in bytes."""
        return sum(file.identity.size for file in self.files)


def list_lake(lake: Landing, adopt: AdoptSettings) -> LakeFiles:
    """Return the files of a lake.

    Raises:
        DataError: it has none, or others than Parquet files, or folders that are not its partitions.
        ConfigurationError: ``leave_out`` names a file that is not there.
    """
    files, strange = [], []
    for stored in lake.walk("", is_hidden_in_lake):
        if stored.path.endswith(_FOLDER_MARK):
            continue
        if not stored.path.endswith(_SUFFIX):
            strange.append(stored.path)
            continue
        location = lake.location(stored.path)
        files.append((stored.path, LandingFile(location, location, FileClass.LOAD, "", stored.identity)))
    if strange:
        msg = f"the lake {lake.root} holds files that are not Parquet files: {listed(strange, most=_SHOWN)}"
        raise DataError(msg, hint="name the folder of a single table's Parquet files")
    if not files:
        msg = f"the lake {lake.root} holds no Parquet file"
        raise DataError(msg, hint="check the path; a table that was never loaded is loaded from its load files")
    _require_present(lake, adopt, {path for path, _ in files})
    partitions = _partitions(lake, [path for path, _ in files])
    kept = tuple(file for path, file in files if path not in adopt.leave_out)
    left_out = tuple(file for path, file in files if path in adopt.leave_out)
    return LakeFiles(kept, left_out, partitions, _fingerprint([file for _, file in files]))


def _require_present(lake: Landing, adopt: AdoptSettings, paths: set[str]) -> None:
    if missing := [path for path in adopt.leave_out if path not in paths]:
        msg = f"adopt.leave_out names {listed(missing)}, which the lake {lake.root} does not hold"
        raise ConfigurationError(msg, hint="name files by their paths below the lake")


def _partitions(lake: Landing, paths: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of the lake's folders; files at different depths would lack some of them."""
    found: dict[tuple[str, ...], str] = {}
    for path in paths:
        try:
            found.setdefault(tuple(folder_texts(path)), path)
        except UnusableFileError as error:
            msg = f"{lake.location(path)} cannot be used: {error}"
            raise DataError(msg, hint="name the folder of a single table, above its partition folders") from error
    if len(found) > 1:
        shown = "; ".join(f"{path} by ({', '.join(names)})" for names, path in list(found.items())[:_SHOWN])
        msg = f"the files of the lake {lake.root} are partitioned in different ways: {shown}"
        raise DataError(msg, hint="leave the files of one way out by adopt.leave_out, or load the table again")
    return next(iter(found))


def _fingerprint(files: Sequence[LandingFile]) -> str:
    """Return a text that differs when a file was added, removed or written again."""
    digest = blake2b(digest_size=8)
    for file in sorted(files, key=lambda file: file.path):
        known = file.identity.etag or file.identity.mtime_us
        digest.update(f"{file.path}\n{file.identity.size}\n{known}\n".encode("utf-8", "surrogateescape"))
    return f"{count(len(files), 'file')}, {digest.hexdigest()}"


# --- the change files that the former system applied ----------------------------------------------------------------


@dataclass(frozen=True)
class FormerFiles:
    """The change files of a table's folder, by what the former system did with them.

    ``contained`` were applied by it. ``unread`` sort after its newest file. ``late`` sort before that file, but arrived
    after a file that sorts after them: the system may have missed them. ``unlisted`` have names that it never lists.
    From ``cut`` on, a 20 digit time, change files are applied on top of the lake; empty: all of them.
    """

    contained: tuple[LandingFile, ...] = ()
    unread: tuple[LandingFile, ...] = ()
    late: tuple[LandingFile, ...] = ()
    unlisted: tuple[LandingFile, ...] = ()
    cut: str = ""

    @property
    def doubtful(self) -> tuple[LandingFile, ...]:
        """The files that the former system may not have read, although they sort before its newest one."""
        return tuple(sorted((*self.late, *self.unlisted), key=lambda file: file.order))

    @property
    def all(self) -> tuple[LandingFile, ...]:
        """All change files."""
        return (*self.contained, *self.unread, *self.unlisted)

    def read_again(self, cut: str) -> list[LandingFile]:
        """Return the files that the lake contains and that are applied once more with a cut."""
        missed = {file.path for file in self.late}
        return [file for file in self.contained if file.time >= cut and file.path not in missed]


def former_files(files: Iterable[LandingFile], folder: str, settings: TableSettings) -> FormerFiles:
    """Divide a table's change files by the newest one that the former system applied.

    It listed keys that begin with the folder and a 2, in the order of their UTF-8 bytes, starting after that file. The
    late files among ``contained`` are those that a listing may have passed over.
    """
    last = (settings.adopt.last_file if settings.adopt is not None else "").encode()
    contained: list[tuple[bytes, LandingFile]] = []
    unread, unlisted = [], []
    for file in files:
        name = file.path.removeprefix(f"{folder}/")
        if not name.startswith(_LISTED):
            unlisted.append(file)
        elif name.encode("utf-8", "surrogateescape") > last:
            unread.append(file)
        else:
            contained.append((name.encode("utf-8", "surrogateescape"), file))
    contained.sort(key=lambda pair: pair[0])
    applied = tuple(file for _, file in contained)
    cut = _cut(applied, unread, settings)
    return FormerFiles(applied, tuple(unread), _late(applied), tuple(unlisted), cut)


def _late(contained: Sequence[LandingFile]) -> tuple[LandingFile, ...]:
    """Return the files that were written after one that sorts after them."""
    late: list[LandingFile] = []
    earliest: int | None = None
    for file in reversed(contained):
        written = file.identity.mtime_us
        if earliest is not None and earliest < written:
            late.append(file)
        earliest = written if earliest is None else min(earliest, written)
    return tuple(reversed(late))


def _cut(contained: Sequence[LandingFile], unread: Sequence[LandingFile], settings: TableSettings) -> str:
    """Return the time just after the newest contained file, or that of the first unread one if that is earlier."""
    last = classify(settings.adopt.last_file if settings.adopt is not None else "", settings.name_timezone)
    times = [file.time for file in contained] + ([last.time] if last is not None else [])
    if not times:
        return ""
    after = str(int(max(times)) + 1).zfill(_DIGITS)
    return min([after, *(file.time for file in unread)])


# --- columns --------------------------------------------------------------------------------------------------------


def lake_beside(storage: Landing) -> LandingWithLake:
    """Return the storage of a table that has a lake to adopt."""
    if not isinstance(storage, LandingWithLake):
        msg = f"{storage.root} was opened without the lake beside it"
        raise BugError(msg)
    return storage


def adopted_columns(
    table: TableId, storage: Landing, settings: TableSettings, files: Sequence[LandingFile]
) -> tuple[Column, ...]:
    """Return the columns of a lake's files, then those that only its folders hold, as they are before any rule.

    Raises:
        ConfigurationError: nothing shows the type of a folder's column.
        DataError: the first file is not a Parquet file.
    """
    first = min(files, key=lambda file: (file.identity.size, file.path))
    own = _footer(storage, first, settings)
    names = [
        settings.renames.get(name, name) for name in folder_texts(lake_beside(storage).below_lake(first.path) or "")
    ]
    wanted = [name for name in names if name not in {column.name for column in own}]
    keep = settings.adopt is not None and settings.adopt.keep_op
    operation = (Column(settings.operation_column, "string"),) if keep else ()
    return (*operation, *own, *_folder_columns(table, storage, settings, wanted))


def _folder_columns(table: TableId, storage: Landing, settings: TableSettings, names: Sequence[str]) -> list[Column]:
    """Return the columns of folders with the types that are declared, or that change files have."""
    declared = dict(settings.adopt.partition_types) if settings.adopt is not None else {}
    types = {column.name: column.type for column in settings.columns or ()} | declared
    if any(name not in types for name in names):
        types = {column.name: column.type for column in _change_columns(storage, table, settings)} | types
    if unknown := [name for name in names if name not in types]:
        name = unknown[0]
        msg = (
            f"{table}: the lake holds {', '.join(unknown)} only in the names of its folders, as text, and no Parquet "
            "change file in landing shows the type of the source's column"
        )
        settled = shlex.quote(f"adopt.partition_types={{{name}: string}}")
        hint = f"lakeward tables set {shlex.quote(str(table))} --set {settled}   (or int, date, … as the source has it)"
        raise ConfigurationError(msg, hint=hint)
    return [Column(name, types[name]) for name in names]


def _change_columns(storage: Landing, table: TableId, settings: TableSettings) -> tuple[Column, ...]:
    """Return the columns of the newest Parquet change file in landing, none where there is no such file."""
    files = list_files(storage, table_folder(table, settings), settings)
    changes = (file for file in files if file.file_class is FileClass.CHANGES and file_format(file.path) == "parquet")
    newest = max(changes, key=lambda file: file.order, default=None)
    return _footer(storage, newest, settings) if newest is not None else ()


def _footer(storage: Landing, file: LandingFile, settings: TableSettings) -> tuple[Column, ...]:
    try:
        with storage.spool(file.path) as (local_path, _):
            return parquet_columns(local_path, settings)
    except (UnusableFileError, OSError, pa.ArrowException) as error:
        msg = f"{file.location} cannot be used: {error}"
        raise DataError(msg, hint="repair or remove it") from error


def adoption_problem(settings: TableSettings, partitions: Iterable[str]) -> SettingProblem | None:
    """Return the setting that cannot go together with an adopted lake, None where all can.

    ``partitions`` are the columns of the lake's folders. Paths of files are kept as they are: a rule could not keep the
    values in them out of the changelog.
    """
    if conflict := order_conflict(settings):
        return SettingProblem("files.changes", conflict)
    for name in (settings.renames.get(name, name) for name in partitions):
        if name in settings.column_policies:
            message = (
                f"columns: {name} cannot have the rule {settings.column_policies[name]}: the lake in adopt has its "
                "values in the names of its folders, and the changelog keeps the paths of files"
            )
            return SettingProblem("columns", message)
    return None


# --- the op ---------------------------------------------------------------------------------------------------------


def require_adoptable(table: TableId, settings: TableSettings, lake: LakeFiles) -> None:
    """Refuse settings that cannot go together with an adopted lake.

    Raises:
        ConfigurationError: there is such a setting.
    """
    if (problem := adoption_problem(settings, lake.partitions)) is not None:
        msg = f"{table}: {problem.message}"
        raise ConfigurationError(msg, hint=f"lakeward tables show {shlex.quote(str(table))}")


@dataclass
class _Landed:
    """The files of the table's folder in landing."""

    loads: list[LandingFile] = field(default_factory=list)
    changes: list[LandingFile] = field(default_factory=list)


def adoption(context: TableContext, pages: Iterable[Sequence[LandingFile]]) -> Work | Waiting:
    """Return the op that begins the table with the rows of the lake; ``pages`` lists the table's folder in landing.

    Raises:
        CutError: the files do not show which of them the lake contains, or load files are there as well.
        ConfigurationError: another setting cannot go together with the lake.
        DataError: the lake is not as it was when it was decided to adopt it.
    """
    adopt, landed = context.settings.adopt, _Landed()
    assert adopt is not None  # the caller checks it
    if context.options.files:
        return Waiting("the lake to adopt is read by a run without --file")
    if context.config.transactions:
        msg = f"{context.table}: a lake cannot be adopted where changes come in transaction files"
        raise ConfigurationError(msg, hint="load the table again at the source, or leave transactions: out")
    for page in pages:
        for file in page:
            (landed.loads if file.file_class is FileClass.LOAD else landed.changes).append(file)
    lake = list_lake(lake_beside(context.storage).lake, adopt)
    require_adoptable(context.table, context.settings, lake)
    _require_as_listed(context, adopt, lake)
    _require_no_load(context, landed.loads)
    former = former_files(landed.changes, context.folder, context.settings)
    cut = _decided_cut(context, former)
    _require_no_repeats(context, former, cut)
    contained = [file for file in former.all if file.time < cut]
    evidence = USER if context.options.cut is not None else LAST_FILE
    decision = LoadDecision(
        evidence,
        cut=cut,
        before=len(contained),
        after=len(former.all) - len(contained),
        dropped=tuple(file.path for file in (*landed.loads, *lake.left_out)),
    )
    notes = (*map(_contained, contained), *(dropped_part(context, file) for file in landed.loads))
    generation = Generation(FORMER + 1, cut, undecided_from="0" * _DIGITS if cut else "", adopted=True)
    earlier = (Generation(FORMER, unseen=True),) if cut else ()
    return Work(OpKind.LOAD, generation, lake.files, starts=True, notes=notes, earlier=earlier, decision=decision)


def _contained(file: LandingFile) -> FileRecord:
    """Return the record of a change file that is not read, because the lake contains its changes."""
    return FileRecord(FileSummary(file.path, file.file_class, file.time, file.identity, ""), Disposition.CONTAINED)


def _decided_cut(context: TableContext, former: FormerFiles) -> str:
    """Return the cut, unless the former system may have missed files that sort before its newest one."""
    decided = user_cut(context)
    if decided is not None:
        return decided
    if not former.doubtful:
        return former.cut
    table, first = shlex.quote(str(context.table)), former.doubtful[0]
    msg = (
        f"{context.table}: {count(len(former.doubtful), 'change file')} may be missing in the adopted lake: "
        f"{describe_doubtful(former)}. It cannot be known whether the former system read them"
    )
    again = former.read_again(first.time)
    hint = (
        f"read them, and {count(len(again), 'later file')} that the lake contains once more on top, which changes no "
        f"row that is right: lakeward run {table} --cut {_shown(first.time)}; all of them are in the lake: "
        f"lakeward run {table} --cut {_shown(former.cut)}"
    )
    raise CutError(msg, hint=hint)


def describe_doubtful(former: FormerFiles) -> str:
    """Return which files the former system may have missed, and why."""
    reasons = []
    if former.late:
        paths = listed((file.path for file in former.late), most=_SHOWN)
        reasons.append(f"written after files whose names sort after theirs: {paths}")
    if former.unlisted:
        paths = listed((file.path for file in former.unlisted), most=_SHOWN)
        reasons.append(f"named so that it lists them never, which begins with a {_LISTED} alone: {paths}")
    return "; ".join(reasons)


def _shown(digits: str) -> str:
    shown = digits or "19700101" + "0" * (_DIGITS - 8)
    return f"{shown[:8]}-{shown[8:]}"


def _require_as_listed(context: TableContext, adopt: AdoptSettings, lake: LakeFiles) -> None:
    """Refuse a lake that has changed since the newest applied file was noted: its rows may hold later changes."""
    if adopt.listing is None or adopt.listing == lake.fingerprint:
        return
    table = shlex.quote(str(context.table))
    msg = (
        f"{context.table}: the lake {adopt.lake} is not as it was when it was imported: found {lake.fingerprint}, "
        f"expected {adopt.listing}. The former system has written to it, and adopt.last_file may be an older file"
    )
    hint = (
        "stop the former system and import again: lakeward tables import --dynamodb TABLE --lake PATH; or, if only "
        f"files were copied: lakeward tables set {table} --set {shlex.quote(f'adopt.listing={lake.fingerprint}')}"
    )
    raise DataError(msg, hint=hint)


def _require_no_load(context: TableContext, loads: Sequence[LandingFile]) -> None:
    """Refuse to ignore load files in landing, unless the user leaves them out."""
    wanted = [file.path for file in loads if file.path not in context.options.drop_parts]
    if not wanted:
        return
    table = shlex.quote(str(context.table))
    drops = " ".join(f"--drop-part {shlex.quote(path)}" for path in wanted[:_SHOWN])
    msg = (
        f"{context.table}: a lake is to be adopted, and landing holds load files: {listed(wanted, most=_SHOWN)}; it "
        "cannot be known which of them the table begins with"
    )
    hint = (
        f"the load files, with all change files: lakeward tables set {table} --unset adopt; "
        f"the lake: lakeward run {table} {drops}"
    )
    raise CutError(msg, hint=hint)


def _require_no_repeats(context: TableContext, former: FormerFiles, cut: str) -> None:
    """Refuse a cut by which inserts of a table without a key are applied a second time."""
    again = former.read_again(cut)
    if context.settings.primary_key or not again:
        return
    paths = listed((file.path for file in again), most=_SHOWN)
    msg = (
        f"{context.table} has no key, and {count(len(again), 'change file')} that the adopted lake contains would be "
        f"read again, which doubles their inserts: {paths}"
    )
    hint = f"set its key: lakeward tables set {shlex.quote(str(context.table))} --primary-key COLUMN; or another --cut"
    raise DataError(msg, hint=hint)


def outdated_files(sharing: Iterable[tuple[str, str]], written: Mapping[str, int]) -> list[str]:
    """Return the older one of every two files that share keys, by the times at which they were written."""
    pairs = [pair for pair in sharing if pair[0] != pair[1]]
    return sorted({min(pair, key=lambda path: written[path]) for pair in pairs})


def outdated_files_hint(
    table: TableId, storage: Landing, sharing: Collection[tuple[str, str]], written: Mapping[str, int]
) -> str:
    """Return what to do about keys that a lake holds twice; ``sharing`` are the pairs of files that share some."""
    name = shlex.quote(str(table))
    if within := next((first for first, last in sharing if first == last), None):
        return f"{within} repeats keys by itself: is primary_key complete? lakeward tables check {name}"
    below = [storage.below_lake(path) or path for path in outdated_files(sharing, written)]
    setting = shlex.quote(f"adopt.leave_out=[{', '.join(repr(path) for path in below)}]")
    return (
        f"{listed(below)} {'is' if len(below) == 1 else 'are'} older than files that hold the same keys, and probably "
        "should have been removed by the former system once it had written their rows anew; to leave them out: "
        f"lakeward tables set {name} --set {setting}"
    )
