"""Proof of which files in a folder this program wrote. No other file is ever removed.

There are two proofs. A **claim**, ``_lakeward-writing-<id>.json``, is put into a folder before anything else is written
there. It names the folder, the process and files that are about to be written; the names of all files that Spark writes
under the claim begin with ``part-w<id>-``. Spark 3 cannot be given names: there, in a folder that others can see, only
the files that the claim lists are proven; in a hidden folder that the writer made, files named by Spark are, too.

The **manifest** of a finished folder lists its files with their sizes.
"""

from __future__ import annotations

import json
import os
import re
import socket
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Self

import psutil

from lakeward.documents import Document
from lakeward.errors import ConflictError, RefusedInputError
from lakeward.spark.versions import IS_SPARK_3

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from lakeward.storage.filesystem import FileSystem


@dataclass(frozen=True)
class Writer(Document, renamed={"last_seen": "heard"}, write={"last_seen": datetime.isoformat}):
    """A process that writes, and when it last recorded that it was alive."""

    host: str
    pid: int
    process_started: float
    last_seen: datetime

    @classmethod
    def here(cls) -> Self:
        """Return this process, seen now."""
        return cls(socket.gethostname(), os.getpid(), psutil.Process().create_time(), datetime.now(UTC))

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """Read what :meth:`to_dict` returned.

        Raises:
            ValueError: the document describes no writer.
        """
        try:
            host, pid = str(document["host"]), int(document["pid"])
            last_seen = datetime.fromisoformat(document["heard"])
            if last_seen.tzinfo is None:
                last_seen = last_seen.replace(tzinfo=UTC)
            return cls(host, pid, float(document["process_started"]), last_seen)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            msg = f"not the description of a writer: {error!r}"
            raise ValueError(msg) from error

    def is_alive(self, silent: timedelta) -> bool:
        """Whether the process is alive; one on another machine is assumed dead after it was ``silent`` for so long."""
        if self.host != socket.gethostname():
            return datetime.now(UTC) - self.last_seen < silent
        try:
            # Process ids are reused; the start time distinguishes two processes with the same id.
            return bool(psutil.Process(self.pid).create_time() == self.process_started)
        except (psutil.NoSuchProcess, ValueError, OverflowError):
            return False


MANIFEST = "_manifest.json"
SUCCESS = "_SUCCESS"
STAGING, SET_ASIDE, GONE = ".staging-", ".replaced-", ".dropped-"
_PROGRAM = "lakeward"
_CLAIM = re.compile(r"_lakeward-writing-([0-9a-f]{12})\.json")
_HIDDEN = re.compile(rf"(?:{re.escape(STAGING)}|{re.escape(SET_ASIDE)}|{re.escape(GONE)})(.+)@[0-9a-f]{{12}}")
_SPARK_NAME = re.compile(r"\.?part-\d{5,}-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b.*")
_SIGNED_NAME = re.compile(r"part-w[0-9a-f]{12}-.+")
_DRAFT = re.compile(r"\.(.+)\.[0-9a-f]{12}|(.+)\.draft")
# Where Spark's tasks write first; the end of any job removes all of it, also the files of other jobs.
_SPARK_FOLDER = "_temporary"
# A writer on another machine is assumed to be alive for so long; writing a folder never takes longer.
_OTHERS_LIMIT = timedelta(days=1)
_SHOWN = 5
# Claims that this process is still working on: its other claims were left by work that failed.
_active: set[str] = set()


@dataclass
class Claim:
    """The claim of a writer to the files that it puts into a folder; ``recorded`` are those it names beforehand.

    ``lease`` names the lease that the writer holds, if any: another holder of that lease can rely on the writer being
    gone.
    """

    store: FileSystem
    folder: str
    id: str
    writer: Writer
    recorded: set[str] = field(default_factory=set)
    lease: str = ""

    @property
    def file(self) -> str:
        """The name of the claim's own file."""
        return f"_lakeward-writing-{self.id}.json"

    @property
    def is_alive(self) -> bool:
        """Whether the writer may still be working."""
        if self.id in _active:
            return True
        return self.writer.is_alive(_OTHERS_LIMIT) and not _is_this_process(self.writer)

    def is_dead(self, lease: str = "") -> bool:
        """Whether the writer is certainly gone; ``lease`` names the lease that the caller holds, if any."""
        return not self.is_alive or (lease != "" and self.lease == lease)

    @classmethod
    def begin(
        cls, store: FileSystem, folder: str, *, name: str | None = None, files: Iterable[str] = (), lease: str = ""
    ) -> Claim:
        """Claim a folder under an id (``name``), by default a new one; ``files`` will be written without Spark."""
        claim = cls(store, folder, name or new_id(), Writer.here(), set(files), lease)
        claim.store = store.signed(claim.id)
        _active.add(claim.id)
        try:
            claim._write()
        except BaseException:
            _active.discard(claim.id)
            raise
        return claim

    def record(self, files: Iterable[str]) -> None:
        """Add files that are about to be written without Spark, or under other names than those of Spark."""
        self.recorded |= set(files)
        self._write()

    def owns(self, path: str) -> bool:
        """Whether the writer wrote a file, by its path from the folder."""
        name = path.rpartition("/")[2]
        draft = _DRAFT.fullmatch(name)
        if path in self.recorded or (draft is not None and (draft[1] or draft[2]) in self.recorded):
            return True
        if name.removeprefix(".").startswith(f"part-w{self.id}-"):
            return True
        return IS_SPARK_3 and self.is_own_folder and _SPARK_NAME.fullmatch(name) is not None

    @property
    def is_own_folder(self) -> bool:
        """Whether the folder is a hidden one that this writer made."""
        name = self.folder.rpartition("/")[2]
        return name.startswith(STAGING) and name.endswith(f"@{self.id}")

    def withdraw(self, *, keep: Collection[str] = ()) -> None:
        """Remove what was written, except for ``keep``, and the claim itself."""
        own = [path for path in self.store.files(self.folder) if path not in keep and self.owns(path)]
        remove_files(self.store, self.folder, own)
        # The claim goes last: this may be interrupted, and only the claim proves whose files are left.
        remove_files(self.store, self.folder, [self.file])
        self.release()
        self.store.prune(f"{self.folder}/{_SPARK_FOLDER}")
        if self.is_own_folder:
            self.store.prune(self.folder)

    def release(self) -> None:
        """End the work under the claim; what was written stays."""
        _active.discard(self.id)

    def end(self, folder: str | None = None) -> None:
        """Remove the claim's own file, after the work is done; ``folder`` is the new name of its folder, if any."""
        remove_files(self.store, folder or self.folder, [self.file])
        self.release()

    def _write(self) -> None:
        document = {
            "program": _PROGRAM,
            "id": self.id,
            "folder": _address(self.store, self.folder),
            "files": sorted(self.recorded),
            "lease": self.lease,
            **self.writer.to_dict(),
        }
        self.store.write_text(f"{self.folder}/{self.file}", json.dumps(document, ensure_ascii=False) + "\n")


def remove_files(store: FileSystem, folder: str, paths: Iterable[str]) -> None:
    """Remove files by their paths from a folder, and with the last of them the folder."""
    parent, _, name = folder.rpartition("/")
    store.remove(parent, [f"{name}/{path}" for path in paths])


def new_id() -> str:
    """Return an id for a writer."""
    return uuid.uuid4().hex[:12]


def claims(store: FileSystem, folder: str, present: Iterable[str]) -> list[Claim]:
    """Return the claims in a folder that were made for it; a claim that was copied from elsewhere proves nothing."""
    found = (_read_claim(store, folder, path) for path in sorted(present) if _CLAIM.fullmatch(path))
    return [claim for claim in found if claim is not None]


def is_claim(path: str) -> bool:
    """Whether a file directly in a folder has the name of a claim."""
    return _CLAIM.fullmatch(path) is not None


def _read_claim(store: FileSystem, folder: str, name: str) -> Claim | None:
    try:
        document: Any = json.loads(store.read_text(f"{folder}/{name}") or "")
        if document["program"] != _PROGRAM or f"_lakeward-writing-{document['id']}.json" != name:
            return None
        if _place(document["folder"]) != _place(_address(store, folder)):
            return None
        files = {str(path) for path in document["files"] if is_below(path)}
        writer = Writer.from_dict(document)
        return Claim(store, folder, str(document["id"]), writer, files, str(document["lease"]))
    except (ValueError, KeyError, TypeError):
        return None


def _address(store: FileSystem, folder: str) -> str:
    return store.for_spark(folder).rstrip("/")


def _place(folder: str) -> str:
    """Return the folder that a hidden folder was written for or moved from; any other folder as it is."""
    parent, _, name = folder.rpartition("/")
    hidden = _HIDDEN.fullmatch(name)
    return f"{parent}/{hidden[1]}" if hidden else folder


def _is_this_process(writer: Writer) -> bool:
    here = Writer.here()
    return (writer.host, writer.pid, writer.process_started) == (here.host, here.pid, here.process_started)


def is_below(path: Any) -> bool:
    """Whether a path in a document stays inside its folder."""
    if not isinstance(path, str) or not path or "\\" in path or "\0" in path:
        return False
    parts = path.split("/")
    return not PurePosixPath(path).is_absolute() and not {"", ".", ".."} & set(parts)


def listed_files(text: str | None) -> dict[str, int] | None:
    """Return the files that a manifest of this program lists, with their sizes; None for any other text."""
    try:
        document: Any = json.loads(text or "")
        if not (isinstance(document, dict) and document["id"] and document["lakeward"]):
            return None
        files = {file["path"]: int(file["size"]) for file in document["files"]}
    except (ValueError, KeyError, TypeError):
        return None
    return files if all(map(is_below, files)) else None


def written_files(store: FileSystem, folder: str, before: Collection[str] = ()) -> dict[str, int]:
    """Return the data files added to a folder since ``before``, with sizes; only its own for a signed store."""
    new = {path: size for path, size in store.files(folder).items() if path not in before and not _is_ignored(path)}
    if not store.signature:
        return new
    names = {path: path.rpartition("/")[2] for path in new}
    signed = {path: size for path, size in new.items() if names[path].startswith(f"{store.signature}-")}
    if signed or not IS_SPARK_3:
        return signed
    return {path: size for path, size in new.items() if _SPARK_NAME.fullmatch(names[path])}


def _is_ignored(path: str) -> bool:
    """Whether readers ignore a path; they do not ignore partition folders whose column begins with ``_``."""
    return any(part.startswith((".", "_")) and "=" not in part for part in path.split("/"))


def is_listed(path: str, size: int, files: Mapping[str, int]) -> bool:
    """Whether a file is one that a manifest lists.

    A file of another size is, if only Spark or a writer of this program makes such names: it was damaged later. A file
    with any other name may have been replaced by another program.
    """
    if path not in files:
        return False
    name = path.rpartition("/")[2]
    return files[path] == size or any(pattern.fullmatch(name) for pattern in (_SPARK_NAME, _SIGNED_NAME))


def foreign_files(store: FileSystem, folder: str, manifest: str | None) -> list[str]:
    """Return the files of a folder that neither its manifest nor a claim shows to be this program's."""
    present, files = store.files(folder), listed_files(manifest)
    if files is None:
        return sorted(present)
    own = claims(store, folder, present)
    return sorted(
        path
        for path, size in present.items()
        if path not in (MANIFEST, SUCCESS)
        and not is_listed(path, size, files)
        and not any(path == claim.file or claim.owns(path) for claim in own)
    )


def remove_listed(store: FileSystem, folder: str, manifest: str | None, *, others: Collection[str] = ()) -> list[str]:
    """Remove the files that a folder's manifest lists, and with them the folder; return what is left.

    What is left was written or replaced by another program. ``others`` are files that belong to such a folder without
    being listed. The mark is removed first, so that readers see immediately that the folder is incomplete, and the
    manifest last, so that the remaining files can still be proven to be this program's if this is interrupted.
    """
    files = listed_files(manifest)
    if files is None:
        return sorted(store.files(folder))
    remove_files(store, folder, [SUCCESS])
    for claim in claims(store, folder, store.files(folder)):
        if not claim.is_alive:
            claim.withdraw(keep={*files, *others, MANIFEST})
    present = store.files(folder)
    own = [path for path, size in present.items() if is_listed(path, size, files) or path in others]
    remove_files(store, folder, own)
    remove_files(store, folder, [MANIFEST])
    return sorted(present.keys() - {*own, MANIFEST})


def dead_claims(store: FileSystem, folder: str, present: Iterable[str], *, lease: str = "") -> list[Claim]:
    """Return the claims of a folder, whose writers are all dead; those under the caller's own lease are.

    Raises:
        ConflictError: a writer may be alive.
    """
    found = claims(store, folder, present)
    for claim in found:
        if not claim.is_dead(lease):
            who = f"process {claim.writer.pid} on {claim.writer.host}"
            msg = f"{folder} is being written by {who}, since {claim.writer.last_seen:%Y-%m-%d %H:%M} UTC"
            raise ConflictError(msg, hint="wait for it; if that process is gone, name another folder")
    return found


def require_no_spark_job(folder: str, present: Iterable[str]) -> None:
    """Refuse to write by Spark where another job writes: the end of each job removes the unfinished files of all.

    Raises:
        RefusedInputError: there are files of another job.
    """
    found = [path for path in present if path.split("/")[0] == _SPARK_FOLDER]
    if found:
        msg = f"{folder}/{_SPARK_FOLDER} holds files of another Spark job: {shown(found)}"
        raise RefusedInputError(msg, hint="wait for that job; remove the folder if there is none")


def shown(paths: Collection[str]) -> str:
    """Return some of the paths for a message."""
    found = sorted(paths)
    return ", ".join(found[:_SHOWN]) + (f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else "")
