"""A lake in S3 under every catalog: exact, also with two writers, and clear about what is wrong."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from pyiceberg.catalog.sql import SqlCatalog

from lakeward.cli.main import cli
from lakeward.errors import ConfigurationError, ConflictError
from lakeward.iceberg.define import mirror_of
from lakeward.iceberg.table import IcebergTable
from lakeward.mirror.op.report import Outcome
from lakeward.model import TableId
from lakeward.session.sessions import session_for
from tests.s3.scene import QUICK, S3Scene
from tests.servers.moto import REGION
from tests.servers.s3 import ACCESS_KEY, SECRET_KEY
from tests.spark.hazards import race_without_a_lease
from tests.spark.scene import TABLE
from tests.spark.source import Source, check_books
from tests.spark.sources import OTHER_STATE, change, keyed_source, keyless_source
from tests.spark.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.s3.bucket import Bucket

pytestmark = pytest.mark.spark
ROWS = tuple(f"{key},row {key},x,1.00" for key in range(1, 21))


@pytest.fixture
def hadoop_scene(tmp_path: Path, spark: SparkSession, bucket: Bucket) -> Iterator[S3Scene]:
    """The lake under a catalog that is nothing but files, reached by Hadoop."""
    stage = S3Scene(tmp_path, spark, bucket, catalog=f"hadoop://s3a://{bucket.name}/files", properties={})
    yield stage
    stage.close()


@pytest.fixture
def glue_scene(tmp_path: Path, spark: SparkSession, bucket: Bucket, moto_endpoint: str) -> Iterator[S3Scene]:
    """The lake under a Glue catalog, which is moto's: it takes stale versions, so two writers are not tested."""
    properties = spark._jvm.java.lang.System
    properties.setProperty("aws.accessKeyId", ACCESS_KEY)
    properties.setProperty("aws.secretAccessKey", SECRET_KEY)
    stage = S3Scene(
        tmp_path,
        spark,
        bucket,
        catalog=f"glue://?region={REGION}",
        properties={
            **QUICK,
            "glue.endpoint": moto_endpoint,
            "client.credentials-provider": "software.amazon.awssdk.auth.credentials.SystemPropertyCredentialsProvider",
        },
    )
    yield stage
    stage.close()
    for name in ("aws.accessKeyId", "aws.secretAccessKey"):
        properties.clearProperty(name)


@pytest.mark.parametrize("catalog", ["s3", "rest", "hadoop", "glue"])
def test_mirror_is_exact_under_every_catalog(catalog: str, request: pytest.FixtureRequest) -> None:
    scene: S3Scene = request.getfixturevalue(f"{catalog}_scene")
    scene.table(rewrite_share=10)
    source = Source(scene)
    source.load("LOAD00000001.csv", *ROWS)
    scene.run()
    source.change("20240102-000000000.csv", "U,1,second,y,2.00", "D,2,,,0", "I,30,new,y,3.00")
    scene.run()
    scene.forget_state()
    source.change("20240101-000000000.csv", "U,1,first,y,2.00", "U,3,late,y,2.00", "I,2,back?,y,2.00")
    assert [op.late for op in scene.run().ops] == [True]
    assert scene.rows() == source.rows()
    assert scene.run().outcome is Outcome.IDLE
    check_books(scene)


def test_another_engine_reads_the_mirror_from_s3(s3_scene: S3Scene) -> None:
    s3_scene.table(rewrite_share=10)
    source = Source(s3_scene)
    source.load("LOAD00000001.csv", *ROWS)
    source.change("20240102-000000000.csv", "U,1,second,y,2.00", "D,2,,,0")
    s3_scene.run()
    catalog = SqlCatalog(
        "lake",
        **{
            "uri": f"sqlite:///{s3_scene.folder}/lake/catalog.db",
            "s3.endpoint": s3_scene.bucket.settings.endpoint or "",
            "s3.access-key-id": ACCESS_KEY,
            "s3.secret-access-key": SECRET_KEY,
            "s3.region": "us-east-1",
        },
    )
    try:
        found = catalog.load_table(TABLE).scan().to_arrow()
    finally:
        catalog.engine.dispose()
    rows = zip(*(column.to_pylist() for column in found.columns), strict=True)
    assert sorted(rows, key=repr) == source.rows()


def test_two_writers_on_the_rest_catalog_without_a_lease_between_them(rest_scene: S3Scene) -> None:
    race_without_a_lease(keyed_source(rest_scene))


def test_two_writers_on_the_rest_catalog_at_the_same_moment(rest_scene: S3Scene) -> None:
    source = keyless_source(rest_scene)
    rest_scene.run()
    with Writer(rest_scene) as one, Writer(rest_scene, state=OTHER_STATE) as other:
        for number in range(1, 4):
            change(source, number)
            one.start()
            other.start()
            assert {one.finish().outcome, other.finish().outcome} <= {Outcome.DONE, Outcome.IDLE}
            assert rest_scene.rows() == source.rows()
    rest_scene.run()
    check_books(rest_scene)


def test_slower_writer_learns_of_the_conflict_from_the_rest_catalog(
    rest_scene: S3Scene, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    Source(rest_scene).load("LOAD00000001.csv", *ROWS)
    rest_scene.run()
    one, other = (mirror_of(session_for(spark, rest_scene.lakeward.config), TableId.parse(TABLE)) for _ in range(2))
    base = one.require_head().id
    for name, table in (("first", one), ("second", other)):
        table.create_branch(name, base)
        table.commit_empty(name, {"by": name})
    stale = other.load()
    one.fast_forward("first", "main", expected=base)
    # By the metadata that it loaded it may commit: only the catalog detects the conflict.
    monkeypatch.setattr(IcebergTable, "load", lambda table: stale)
    with pytest.raises(ConflictError, match="another writer committed first"):
        other.fast_forward("second", "main", expected=base, tries=1)
    monkeypatch.undo()
    assert one.require_head().summary["by"] == "first"


@pytest.mark.parametrize(
    ("lake", "message"),
    [
        ({"properties": {**QUICK, "s3.secret-access-key": "wrong"}}, "refuses the keys"),
        ({"warehouse": "s3://no-such-bucket/lake"}, "there is no such bucket"),
    ],
)
def test_lake_that_cannot_be_written_is_a_mistake_in_the_configuration(
    s3_scene: S3Scene, lake: dict[str, Any], message: str
) -> None:
    s3_scene.configure(lake={**s3_scene._settings["lake"], **lake})
    s3_scene.land("LOAD00000001.csv", *ROWS)
    refused = s3_scene.refused()
    assert message in (refused.message or "")
    assert (refused.error_kind, refused.exit_code) == ("configuration", 2)
    assert refused.hint


def test_landing_that_cannot_be_read_is_a_mistake_in_the_configuration(
    s3_scene: S3Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3_scene.land("LOAD00000001.csv", *ROWS)
    monkeypatch.setenv("TEST_S3_SECRET", "wrong")
    with pytest.raises(ConfigurationError, match="the keys are refused"):
        s3_scene.try_run()


def test_application_without_the_jars_is_refused_before_anything_fails_oddly(
    s3_scene: S3Scene, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakeward.storage.s3.S3_CLIENT_CLASS", "software.amazon.awssdk.services.s3.NoSuchClass")
    with pytest.raises(ConfigurationError, match="without the jars") as refused:
        session_for(spark, s3_scene.lakeward.config)
    assert refused.value.hint


def test_keys_are_not_shown_by_spark(s3_scene: S3Scene) -> None:
    shown = str(s3_scene.lakeward.spark.sql("SET").collect())
    assert "s3.secret-access-key" in shown
    assert SECRET_KEY not in shown and ACCESS_KEY not in shown


def doctor(scene: S3Scene, *arguments: str) -> dict[str, Any]:
    file = scene.folder / f"{uuid.uuid4().hex}.yaml"
    file.write_text(json.dumps({"state": "sqlite:///state.db", **scene._settings}))
    result = CliRunner().invoke(cli, ["--config", str(file), "doctor", "--output", "json", *arguments])
    return {check["name"]: check for check in json.loads(result.stdout)["checks"]}


def test_doctor_looks_at_s3(s3_scene: S3Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    s3_scene.land("LOAD00000001.csv", *ROWS)
    checks = doctor(s3_scene)
    assert {name for name, check in checks.items() if check["status"] != "ok"} == set()
    assert "can be written, read, listed" in checks["warehouse"]["detail"]
    assert s3_scene.bucket.keys("lake/lakeward-doctor") == []
    s3_scene.configure(lake={**s3_scene._settings["lake"], "warehouse": "s3://no-such-bucket/lake"})
    missing = doctor(s3_scene)["warehouse"]
    assert missing["status"] == "problem" and "there is no bucket 'no-such-bucket'" in missing["detail"]
    monkeypatch.setenv("TEST_S3_SECRET", "wrong")
    refused = doctor(s3_scene, "--no-spark")
    assert {refused["landing"]["status"], refused["warehouse"]["status"]} == {"problem"}
    assert "the keys are refused" in refused["landing"]["detail"]
    assert SECRET_KEY not in str(refused)
