"""A sync whose exports and change sets are in S3: nothing is renamed there, and only marks show what is complete."""

import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lakeward.cassandra.cql import TableName
from lakeward.cassandra.sync import SyncRequest, export_folder, sync_once
from lakeward.config import Config
from lakeward.config.services import S3Settings
from lakeward.errors import ConfigurationError
from lakeward.session.sessions import table_session
from tests.cassandra.clock import set_back
from tests.s3.bucket import Bucket
from tests.s3.conftest import settings_of


def test_rounds_in_s3(
    spark: Any, cassandra_server: Any, keyspace: str, s3_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, session = set_back(monkeypatch), cassandra_server.session()
    settings = settings_of(s3_server, monkeypatch)
    config = Config(base=tmp_path, s3=S3Settings(**settings))
    session.execute(f"CREATE TABLE {keyspace}.orders (id int PRIMARY KEY, v text)")
    table, copy = TableName(keyspace, "orders"), TableName(keyspace, "copied")
    with Bucket.create(s3_server, f"test-{uuid.uuid4().hex[:12]}", S3Settings(**settings)) as bucket:
        to = f"s3://{bucket.name}/exports"
        request = SyncRequest(
            cassandra_server.address, table, cassandra_server.address, copy, to, create_table=True, keep=1
        )
        reports = []
        for number in range(2):
            clock.next_minute()
            session.execute(f"INSERT INTO {keyspace}.orders (id, v) VALUES ({number}, 'v')")
            session.execute(f"UPDATE {keyspace}.orders SET v = 'w{number}' WHERE id = 0")
            reports.append(sync_once(table_session(spark), config, request))
        actions = [[str(step.action) for step in report.steps] for report in reports]
        assert actions == [["export", "import"], ["export", "diff", "apply"]]
        rows = [sorted(map(tuple, session.execute(f"SELECT id, v FROM {copied.cql}"))) for copied in (table, copy)]
        assert rows[0] == rows[1] == [(0, "w1"), (1, "v")]
        folder = export_folder(table_session(spark), config, request)
        assert len(folder.names()) == 1
        assert folder.names()[0] in str(reports[-1].holds["location"])
        assert sync_once(table_session(spark), config, replace(request, source=None)).status == "nothing to do"
    with pytest.raises(ConfigurationError, match="there is no bucket 'no-such-bucket-of-the-test'"):
        sync_once(table_session(spark), config, replace(request, to="s3://no-such-bucket-of-the-test/exports"))
