"""Who works on an export: one process at a time, and a dead one keeps nobody out."""

from __future__ import annotations

import json
import logging
import threading
import uuid
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

from lakeward.errors import ConfigurationError, ConflictError
from lakeward.lake.writers import Writer
from lakeward.logs import event
from lakeward.reading_back import MALFORMED, json_object

if TYPE_CHECKING:
    from types import TracebackType

    from lakeward.lake.stores import Store

logger = logging.getLogger(__name__)
_NAME = ".export-owner.json"
# A process on another machine is taken for dead when it has not been heard of for so long.
_HEARD_EVERY, _SILENT = 60.0, timedelta(minutes=10)


class Ownership:
    """The right to work on an export, for the time of a ``with`` block.

    The process says every minute that it is alive. On this machine it is asked for by its number instead, so that an
    interrupted export can be gone on with at once.
    """

    def __init__(self, store: Store, root: str) -> None:
        self._store, self._file = store, f"{root}/{_NAME}"
        self._run = uuid.uuid4().hex
        self._over = threading.Event()
        self._teller = threading.Thread(target=self._tell_often, name="lakeward-export-owner", daemon=True)

    def require_free(self) -> None:
        """Refuse while another process is at work.

        Raises:
            ConflictError: naming it.
            ConfigurationError: a file of somebody else has the name of the one that says so.
        """
        found = self._found()
        if found is None or found.get("run") == self._run:
            return
        try:
            writer = Writer.from_document(found)
        except ValueError as error:
            msg = f"{self._file} is not what an export writes there: {error}; it is not replaced"
            raise ConfigurationError(msg, hint="look at it, and move it elsewhere or remove it") from error
        if writer.is_alive(_SILENT):
            msg = f"another export of this table is under way: process {writer.pid} on {writer.host} ({self._file})"
            raise ConflictError(msg, hint="wait for it, or end it; the next one goes on where it stopped")

    def __enter__(self) -> Self:
        self._tell()
        self._teller.start()
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._teller.join()
        if self._is_own():
            folder, _, name = self._file.rpartition("/")
            self._store.remove(folder, [name])

    def require_own(self) -> None:
        """Refuse to publish what another process has taken over.

        Raises:
            ConflictError: one has.
        """
        if not self._is_own():
            msg = f"another process took this export over ({self._file})"
            raise ConflictError(msg, hint="let that one end it")

    def _is_own(self) -> bool:
        return (self._found() or {}).get("run") == self._run

    def _found(self) -> dict[str, Any] | None:
        text = self._store.read_text(self._file)
        if not text:
            return None
        try:
            return json_object(text)
        except MALFORMED:
            return {}  # of somebody else: whoever asks refuses to replace it

    def _tell(self) -> None:
        document = {"run": self._run, **Writer.here().to_document()}
        self._store.write_text(self._file, json.dumps(document) + "\n")

    def _tell_often(self) -> None:
        while not self._over.wait(_HEARD_EVERY):
            try:
                if not self._is_own():
                    return
                self._tell()
            except Exception as error:  # the next minute is another try; until then nobody takes the work over
                logger.warning("cannot tell that this export is alive: %s", error, extra=event("cassandra.export"))
