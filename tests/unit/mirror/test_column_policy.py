"""Which rules a table may have, and that its rows are only ever stored under one set of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from lakeward.column_policy import (
    POLICY_PROPERTY,
    StoredPolicy,
    as_read,
    as_stored,
    of_files,
    stored_policy,
    with_sources,
)
from lakeward.columns import Column, parse_ddl
from lakeward.config import TableSettings
from lakeward.config.policy import rules_of
from lakeward.errors import ConfigurationError, DataError, SchemaError
from lakeward.formats.base import FileSummary
from lakeward.mirror.op.policy import (
    policy_property,
    require_known_rules,
    require_same_policy,
    rule_conflicts,
    rules_to_apply,
)
from lakeward.mirror.op.schema import known_columns, with_file_columns
from lakeward.mirror.op.settings import settings_problems
from lakeward.model import FileClass, FileIdentity, TableId

TABLE = TableId("sales", "product")
KEY, OTHER_KEY = "k" * 32, "o" * 32


@pytest.fixture(autouse=True)
def _with_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLICY_KEY", KEY)
    monkeypatch.setenv("OTHER_KEY", OTHER_KEY)


def table_settings(columns: dict[str, str], **own: Any) -> TableSettings:
    return TableSettings.model_validate(
        {"columns": columns, "primary_key": ["id"], "hash_key": "env:POLICY_KEY", **own}
    )


def file_of(*columns: str, path: str = "sales/product/20240405-003052555.parquet") -> FileSummary:
    named = tuple((column.name, column.type) for ddl in columns for column in parse_ddl(ddl))
    identity = FileIdentity(1, 1)
    return FileSummary(path, FileClass.CHANGES, "1", identity, "hash", mismatch=True, columns=named)


def stored(ddl: str, settings: TableSettings) -> tuple[Column, ...]:
    return as_stored(of_files(parse_ddl(ddl), rules_of(settings)), rules_of(settings))


# --- what a rule may be ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rule", ["Mask", "truncate", "truncate(0)", "truncate(-1)", "truncate(x)", "hash(3)", "", "sha256"]
)
def test_other_rules_are_refused_by_their_forms(rule: str) -> None:
    with pytest.raises(ValidationError, match="is not a rule for a column; expected mask, hash, drop"):
        table_settings({"ssn": rule})


def test_rules_are_kept_in_one_spelling() -> None:
    found = table_settings({"a": " mask", "b": "truncate( 4 )"})
    assert found.column_policies == {"a": "mask", "b": "truncate(4)"}
    assert found.model_dump(by_alias=True)["columns"] == {"a": "mask", "b": "truncate(4)"}


def test_a_key_is_named_and_never_written() -> None:
    for value in ("0123456789abcdef0123456789abcdef", "env:", "env:a b", "secret:x"):
        with pytest.raises(ValidationError, match="must be env:NAME"):
            TableSettings.model_validate({"hash_key": value})


@pytest.mark.parametrize(
    ("columns", "own", "why"),
    [
        ({"id": "mask"}, {}, "part of the key"),
        ({"id": "truncate(3)"}, {}, "part of the key"),
        ({"id": "drop"}, {}, "part of the key"),
        ({"dept": "redact"}, {"partition_by": ["dept"]}, "in partition_by"),
        ({"dept": "mask"}, {"partition_by": ["bucket(4, dept)"]}, "in partition_by"),
        ({"ts": "hash"}, {"timestamp_column": "ts"}, "places the changes"),
        ({"TS": "drop"}, {"timestamp_column": "ts"}, "places the changes"),
        ({"AR_H_CHANGE_SEQ": "hash"}, {}, "places the changes"),
        ({"tx": "mask"}, {"transaction_column": "tx"}, "places the changes"),
        ({"Op": "drop"}, {}, "places the changes"),
        ({"day": "hash"}, {"publish": {"to": "out", "layout": "dated", "date_column": "day"}}, "date_column"),
        ({"day": "redact"}, {"snapshots": {"layout": "dated", "date_column": "day"}}, "date_column"),
        ({"ssn": "drop"}, {"publish": {"to": "out", "columns": ["id", "ssn"]}}, "it is in publish: columns:"),
        ({"ssn": "drop"}, {"publish": {"to": "out", "partition_by": ["ssn"]}}, "or partition_by"),
        ({"ssn": "hash"}, {"hash_key": None}, "hash_key is not set"),
        ({"id": "hash", "a": "drop"}, {"schema": "a int", "primary_key": []}, "every column is dropped"),
    ],
)
def test_rules_that_contradict_other_settings(columns: dict[str, str], own: dict[str, Any], why: str) -> None:
    (found, *_) = rule_conflicts(table_settings(columns, **own))
    assert why in found


def test_hashed_columns_may_be_key_and_partition() -> None:
    settings = table_settings({"id": "hash", "dept": "hash"}, partition_by=["bucket(4, id)", "dept"])
    assert not [*settings_problems(stored("id int, dept int", settings), settings)]


def test_rules_that_do_not_fit_the_columns() -> None:
    settings = table_settings({"n": "truncate(2)", "ssn": "mask", "gone": "drop"}, before_image_columns=["id", "gone"])
    problems = [
        problem.message for problem in settings_problems(stored("id int, n int, SSN string", settings), settings)
    ]
    assert problems == [
        "columns: n cannot be truncated: it is int, and only text has characters",
        "columns: has a rule for 'ssn', and the table a column 'SSN': they differ in case",
    ]


# --- the columns of a table with rules -------------------------------------------------------------------------------


def test_columns_as_they_are_read_and_stored() -> None:
    settings = table_settings({"ssn": "hash", "note": "mask", "pay": "redact", "mail": "drop"})
    columns = stored("id int, ssn bigint, note int, pay date, mail string", settings)
    assert columns == (
        Column("id", "int"), Column("ssn", "string", "bigint"), Column("note", "string"), Column("pay", "date"),
    )  # fmt: skip
    assert as_stored(as_read(columns, rules_of(settings)), rules_of(settings)) == columns


def test_a_hashed_column_widens_at_the_source_alone() -> None:
    settings = table_settings({"ssn": "hash"})
    mirror = (Column("id", "int"), Column("ssn", "string", "int"))
    assert with_file_columns(TABLE, mirror, [file_of("id int, ssn bigint")], settings)[1] == Column(
        "ssn", "string", "bigint"
    )
    with pytest.raises(SchemaError, match="column ssn is string, the table has int"):
        with_file_columns(TABLE, mirror, [file_of("id int, ssn string")], settings)
    declared = table_settings({"ssn": "hash"}, schema="id int, ssn string")
    with pytest.raises(SchemaError, match="ssn: the mirror has int, declared is string"):
        known_columns(TABLE, mirror, declared)


def test_a_dropped_column_never_returns() -> None:
    settings = table_settings({"ssn": "drop"}, schema_mode="evolve")
    mirror = (Column("id", "int"),)
    found = with_file_columns(TABLE, mirror, [file_of("id int, ssn string, new int")], settings)
    assert [column.name for column in found] == ["id", "new"]
    declared = table_settings({"ssn": "drop"}, schema="id int, ssn string")
    assert known_columns(TABLE, mirror, declared) == mirror


def test_a_column_that_nobody_decided_on_stops_the_table() -> None:
    mirror = (Column("id", "int"),)
    with pytest.raises(SchemaError, match="column mail is new, and the table has a column policy: set its rule"):
        with_file_columns(TABLE, mirror, [file_of("id int, mail string")], table_settings({"ssn": "drop"}))
    decided = table_settings({"ssn": "drop", "mail": "hash"})
    found = with_file_columns(TABLE, mirror, [file_of("id int, mail string")], decided)
    assert found[1] == Column("mail", "string", "string")


def test_a_misspelt_rule_is_refused_before_its_column_is_stored() -> None:
    settings = table_settings({"snn": "mask", "old": "drop"})
    kept = StoredPolicy({"old": "drop"}).to_json()
    context: Any = SimpleNamespace(table=TABLE, settings=settings, mirror=SimpleNamespace(property=lambda _: kept))
    columns, files = (Column("id", "int"), Column("ssn", "string")), [file_of("id int, ssn string")]
    with pytest.raises(ConfigurationError, match="has a rule for 'snn', which is not a column"):
        require_known_rules(context, columns, files, columns[:1])
    require_known_rules(context, columns, files, columns)
    context.settings = table_settings({"ssn": "mask", "old": "drop"})
    require_known_rules(context, columns, files, columns[:1])
    with pytest.raises(ConfigurationError, match="has a rule for 'old'"):
        require_known_rules(context, columns, files, ())


# --- one policy for all rows -----------------------------------------------------------------------------------------

MIRROR = (Column("id", "int"), Column("ssn", "string", "int"), Column("name", "string"))


def kept_under(columns: dict[str, str], **own: Any) -> dict[str, str | None]:
    return {POLICY_PROPERTY: policy_property(table_settings(columns, **own), MIRROR, None)}


@pytest.mark.parametrize(
    ("before", "now", "can_follow"),
    [
        ({"ssn": "hash"}, {}, False),
        ({"ssn": "hash"}, {"ssn": "mask"}, True),
        ({"ssn": "hash"}, {"ssn": "redact"}, False),
        ({"name": "truncate(4)"}, {"name": "truncate(2)"}, True),
        ({"name": "truncate(4)"}, {"name": "truncate(5)"}, False),
        ({"name": "truncate(4)"}, {"name": "hash"}, False),
        ({"name": "hash"}, {"name": "truncate(4)"}, False),
        ({"name": "mask"}, {"name": "redact"}, False),
        ({"name": "redact"}, {"name": "drop"}, True),
        ({"mail": "drop"}, {}, False),
        ({"ssn": "hash"}, {"ssn": "hash", "name": "mask"}, True),
        ({"ssn": "hash"}, {"ssn": "mask", "name": "truncate(1)"}, True),
        ({}, {"name": "drop"}, True),
        ({}, {"name": "drop", "id": "hash"}, False),
        ({}, {"seq": "redact"}, True),
        ({}, {"seq": "mask"}, False),
    ],
)
def test_other_rules_stop_a_table_with_rows(before: dict[str, str], now: dict[str, str], *, can_follow: bool) -> None:
    mirror, settings = (*MIRROR, Column("seq", "bigint")), table_settings(now, primary_key=["id"])
    kept = kept_under(before) if before else {}
    with pytest.raises(ConfigurationError, match="stored under other rules") as refusal:
        require_same_policy(TABLE, settings, kept, mirror)
    command = "erase sales.product --column-policy" if can_follow else "tables remove sales.product --drop-data"
    assert f"lakeward {command}" in str(refusal.value.hint)
    stored = stored_policy(kept.get(POLICY_PROPERTY))
    if can_follow:
        wanted = {name: rule for name, rule in now.items() if before.get(name) != rule}
        assert rules_to_apply(TABLE, settings, stored, mirror) == wanted
    else:
        with pytest.raises(ConfigurationError, match="is now"):
            rules_to_apply(TABLE, settings, stored, mirror)


def test_a_rule_for_a_column_that_comes_later_is_no_change() -> None:
    require_same_policy(TABLE, table_settings({"ssn": "hash", "mail": "drop"}), kept_under({"ssn": "hash"}), MIRROR)
    require_same_policy(TABLE, table_settings({}), {}, MIRROR)


def test_a_rule_for_a_column_waits_for_its_rename() -> None:
    settings, before = table_settings({"label": "mask"}, primary_key=["id"], renames={"name": "label"}), StoredPolicy()
    with pytest.raises(ConfigurationError, match="under its former name until the table is run"):
        rules_to_apply(TABLE, settings, before, MIRROR)
    after = (*MIRROR[:2], Column("label", "string"))
    assert rules_to_apply(TABLE, settings, before, after) == {"label": "mask"}


def test_rules_follow_a_renamed_column() -> None:
    renamed = table_settings({"social": "hash"}, renames={"ssn": "social"})
    require_same_policy(TABLE, renamed, kept_under({"ssn": "hash"}), MIRROR)
    after = (MIRROR[0], Column("social", "string", "int"), MIRROR[2])
    require_same_policy(TABLE, renamed, kept_under({"ssn": "hash"}), after)


def test_another_key_is_refused_and_no_key_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = kept_under({"ssn": "hash"})
    with pytest.raises(ConfigurationError, match="hash_key is not the key"):
        require_same_policy(TABLE, table_settings({"ssn": "hash"}, hash_key="env:OTHER_KEY"), kept, MIRROR)
    monkeypatch.delenv("POLICY_KEY")
    require_same_policy(TABLE, table_settings({"ssn": "hash"}), kept, MIRROR)


def test_the_property_holds_rules_types_and_fingerprint() -> None:
    text = kept_under({"ssn": "hash", "mail": "drop"})[POLICY_PROPERTY]
    found = stored_policy(text)
    assert (found.rules, found.types) == ({"ssn": "hash", "mail": "drop"}, {"ssn": "int"})
    assert found.key is not None
    assert KEY not in str(text)
    assert with_sources((Column("id", "int"), Column("ssn", "string")), text)[1].source == "int"
    assert policy_property(table_settings({}), MIRROR, None) is None
    with pytest.raises(DataError, match="is damaged"):
        stored_policy('{"rules": 5}')
