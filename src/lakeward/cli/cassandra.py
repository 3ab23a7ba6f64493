"""``lakeward cassandra``: tables of Cassandra and Amazon Keyspaces, exported, compared and kept current elsewhere."""

from __future__ import annotations

from lakeward.cli.cassandra_apply import apply
from lakeward.cli.cassandra_compare import compare
from lakeward.cli.cassandra_diff import diff
from lakeward.cli.cassandra_export import export
from lakeward.cli.cassandra_import import import_
from lakeward.cli.cassandra_sync import sync
from lakeward.cli.options import group


@group("cassandra")
def cassandra() -> None:
    """Copy tables of Cassandra and Amazon Keyspaces, and keep the copies current.

    A table is [CLUSTER/]KEYSPACE.TABLE, where CLUSTER is one of clusters: in lakeward.yaml. Without a configuration:
    --cluster cassandra://127.0.0.1:9042.
    """


for _command in (export, import_, diff, apply, sync, compare):
    cassandra.add_command(_command)
