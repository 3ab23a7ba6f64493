"""Under a column policy the mirror equals the source with the rules applied, and no file of the lake holds a value."""

from __future__ import annotations

import hashlib
import hmac
import logging
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from lakeward.columns import quote_name
from lakeward.config import parse_config
from lakeward.errors import ConfigurationError
from lakeward.lake import Lakeward
from lakeward.mirror.op.report import Outcome
from lakeward.session.sessions import session_for
from lakeward.testing.compare import assert_same_rows
from lakeward.testing.replication.strategies import small_options
from lakeward.testing.simulator import Simulation, SimulatorOptions
from tests.spark.lake_files import files_holding
from tests.spark.scene import TABLE, Scene

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

KEY = "0123456789abcdef0123456789abcdef"
# Texts that a rule concerns begin with this, and no other text does; numbers are this one.
TEXT, NUMBER = "xq7z", 987_654_321
BUYERS = "sales.buyers"


@pytest.fixture(autouse=True)
def _with_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLICY_KEY", KEY)


def hashed(text: str | bytes) -> str:
    value = text.encode() if isinstance(text, str) else text
    return hmac.new(KEY.encode(), value, hashlib.sha256).hexdigest()


# --- one lake, from its first file to a repair: what it shows, and what it never holds --------------------------------

SCHEMA = "id bigint, ssn bigint, name string, note string, mail string, pay decimal(8,2), size smallint"
RULES = {"id": "hash", "ssn": "hash", "name": "truncate(2)", "note": "mask", "mail": "drop", "pay": "redact"}
TABLES: dict[str, Any] = {
    TABLE: {"schema": SCHEMA, "primary_key": "id", "columns": RULES, "hash_key": "env:POLICY_KEY"},
    BUYERS: {"primary_key": "buyer", "columns": {"buyer": "hash", "mail": "drop"}, "hash_key": "env:POLICY_KEY"},
}


def row(number: int, *, size: str = "1", name: str = f"{TEXT}n") -> str:
    return f"{number},{NUMBER},{name},{TEXT}o,{TEXT}m,98765.43,{size}"


def stored(number: int, *, size: int = 1) -> tuple[Any, ...]:
    return (hashed(str(number)), hashed(str(NUMBER)), "xq", "***", None, size)


@pytest.fixture
def private(scene: Scene, caplog: pytest.LogCaptureFixture) -> Iterator[Scene]:
    caplog.set_level(logging.DEBUG, logger="lakeward")
    yield scene.configure(TABLES, spark={})
    assert TEXT not in caplog.text
    assert str(NUMBER) not in caplog.text
    for secret in (TEXT.encode(), str(NUMBER).encode(), NUMBER.to_bytes(8, "little"), KEY.encode()):
        assert files_holding(scene.folder, secret, apart_from=scene.landing) == []
    # The search looks into data, metadata, manifests and state.
    for known, kind in ((b"***", ".parquet"), (hashed("9").encode()[:16], ".avro"), (b"truncate(2)", ".json")):
        assert any(path.endswith(kind) for path in files_holding(scene.folder, known, apart_from=scene.landing)), kind
    assert "state.db" in files_holding(scene.folder, b"20240405-000000001.csv", apart_from=scene.landing)


def test_a_lake_under_a_policy(private: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    private.land("LOAD00000001.csv", row(NUMBER), row(1), row(2))
    private.land("20240405-000000001.csv", f"U,{row(2, size='5')}", f"I,{row(3, size='70000')}", f"I,{TEXT},{TEXT}")
    private.land("20240405-000000002.csv", f"U,{row(9)},1", f"D,{row(NUMBER)},")
    buyers = {"buyer": [1, NUMBER], "mail": [f"{TEXT}@", None]}
    private.land_parquet("LOAD00000001.parquet", buyers, folder="sales/buyers")
    _bad_rows_show_nothing(private)
    _files_are_read_again_by_the_rules(private)
    _a_retry_reads_landing(private)
    _rules_and_key_stay(private, monkeypatch)


BAD = "sales/product/20240405-000000001.csv"
SETTLED = sorted([stored(2, size=5), stored(9)], key=repr)
QUARANTINE = {**TABLES, TABLE: {**TABLES[TABLE], "on_bad_row": "quarantine"}}
WIDER = {**TABLES, TABLE: {**QUARANTINE[TABLE], "schema": SCHEMA.replace("smallint", "int")}}


def _bad_rows_show_nothing(scene: Scene) -> None:
    refused = scene.try_run()
    message = str(next(table.message for table in refused.tables if str(table.table) == TABLE))
    assert "row 2, column size: not a value of type smallint" in message
    assert "row 3: has 3 fields, expected 8" in message
    assert TEXT not in message
    assert "70000" not in message
    assert scene.rows(BUYERS) == sorted([(hashed("1"),), (hashed(str(NUMBER)),)])
    scene.configure(QUARANTINE)
    assert TEXT not in repr([plan.to_dict() for plan in scene.lakeward.plan([TABLE])])
    scene.run(TABLE)
    assert scene.rows() == SETTLED
    assert [(bad.id, bad.reason, bad.value, bad.raw) for bad in scene.lakeward.bad_rows(TABLE)] == [
        (f"{BAD}:2", "not a value of type smallint", None, None),
        (f"{BAD}:3", "has 3 fields, expected 8", None, None),
    ]


def _files_are_read_again_by_the_rules(scene: Scene) -> None:
    # The hashes of one source value join across tables, CSV and Parquet.
    joined = f"SELECT count(*) FROM {TABLE} p JOIN {BUYERS} b ON p.ssn = b.buyer"
    assert scene.lakeward.sql(joined).collect()[0][0] == 2
    assert scene.lakeward.verify([TABLE], basis="files").exit_code == 0
    copy = {"id": [2, 9], "ssn": [NUMBER] * 2, "name": [f"{TEXT}n"] * 2, "note": [f"{TEXT}o"] * 2, "size": [5, 1]}
    scene.land_parquet("copy.parquet", {**copy, "pay": ["1", "2"], "mail": [f"{TEXT}m"] * 2}, folder="copy")
    (against,) = scene.lakeward.verify([TABLE], against=str(scene.landing / "copy")).tables
    assert (against.exit_code, against.not_compared, against.only_there) == (0, (), ("mail",)), against
    scene.lakeward.undo(TABLE, to_op=1)
    scene.run(TABLE)
    assert scene.rows() == SETTLED


def _a_retry_reads_landing(scene: Scene) -> None:
    scene.configure(WIDER)
    report = scene.lakeward.retry_bad_rows(TABLE)
    assert (report.handled, [bad.reason for bad in report.still_bad]) == (1, ["has 3 fields, expected 8"])
    assert scene.rows() == sorted([*SETTLED, stored(3, size=70000)], key=repr)
    (scene.landing / BAD).unlink()
    (gone,) = scene.lakeward.retry_bad_rows(TABLE).still_bad
    assert gone.reason.startswith("its file is gone")
    repaired = scene.lakeward.retry_bad_rows(TABLE, replacements={gone.id: f"I,{row(4)}"})
    assert repaired.handled == 1
    assert stored(4) in scene.rows()


def _rules_and_key_stay(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER", "o" * 32)
    changed = ({"columns": {**RULES, "ssn": "mask"}}, "other rules"), ({"hash_key": "env:OTHER"}, "not the key")
    for own, why in changed:
        scene.configure({**TABLES, TABLE: {**WIDER[TABLE], **own}})
        assert why in str(scene.try_run(TABLE).tables[0].message)
    scene.configure(WIDER)
    nine = scene.lakeward.hash_values(TABLE, "id", ["9"])
    assert (nine, scene.lakeward.hash_values(BUYERS, "buyer", ["9", "09"])) == ([hashed("9")], [hashed("9")] * 2)
    # What only reads the lake needs no key.
    monkeypatch.delenv("POLICY_KEY")
    scene.land("20240406-000000001.csv", f"I,{row(5)}")
    assert "'POLICY_KEY', which is not set" in str(scene.try_run(TABLE).tables[0].message)
    assert scene.lakeward.history.row(TABLE, {"id": nine[0]}).changes
    with pytest.raises(ConfigurationError, match="key column id holds hashes"):
        scene.lakeward.history.row(TABLE, {"id": 9})


def test_a_rule_that_stored_rows_cannot_follow_is_refused(scene: Scene) -> None:
    scene.configure({}).lakeward.close()
    scene.land("LOAD00000001.csv", "1,5", folder="sales/other")
    own = {"schema": "id int, ssn int", "primary_key": ["id"], "hash_key": "env:POLICY_KEY"}
    scene.lakeward.set_table("sales.other", settings=own, active=True)
    scene.run("sales.other")
    for change in ({"columns": {"ssn": "mask"}}, {"columns": {"ssn": "hash"}}):
        with pytest.raises(ConfigurationError, match=r"stored under other rules \(columns:\): ssn was without a rule"):
            scene.lakeward.set_table("sales.other", settings=change)
    with pytest.raises(ConfigurationError, match="part of the key"):
        scene.lakeward.set_table("sales.other", settings={"columns": {"id": "mask"}})
    scene.lakeward.set_table("sales.other", settings={"columns": {"mail": "drop"}})
    assert scene.rows("sales.other") == [(1, 5)]


# --- any files: the mirror is the truth with the rules applied --------------------------------------------------------


def policy_for(simulation: Simulation, seed: int) -> dict[str, dict[str, str]]:
    """Return random rules for the tables of a simulation; keys are hashed or left."""
    draw, found = random.Random(seed), {}
    for table in simulation.tables:
        found[str(table.id)] = rules = {}
        # A rule for a column that nothing has yet would be taken for misspelt.
        for column in table.columns:
            texts = ["truncate(1)", "truncate(3)"] if column.type == "string" else []
            choices = ["hash", ""] if column.name in table.key else ["mask", "hash", "drop", "redact", "", *texts]
            if rule := draw.choice(choices):
                rules[column.name] = rule
    return found


def ruled(row: dict[str, Any], rules: dict[str, str]) -> dict[str, Any]:
    """Return a row of the source as the rules have it, from their description alone."""
    return {name: _ruled(value, rules.get(name, "")) for name, value in row.items() if rules.get(name) != "drop"}


def _ruled(value: Any, rule: str) -> Any:
    if value is None or rule == "redact":
        return None
    if rule == "mask":
        return "***"
    if rule.startswith("truncate"):
        return value[: int(rule[9:-1])]
    return hashed(_canonical(value)) if rule == "hash" else value


def _canonical(value: Any) -> str | bytes:
    if isinstance(value, bytes | str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Decimal):
        plain = f"{value:f}"
        return plain.rstrip("0").rstrip(".") if "." in plain else plain
    if isinstance(value, datetime):
        moment = value.astimezone(UTC) if value.tzinfo else value
        return moment.strftime("%Y-%m-%d %H:%M:%S.%f") if moment.year > 999 else f"{moment:%H}"
    return value.isoformat() if isinstance(value, date) else repr(value)


def follow(folder: Path, spark: SparkSession, options: SimulatorOptions, *, later: bool = False) -> None:
    """Land a simulation stage by stage under a random policy and compare every mirror with the ruled truth.

    ``later``: the tables get their rules after the first stage.
    """
    simulation = Simulation(options)
    rules = (later_policy_for if later else policy_for)(simulation, options.seed)
    for number, stage in enumerate(simulation.stages()):
        stage.land(folder / "landing")
        with opened(folder, spark, simulation, {} if later and not number else rules) as lakeward:
            run(lakeward, f"{options}\n{rules}")
        expected = simulation.truth_after(stage)
        with opened(folder, spark, simulation, rules) as lakeward:
            for spec in (spec for spec in simulation.tables if spec.id in expected):
                if later and not number and rules[str(spec.id)]:
                    assert lakeward.apply_column_policy(str(spec.id), reason="decided")[-1].proved
                name = f"{quote_name(spec.id.schema)}.{quote_name(spec.id.name)}"
                found = [row.asDict() for row in lakeward.sql(f"SELECT * FROM {name}").collect()]
                wanted = [ruled(row, rules[str(spec.id)]) for row in expected[spec.id]]
                assert_same_rows(found, wanted, spec.key, f"{spec.id} under {rules[str(spec.id)]} of {options}")


def opened(folder: Path, spark: SparkSession, simulation: Simulation, rules: dict[str, dict[str, str]]) -> Lakeward:
    """Return the lake of a simulation under rules."""
    document = simulation.configuration()
    document["defaults"] |= {"hash_key": "env:POLICY_KEY"}
    for table, own in document["tables"].items():
        of_table = rules.get(table, {})
        own |= {"columns": of_table, "schema_mode": "evolve"}
        if "null_means_unchanged" in own:
            own["null_means_unchanged"] = [name for name in own["null_means_unchanged"] if of_table.get(name) != "drop"]
    config = parse_config({**document, "state": "sqlite:///state.db"}, base=folder)
    return Lakeward(config, spark=session_for(spark, config))


def run(lakeward: Lakeward, what: str) -> None:
    for table in lakeward.run().tables:
        assert table.outcome in (Outcome.DONE, Outcome.IDLE), f"{what}\n{table.message}"


def later_policy_for(simulation: Simulation, seed: int) -> dict[str, dict[str, str]]:
    """Return random rules that stored values can follow: none for keys, and none that makes text of other types."""
    draw, found = random.Random(seed), {}
    for table in simulation.tables:
        found[str(table.id)] = rules = {}
        for column in (column for column in table.columns if column.name not in table.key):
            texts = ["mask", "hash", "truncate(1)", "truncate(3)"] if column.type == "string" else []
            if rule := draw.choice(["drop", "redact", "", *texts]):
                rules[column.name] = rule
    return found


@pytest.mark.parametrize(
    "shape",
    [
        {"format": "csv", "unchanged": "<same>", "before_image": "pk-only", "split": 0.5},
        pytest.param({"before_image": "all", "duplicate": 0.3, "shuffle_keys": True}, marks=pytest.mark.soak),
    ],
)
def test_the_mirror_is_the_ruled_truth(tmp_path: Path, spark: SparkSession, shape: dict[str, Any]) -> None:
    follow(
        tmp_path,
        spark,
        SimulatorOptions(
            seed=5, tables=1, rows=20, changes=120, batches=4, stages=2, change_keys=True, composite_keys=True,
            null_updates=True, delay=0.3, **shape,
        ),
    )  # fmt: skip


@pytest.mark.parametrize(
    "shape",
    [
        {"format": "csv", "unchanged": "<same>", "before_image": "pk-only", "change_keys": True, "bad_rows": 0.1},
        pytest.param({"before_image": "all", "reloads": 2}, marks=pytest.mark.soak),
    ],
)
def test_the_mirror_is_the_ruled_truth_of_later_rules(
    tmp_path: Path, spark: SparkSession, shape: dict[str, Any]
) -> None:
    common = {"tables": 1, "rows": 20, "changes": 120, "batches": 4, "stages": 2, "null_updates": True, "delay": 0.3}
    follow(tmp_path, spark, SimulatorOptions(**{"seed": 7, **common, **shape}), later=True)


@pytest.mark.soak
@pytest.mark.parametrize("later", [False, True])
@settings(
    deadline=None, derandomize=True, phases=(Phase.explicit, Phase.generate), max_examples=35,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip
@given(options=small_options(tables=1, stages=2))
def test_soak_the_mirror_is_the_ruled_truth(
    tmp_path_factory: pytest.TempPathFactory, spark: SparkSession, options: SimulatorOptions, *, later: bool
) -> None:
    follow(tmp_path_factory.mktemp("policy"), spark, options, later=later)
