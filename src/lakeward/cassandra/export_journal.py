"""The journal of an export in progress: its plan, the groups of ranges that were read, and the process that owns it.

Everything is in a hidden folder beside the exports of the table, so that resuming it needs nothing else::

    .export-in-progress/plan.json                    the request, the table's schema, all groups of ranges
    .export-in-progress/group-00012-….parquet, group-00012-….json     a group that was read, and its record

One process works on it at a time, and a dead process blocks no other. A process that was wrongly considered dead may
still write there: names and notes contain the id of their export.
"""

from __future__ import annotations

import json
import logging
import threading
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Self

from lakeward.cassandra.range_files import RangeGroup, ReadGroup, is_group_file
from lakeward.cassandra.read_plan import TokenRange
from lakeward.documents import Document
from lakeward.errors import ConfigurationError, ConflictError, RefusedInputError
from lakeward.logs import event
from lakeward.storage.claims import Writer, remove_files
from lakeward.text import MALFORMED, json_object, refusing_damage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakeward.storage.filesystem import FileSystem

FOLDER = ".export-in-progress"
_PLAN = "plan.json"
# The rows of one export should not be more than a day apart.
_TOO_OLD = timedelta(hours=24)


def now() -> datetime:
    """Return the time by which an export is named."""
    return datetime.now(UTC)


def _token_pairs(groups: Iterable[RangeGroup]) -> list[list[list[int]]]:
    return [[[tokens.start, tokens.end] for tokens in group.ranges] for group in groups]


@dataclass(frozen=True)
class ExportPlan(Document, write={"started": datetime.isoformat, "groups": _token_pairs}):
    """The input of an export; ``wanted`` is the part that must be the same for another process to resume it."""

    id: str
    started: datetime
    wanted: Mapping[str, Any]
    groups: tuple[RangeGroup, ...]

    @classmethod
    def new(cls, wanted: Mapping[str, Any], groups: Sequence[Sequence[TokenRange]]) -> ExportPlan:
        """Begin an export now."""
        export = uuid.uuid4().hex
        return cls(export, now(), wanted, _numbered(export, groups))

    def to_json(self) -> str:
        """Write as JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> ExportPlan:
        """Read what :meth:`to_json` wrote."""
        document = json.loads(text)
        groups = [[TokenRange(start, end) for start, end in group] for group in document["groups"]]
        started = datetime.fromisoformat(document["started"])
        return cls(document["id"], started, document["wanted"], _numbered(document["id"], groups))


def _numbered(export: str, groups: Sequence[Sequence[TokenRange]]) -> tuple[RangeGroup, ...]:
    return tuple(RangeGroup(number, tuple(ranges), export) for number, ranges in enumerate(groups))


class Journal:
    """The folder of an export in progress."""

    def __init__(self, store: FileSystem, root: str) -> None:
        """Take the folder of the table's exports."""
        self.store, self.folder = store, f"{root}/{FOLDER}"

    def plan(self) -> ExportPlan | None:
        """Return the plan of an interrupted export; None where there is none, or it cannot be resumed.

        Raises:
            RefusedInputError: a foreign file is in its place.
        """
        text = self.store.read_text(f"{self.folder}/{_PLAN}")
        if text is None:
            return None
        try:
            return ExportPlan.from_json(text)
        except (KeyError, TypeError):
            # Written by another version: start again.
            return None
        except MALFORMED as error:
            msg = f"{self.folder}/{_PLAN} is not the plan of an export: {error}; it is not replaced"
            raise RefusedInputError(msg, hint="inspect it, and move it elsewhere or remove it") from error

    def begin(self, plan: ExportPlan) -> None:
        """Start a new export and remove what an earlier one left."""
        self.remove()
        self.store.write_text(f"{self.folder}/{_PLAN}", plan.to_json())

    def done(self, plan: ExportPlan) -> dict[int, ReadGroup]:
        """Return the groups that were read, by number; a group whose file has another size does not count."""
        present = self.store.files(self.folder)
        found: dict[int, ReadGroup] = {}
        for group in plan.groups:
            if group.note not in present:
                continue
            note = f"{self.folder}/{group.note}"
            with refusing_damage(note, hint="remove it: its ranges are then read again", kind=RefusedInputError):
                read_group = ReadGroup.from_dict(json_object(self.store.read_text(note) or ""))
            if read_group.export == plan.id and (
                read_group.file is None or present.get(read_group.file) == read_group.bytes
            ):
                found[group.number] = read_group
        return found

    def remove(self) -> None:
        """Remove what exports wrote there; the plan first, so that no partial export is resumed."""
        remove_files(self.store, self.folder, [_PLAN])
        own = [path for path in self.store.files(self.folder) if is_group_file(path)]
        remove_files(self.store, self.folder, own)


def is_too_old(plan: ExportPlan) -> bool:
    """Whether an interrupted export began too long ago to be resumed."""
    return now() - plan.started > _TOO_OLD


def require_same(plan: ExportPlan, wanted: Mapping[str, Any], folder: str) -> None:
    """Refuse to resume an export with other options.

    Raises:
        RefusedInputError: the options differ; the message says which.
    """
    differences = _differences(plan, wanted)
    if differences:
        when = f"{plan.started:%Y-%m-%d %H:%M} UTC"
        msg = f"an interrupted export of {when} is in {folder}, and differs from this one: {differences}"
        hint = "use the same options to resume it, or discard it: lakeward cassandra export … --restart"
        raise RefusedInputError(msg, hint=hint)


def is_outdated(plan: ExportPlan, wanted: Mapping[str, Any]) -> bool:
    """Whether an interrupted export is of the same cluster, but of a table or with options that changed since."""
    return bool(_differences(plan, wanted)) and plan.wanted.get("cluster") == wanted["cluster"]


def _differences(plan: ExportPlan, wanted: Mapping[str, Any]) -> str:
    different = [name for name in wanted if plan.wanted.get(name) != wanted[name]]
    return ", ".join(_difference_text(name, plan.wanted.get(name), wanted[name]) for name in different)


def _difference_text(name: str, then: Any, now: Any) -> str:
    if isinstance(now, dict):
        return f"the {name} of the table has changed since"
    return f"{name} was {json.dumps(then, ensure_ascii=False)}, is now {json.dumps(now, ensure_ascii=False)}"


logger = logging.getLogger(__name__)
_NAME = ".export-owner.json"
# A process on another machine is considered dead when it has not renewed its ownership for so long.
_RENEW_SECONDS, _SILENT = 60.0, timedelta(minutes=10)


class Ownership:
    """The right to work on an export, for the time of a ``with`` block.

    The process renews its ownership every minute. On the same machine its process id is checked instead, so that an
    interrupted export can be resumed immediately.
    """

    def __init__(self, store: FileSystem, root: str) -> None:
        self._store, self._file = store, f"{root}/{_NAME}"
        self._run = uuid.uuid4().hex
        self._over = threading.Event()
        self._renewer = threading.Thread(target=self._renew_regularly, name="lakeward-export-owner", daemon=True)

    def require_free(self) -> None:
        """Refuse while another process is at work.

        Raises:
            ConflictError: another process is; the message says which.
            ConfigurationError: the file of the ownership is a foreign one.
        """
        found = self._found()
        if found is None or found.get("run") == self._run:
            return
        try:
            writer = Writer.from_dict(found)
        except ValueError as error:
            msg = f"{self._file} is not what an export writes there: {error}; it is not replaced"
            raise ConfigurationError(msg, hint="inspect it, and move it elsewhere or remove it") from error
        if writer.is_alive(_SILENT):
            msg = f"another export of this table is under way: process {writer.pid} on {writer.host} ({self._file})"
            raise ConflictError(msg, hint="wait for it, or end it; the next one resumes where it stopped")

    def __enter__(self) -> Self:
        self._renew()
        self._renewer.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._renewer.join()
        if self._is_own():
            folder, _, name = self._file.rpartition("/")
            self._store.remove(folder, [name])

    def require_own(self) -> None:
        """Refuse to publish what another process has taken over.

        Raises:
            ConflictError: another process has taken it over.
        """
        if not self._is_own():
            msg = f"another process has taken over this export ({self._file})"
            raise ConflictError(msg, hint="let that process finish it")

    def _is_own(self) -> bool:
        return (self._found() or {}).get("run") == self._run

    def _found(self) -> dict[str, Any] | None:
        text = self._store.read_text(self._file)
        if not text:
            return None
        try:
            return json_object(text)
        except MALFORMED:
            return {}  # a foreign file: callers refuse to replace it

    def _renew(self) -> None:
        document = {"run": self._run, **Writer.here().to_dict()}
        self._store.write_text(self._file, json.dumps(document) + "\n")

    def _renew_regularly(self) -> None:
        while not self._over.wait(_RENEW_SECONDS):
            try:
                if not self._is_own():
                    return
                self._renew()
            except Exception as error:  # tried again in a minute, before another process may take over
                logger.warning("cannot renew the ownership of this export: %s", error, extra=event("cassandra.export"))
