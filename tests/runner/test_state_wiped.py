"""The state store wiped between any two runs, on every store that hosts share: only history and plans are lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward.mirror.op.report import Outcome
from lakeward.model import TableId
from tests.servers.dynamodb import dynamodb_client
from tests.spark.scene import TABLE, Scene

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers.postgres import PostgresServer


@pytest.fixture(params=["postgres", "dynamodb"])
def wipe(request: pytest.FixtureRequest, scene: Scene) -> Callable[[], None]:
    """A function that wipes the scene's store while it is open."""
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        uri = request.getfixturevalue("postgres_uri")
        database = uri.rpartition("/")[2]

        def drop() -> None:
            server.run("DROP SCHEMA public CASCADE", database)
            server.run("CREATE SCHEMA public", database)
    else:
        uri = request.getfixturevalue("dynamodb_uri")
        endpoint = request.getfixturevalue("dynamodb_endpoint")

        def drop() -> None:
            client = dynamodb_client(endpoint)
            client.delete_table(TableName=uri.removeprefix("dynamodb://").partition("?")[0])
            client.close()

    scene.configure(state=uri)
    return drop


def test_a_wipe_between_runs_loses_history_and_tables_that_never_ran(scene: Scene, wipe: Callable[[], None]) -> None:
    planned = TableId("sales", "planned")
    scene.land("LOAD00000001.csv", "1,a,x,1.00", "2,b,x,1.00")
    scene.run()
    scene.lakeward.state.set_table(planned, settings={"primary_key": ["id"]})
    assert len(scene.lakeward.state.runs()) == 1
    wipe()
    scene.close()
    assert scene.lakeward.state.runs() == []
    assert scene.lakeward.state.find_table(planned) is None
    scene.land("20240101-000000000.csv", "U,1,new,x,1.00", "D,2,b,x,1.00")
    scene.run()
    wipe()
    scene.close()
    # The ledger is the lake's: nothing is read again.
    assert scene.run().outcome is Outcome.IDLE
    assert scene.lakeward.rebuild_state() == [TABLE]
    assert (scene.names(), scene.lakeward.status()[0].files_consumed) == ({1: "new"}, 2)
