"""``lakeward snapshot``: versions of tables as of a moment."""

from __future__ import annotations

from lakeward.cli.options import group
from lakeward.cli.snapshot_create import create
from lakeward.cli.snapshot_drop import drop
from lakeward.cli.snapshot_list import list_versions
from lakeward.cli.snapshot_refresh import refresh


@group("snapshot")
def snapshot() -> None:
    """Keep tables as they were at a moment: as plain files, or as tags of the mirror."""


for _command in (create, list_versions, refresh, drop):
    snapshot.add_command(_command)
