"""Versions by date: only the dates whose rows changed are written, the files of all others are shared.

A shared file is linked from an earlier version, or copied within an object store, which has no links. Every version
holds all of its files either way, so that any of them can be dropped, replaced or rebuilt without regard to others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakeward import schemas as S
from lakeward.errors import DataError
from lakeward.mirror.op.steps import Step
from lakeward.storage.checksum import CHECKSUM_VERSION, checksum_form, read_checksum, total
from lakeward.storage.claims import written_files
from lakeward.storage.publish import not_as_written
from lakeward.transforms.columns import column, columns
from lakeward.views.versions.folders import place_of
from lakeward.views.versions.layouts import NO_DATE, require_rows, with_dates, write_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from lakeward.columns import Column
    from lakeward.mirror.op.context import TableContext
    from lakeward.storage.checksum import Checksum
    from lakeward.storage.claims import Claim
    from lakeward.storage.filesystem import FileSystem
    from lakeward.views.versions.layouts import FileShape, VersionTarget
    from lakeward.views.versions.manifest import Manifest

_DATE = f"{S.PREFIX}date"


@dataclass(frozen=True)
class EarlierVersion:
    """A complete version by date, whose files can be shared."""

    folder: str
    manifest: Manifest

    def files_of(self, date: str) -> dict[str, int]:
        """Return the files of one date with their sizes."""
        return {path: size for path, size in self.manifest.files.items() if _date_of(path) == date}


def earlier_versions(
    store: FileSystem, locations: Iterable[str], shape: FileShape, wanted: Sequence[Column]
) -> Iterator[EarlierVersion]:
    """Yield the versions at these locations that can share files: complete, of the same shape and columns.

    A file names its columns: one from before a rename would be read as null, whatever its checksum.
    """
    for location in locations:
        manifest = place_of(store, location).manifest()
        if manifest is None or not manifest.parts or manifest.shape != shape or manifest.columns != tuple(wanted):
            continue
        if not_as_written(manifest.files, store.files(location)) is None:
            yield EarlierVersion(location, manifest)


def write_dates(
    context: TableContext,
    rows: DataFrame,
    target: VersionTarget,
    head: Manifest,
    earlier: Sequence[EarlierVersion],
    claim: Claim,
) -> Manifest:
    """Write the dates whose rows no earlier version has, share the files of all others, and return the manifest."""
    former = target.store.files(target.folder)
    parts, texts = _checksum_by_date(rows, target, {version.manifest.checksum_version for version in earlier})
    shared = {date: source for date in parts if (source := _holder_of(date, texts[date], earlier)) is not None}
    changed = parts.keys() - shared.keys()
    if changed:
        chosen = with_dates(rows, target.shape, target.folder_column).filter(_is_among(target, changed))
        content = write_rows(context, chosen.select(*columns(target.names)), target)
        if content != total(parts[date] for date in changed):
            msg = f"{context.table}: the rows written are not those counted by date; nothing was published"
            raise DataError(msg, hint=f"lakeward run {context.table}")
    fresh = written_files(target.store, target.folder, former)
    context.reached(Step.PUBLISH_DATES)
    whole, files = total(parts.values()), {**fresh, **_share(claim, shared)}
    require_rows(context, target, sorted(files), rows, whole)
    by_date = {date: content.text for date, content in parts.items()}
    return replace(head, rows=whole.rows, content_hash=whole.text, files=files, parts=by_date)


def _checksum_by_date(
    rows: DataFrame, target: VersionTarget, versions: Iterable[int]
) -> tuple[dict[str, Checksum], dict[str, dict[int, str]]]:
    """Return each date's checksum, and its text in the given checksum versions, by the name of the date's folder."""
    dated = with_dates(rows, target.shape, target.folder_column)
    forms = {version: checksum_form(version) for version in {CHECKSUM_VERSION, *versions}}
    wanted = [aggregate for form in forms.values() for aggregate in form.columns(rows.schema, target.names)]
    date = F.coalesce(column(target.folder_column).cast("string"), F.lit(NO_DATE)).alias(_DATE)
    checksums, texts = {}, {}
    for row in dated.groupBy(date).agg(*wanted).toLocalIterator():
        sums = row.asDict()
        checksums[row[_DATE]] = read_checksum(sums)
        texts[row[_DATE]] = {version: form.text(sums) for version, form in forms.items()}
    return checksums, texts


def _holder_of(date: str, texts: Mapping[int, str], earlier: Iterable[EarlierVersion]) -> EarlierVersion | None:
    """Return the first version that has the same rows of a date, None where none has."""
    for version in earlier:
        if version.manifest.parts.get(date) == texts[version.manifest.checksum_version]:
            return version
    return None


def _is_among(target: VersionTarget, dates: Iterable[str]) -> SparkColumn:
    text = F.coalesce(column(target.folder_column).cast("string"), F.lit(NO_DATE))
    return text.isin(sorted(dates))


def _share(claim: Claim, shared: Mapping[str, EarlierVersion]) -> dict[str, int]:
    """Link the files of dates from the versions that hold them; a version in the same folder has them there."""
    files: dict[str, int] = {}
    places: dict[str, str] = {}
    for date, source in shared.items():
        own = source.files_of(date)
        files |= own
        if source.folder != claim.folder:
            places |= {f"{source.folder}/{path}": f"{claim.folder}/{path}" for path in own}
    if places:
        claim.record(path.removeprefix(f"{claim.folder}/") for path in places.values())
        claim.store.link(places)
    return files


def _date_of(path: str) -> str:
    return path.partition("/")[0].rpartition("=")[2]
