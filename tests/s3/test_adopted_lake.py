"""A lake in S3 beside a landing in S3: its files are listed and read, and never written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeward.config import parse_config
from lakeward.errors import DataError
from lakeward.formats.base import FileSummary, ReadSpec
from lakeward.formats.dms.reader import read_file
from lakeward.mirror.op.adopted import adopted_columns, lake_beside, list_lake
from lakeward.model import TableId
from lakeward.runner.tables import settings_for
from lakeward.runner.walkthrough import take_over
from lakeward.schemas import DETAIL
from lakeward.state.memory import MemoryStateStore
from lakeward.storage.landing import open_landing, with_lake
from tests.servers.walkthrough import item

if TYPE_CHECKING:
    from typing import Any

    from tests.s3.bucket import Bucket

TABLE = TableId("sales", "product")


def parquet(**columns: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue().to_pybytes()


def test_a_lake_in_a_bucket_is_imported_and_read(bucket: Bucket, s3_settings: dict[str, Any], tmp_path) -> None:
    bucket.put("dms/sales/product/20240101-000000000.parquet", parquet(Op=["U"], id=[1], dept=["007"]))
    bucket.put("dms/sales/product/20240102-000000000.parquet", parquet(Op=["I"], id=[2], dept=["x"]))
    bucket.put("lake/product/dept=007/part-0.snappy.parquet", parquet(Op=["U"], id=[1]))
    bucket.put("lake/product/dept=a%2Fb/part-1.snappy.parquet", parquet(Op=["I"], id=[3]))
    bucket.put("lake/product/dept=007_$folder$", b"")
    config = parse_config({"landing": f"s3://{bucket.name}/dms", "s3": s3_settings}, base=tmp_path)
    landing = open_landing(config.landing, config.s3)
    path = f"{bucket.name}/dms/sales/product/"
    progress = {"LastFullLoadDate": "2024-01-01 00:00:00", "LastIncrementalFile": f"{path}20240101-000000000.parquet"}
    texts = {name: {"S": text} for name, text in progress.items()}
    found = item(path, bucket=bucket.name, key="id", partition="dept", flag="true", **texts)
    state = MemoryStateStore()
    [outcome] = take_over([found], config, landing, state, lake=f"s3://{bucket.name}/lake/")
    assert (outcome.active, outcome.reason) == (True, None)
    assert (outcome.plan.rows, outcome.plan.contained, outcome.plan.unread) == (2, 1, 1)
    settings = settings_for(config, TABLE, state.find_table(TABLE).settings)
    storage = with_lake(config, landing, settings)
    lake = list_lake(lake_beside(storage).lake, settings.adopt)
    columns = adopted_columns(TABLE, storage, settings, lake.files)
    rows = []
    for file in lake.files:
        *batches, last = read_file(storage, file, ReadSpec(TABLE, columns, settings))
        assert FileSummary.from_json(last.column(DETAIL)[0].as_py()).problem is None
        rows += [row for batch in batches for row in batch.select(["id", "dept"]).to_pylist()]
    assert rows == [{"id": 1, "dept": "007"}, {"id": 3, "dept": "a/b"}]
    with pytest.raises(DataError, match="it is only read"):
        storage.replace(lake.files[0].path, "/dev/null")
