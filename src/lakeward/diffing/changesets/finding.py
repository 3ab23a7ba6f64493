"""Change sets found on disk: all of one and nothing else, or an error that says why not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.diffing.changesets.files import read_rows
from lakeward.diffing.changesets.manifest import read_change_set_manifest
from lakeward.diffing.changesets.recipe import read_recipe
from lakeward.diffing.inputs.folders import Listing, require_one
from lakeward.diffing.options import DiffOptions
from lakeward.diffing.reading_diffs import read_diff
from lakeward.diffing.refusals import input_errors
from lakeward.errors import RefusedInputError
from lakeward.storage.claims import MANIFEST
from lakeward.storage.filesystem import open_filesystem
from lakeward.storage.publish import not_as_written

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from lakeward.config import Config
    from lakeward.diffing.changesets.manifest import ChangeSetManifest
    from lakeward.diffing.reading_diffs import ReadDiff
    from lakeward.storage.filesystem import FileSystem


@dataclass(frozen=True)
class ChangeSet:
    """A change set: where it lies, its rows, and what is known of it; one by the published recipe has no manifest."""

    location: str
    frame: DataFrame
    manifest: ChangeSetManifest | None
    keys: tuple[str, ...]
    options: DiffOptions

    @property
    def label(self) -> str:
        """What it is called in messages."""
        return f"{self.location} ({self.manifest.id})" if self.manifest else self.location

    def read(self) -> ReadDiff:
        """Take its rows apart; a manifest tells the columns, else they are told by their prefixes."""
        if self.manifest is None:
            return read_diff(self.frame, self.keys, self.options)
        known = self.manifest
        return read_diff(self.frame, self.keys, self.options, past=known.past_schema, current=known.current_schema)


def find_change_set(
    spark: SparkSession,
    config: Config,
    location: str,
    *,
    keys: Sequence[str] = (),
    options: DiffOptions | None = None,
    incomplete_ok: bool | None = None,
    past: StructType | None = None,
) -> ChangeSet:
    """Find the change set in a folder and hold its files against its manifest.

    Without a manifest, it is taken for one that the published recipe wrote: files with ``diff``, the keys, and
    ``left_…`` and ``right_…`` for each other column; the keys must be given then, and the options if they were others.
    Such files are Parquet or, where the columns of the ``past`` are given, JSON or CSV.

    Raises:
        RefusedInputError: there is none, or several, or it was not finished, or is not as it was written.
    """
    folder = location.rstrip("/")
    store = open_filesystem(spark, config, folder)
    with input_errors(folder):
        listing = Listing(folder, store.files(folder))
        if not listing.files:
            msg = f"there is no change set at {location}"
            raise RefusedInputError(msg, hint="lakeward diff PAST CURRENT --to PATH   (makes one)")
        require_one(listing, incomplete_ok=incomplete_ok, is_change_set=True)
        if not listing.has(MANIFEST):
            own = options or DiffOptions()
            _require_keys(folder, keys)
            return ChangeSet(folder, read_recipe(spark, store, listing, keys, own, past), None, tuple(keys), own)
        return _by_manifest(spark, store, listing, keys)


def _by_manifest(spark: SparkSession, store: FileSystem, listing: Listing, keys: Sequence[str]) -> ChangeSet:
    folder = listing.location
    manifest = read_change_set_manifest(store.read_text(f"{folder}/{MANIFEST}") or "", folder)
    _require_files(folder, manifest.files, listing.files)
    if keys and tuple(keys) != manifest.keys:
        msg = f"{folder}: its keys are {', '.join(manifest.keys)}, not {', '.join(keys)}"
        raise RefusedInputError(msg, hint="leave out --keys: the manifest has them")
    frame = read_rows(spark, store, folder, manifest.files, manifest.schema, manifest.format)
    return ChangeSet(folder, frame, manifest, manifest.keys, manifest.options)


def _require_files(folder: str, expected: Mapping[str, int], present: Mapping[str, int]) -> None:
    if wrong := not_as_written(expected, present):
        msg = f"{folder}: {wrong}"
        raise RefusedInputError(msg, hint="make the change set again: lakeward diff … --to PATH")


def _require_keys(folder: str, keys: Sequence[str]) -> None:
    if not keys:
        msg = f"{folder} has no {MANIFEST}, so that it is not known what identifies a row"
        raise RefusedInputError(msg, hint="--keys COLUMN,COLUMN   (for a change set that the published recipe wrote)")
