"""Tables of clusters, found by their addresses, beside the sides of comparisons."""

from __future__ import annotations

from lakeward.api.sides import SideDesk
from lakeward.cassandra.clusters import LiveTable, find_cluster
from lakeward.cassandra.connecting import connected
from lakeward.cassandra.names import TableAddress
from lakeward.cassandra.preflight import require_table


class CassandraDesk(SideDesk):
    """Finds tables of clusters, for the time of a ``with`` block; opens snapshots and change sets as well."""

    def table(
        self, text: str, cluster: str | None = None, *, must_exist: bool = False, remedy: str | None = None
    ) -> LiveTable:
        """Find ``[CLUSTER/]KEYSPACE.TABLE``; ``cluster`` counts where the address names none.

        With ``must_exist`` the cluster is asked for it at once: what is wrong is told before Spark starts, and
        ``remedy``, what helps where there is none.

        Raises:
            ConfigurationError: it is no such address, the cluster is not known, or there is no such table.
            RetriableError: the cluster does not answer.
        """
        parsed = TableAddress.parse(text)
        place = LiveTable(find_cluster(self.config, parsed, cluster), parsed.name)
        if must_exist:
            with connected(place.address) as session:
                require_table(session, place.name, remedy=remedy)
        return place
