"""Change sets on disk: a folder per minute, complete or not there."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC
from typing import TYPE_CHECKING

from lakeward.diffing.changesets.files import FORMATS, require_writable, write_rows
from lakeward.diffing.changesets.manifest import read_change_set_manifest
from lakeward.diffing.inputs.folders import INCREMENTAL
from lakeward.errors import RefusedInputError
from lakeward.storage.claims import MANIFEST, SUCCESS
from lakeward.storage.publish import publish_folder, require_absent

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from pyspark.sql import DataFrame

    from lakeward.diffing.changesets.manifest import ChangeSetManifest
    from lakeward.storage.claims import Claim
    from lakeward.storage.filesystem import FileSystem


def change_set_folder(to: str, moment: datetime) -> str:
    """Give the folder of the change set of a minute, in UTC."""
    parts = moment.astimezone(UTC).strftime("year=%Y/month=%m/day=%d/hour=%H/minute=%M")
    return f"{to.rstrip('/')}/{INCREMENTAL}/{parts}"


def require_free_minute(store: FileSystem, to: str, moment: datetime) -> None:
    """Refuse the second change set of a minute; to be asked before the work, which may be long.

    Raises:
        RefusedInputError: there is one, the message says which; or files of others are in its place.
    """
    folder = change_set_folder(to, moment)
    text = store.read_text(f"{folder}/{MANIFEST}")
    if text is None or not store.exists(f"{folder}/{SUCCESS}"):
        require_absent(store, folder)
        return
    first = read_change_set_manifest(text, folder)
    msg = f"{folder} holds the change set {first.id} of {first.created} already; a minute has one"
    raise RefusedInputError(msg, hint="the same command a minute later, or with another --to")


def write_change_set(
    frame: DataFrame,
    store: FileSystem,
    to: str,
    manifest: ChangeSetManifest,
    *,
    moment: datetime,
    check: Callable[[], ChangeSetManifest] | None = None,
) -> str:
    """Write the rows of a diff as the change set of a minute and give its folder.

    ``check`` is called when the files are written and before anything is seen: it gives the manifest with what is known
    only then, such as the counts, or raises, and nothing is left.

    Raises:
        RefusedInputError: the minute has a change set already, or the format cannot hold the columns.
    """
    if manifest.format not in FORMATS:
        msg = f"there is no format {manifest.format!r} for change sets; there are {', '.join(FORMATS)}"
        raise RefusedInputError(msg)
    require_writable(frame.schema, manifest.options, manifest.format)
    require_free_minute(store, to, moment)
    folder = change_set_folder(to, moment)

    def write(claim: Claim) -> tuple[str, str]:
        files = write_rows(frame, claim.store, claim.folder, manifest.format, manifest.keys, manifest.options)
        final = check() if check is not None else manifest
        return folder, replace(final, schema=frame.schema, files=files).to_json()

    return publish_folder(store, folder, write)
