"""Copies of a table's rows, cleaned of erased keys: its history, and the files that were published of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakeward.lake.iceberg.attempt import Attempt, drop_abandoned
from lakeward.lake.iceberg.define import history_of
from lakeward.lake.iceberg.purge import Stored, count_stored, places, purge, stored_rows
from lakeward.pipeline.erased import is_erased_key, note
from lakeward.pipeline.kinds.erase import erasure_of, same_stamps
from lakeward.pipeline.steps import Step
from lakeward.pipeline.workspace import Workspace
from lakeward.snapshots.history.scd2 import shown_names
from lakeward.snapshots.versions.publications import PublicationKind, list_publications, record_publication
from lakeward.snapshots.versions.reading import read_version
from lakeward.snapshots.versions.refreshing import rebuild_publication
from lakeward.storage.filesystem import open_filesystem
from lakeward.transforms.columns import column
from lakeward.transforms.versions import VALID_FROM

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakeward.pipeline.context import TableContext
    from lakeward.pipeline.records import OpRecord
    from lakeward.snapshots.versions.publications import Publication

HISTORY = "history"


def doomed_in_history(context: TableContext, record: OpRecord, stored: DataFrame) -> DataFrame:
    """Give the places of erased keys' versions; those that began after the erasure are of new rows."""
    erasure, key = erasure_of(record), context.settings.primary_key
    since = column(shown_names([one.name for one in context.mirror.columns()])[VALID_FROM])
    is_older = since.isNull() | (F.unix_micros(since) <= F.lit(erasure.at))
    return places(stored.filter(is_erased_key(stored, key, erasure.salt, erasure.hashes) & is_older))


def clean_history(context: TableContext, record: OpRecord) -> None:
    """Take erased keys out of the table's history, where one is kept."""
    history = history_of(context.spark, context.table)
    metadata = drop_abandoned(history)
    head = metadata.head() if metadata else None
    if metadata is None or head is None:
        return
    with Workspace() as workspace:
        doomed = workspace.keep(doomed_in_history(context, record, stored_rows(history, head.id)))
        found = count_stored(doomed)
        if not found.files:
            return
        note(context.changelog, HISTORY, found)
        with Attempt(history, op=record.op, base=head.id) as attempt:
            purge(attempt, doomed, found)
            attempt.stamp(same_stamps(metadata, head))
            attempt.publish(before=context.permission.require)


def published(context: TableContext, record: OpRecord) -> list[Publication]:
    """Give the published files that were made of the table before the erasure; tags are the mirror's own."""
    metadata = context.mirror.metadata()
    files = [one for one in list_publications(metadata) if one.kind is not PublicationKind.TAG]
    there = [one for one in files if open_filesystem(context.spark, context.config, one.location).exists(one.location)]
    return [one for one in there if one.op <= record.op]


def rows_in_publication(context: TableContext, record: OpRecord, publication: Publication) -> Stored:
    """Count rows of erased keys in published files."""
    erasure, key = erasure_of(record), context.settings.primary_key
    rows = read_version(context.spark, context.config, publication.location)
    found = rows.filter(is_erased_key(rows, key, erasure.salt, erasure.hashes))
    by_file = found.groupBy(F.input_file_name().alias("file")).count()
    return sum((Stored(count, 0, (file,)) for file, count in by_file.toLocalIterator()), Stored())


def clean_publications(context: TableContext, record: OpRecord) -> None:
    """Make every published version anew that holds erased rows; the files that held them are gone then."""
    holding = [(one, rows_in_publication(context, record, one)) for one in published(context, record)]
    for publication, found in holding:
        note(context.changelog, f"publication {publication.location}", found)
    for publication, found in holding:
        # Making one copy of the current state anew lets go of the others.
        if found.files and publication.id in {one.id for one in published(context, record)}:
            rebuild_publication(context, publication)
            context.reached(Step.ERASE_REBUILT)
    _count_tags(context)


def _count_tags(context: TableContext) -> None:
    """Let the records of tags that the erasure cleaned say how many rows they have now."""
    metadata = context.mirror.metadata()
    for one in list_publications(metadata):
        head = metadata.head(one.location) if one.kind is PublicationKind.TAG else None
        if head is not None and head.rows != one.rows:
            record_publication(context.mirror, replace(one, rows=head.rows))
