"""docs/operating.md agrees with the code, and its examples can be used."""

import json
import logging
import re
from dataclasses import fields
from pathlib import Path

import yaml
from tests.unit.runner.reports import DONE, FAILED, IDLE, OP, RUN

from lakeward.config import parse_config
from lakeward.errors import RetriableError
from lakeward.runner.metrics import FAMILIES
from lakeward.runner.notify import Notice, TableNotice
from lakeward.runner.observers import RunLog

TEXT = (Path(__file__).parents[3] / "docs" / "operating.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def test_every_metric_is_in_the_table():
    rows = re.findall(r"^\| `(lakeward_\w+)` \|([^|]*)\| (.*) \|$", TEXT, re.MULTILINE)
    assert [(name, bool(label.strip()), text) for name, label, text in rows] == [
        (family.name, family.per_table, family.help) for family in FAMILIES
    ]


def test_examples_of_settings_are_valid(tmp_path):
    freshness, metrics, notify = (yaml.safe_load(block) for block in blocks("yaml") if not block.startswith("groups"))
    config = parse_config({**freshness, **metrics, **notify}, base=tmp_path)
    assert config.defaults.freshness == 900
    assert (config.metrics.port, config.notify and config.notify.on) == (9464, ("failure", "recovery"))
    assert config.history_days == 90


def test_alerts_are_rules_over_metrics_that_exist():
    [rules] = [yaml.safe_load(block) for block in blocks("yaml") if block.startswith("groups")]
    names = {family.name for family in FAMILIES}
    found = [rule for group in rules["groups"] for rule in group["rules"]]
    assert len(found) == 7
    for rule in found:
        assert {"alert", "expr", "labels", "annotations"} <= set(rule)
        used = set(re.findall(r"lakeward_\w+", rule["expr"]))
        assert used and used <= names


def test_the_message_has_the_fields_of_the_code():
    line, message = (json.loads(block) for block in blocks("json"))
    assert list(message) == [field.name for field in fields(Notice)]
    assert list(message["tables"][0]) == [field.name for field in fields(TableNotice)]
    assert line["event"] == "op.published"


def test_events_have_the_documented_fields(caplog):
    log = RunLog()
    with caplog.at_level(logging.DEBUG, "lakeward"):
        log.run_started("r1", ["a.b"])
        log.table_started("a.b")
        log.retry("a.b", 1, 1.0, RetriableError("busy"))
        log.op_published("a.b", OP)
        for report in (DONE, IDLE, FAILED):
            log.table_finished(report)
        log.run_finished(RUN)
    documented = dict(re.findall(r"^\| `([\w.]+)` \| (?:\w|, )[^|]*\| ?(.*)\|$", TEXT, re.MULTILINE))
    for record in caplog.records:
        names = set(re.findall(r"`(\w+)`", documented[record.event]))
        if record.event == "table.failed":
            names |= set(re.findall(r"`(\w+)`", documented["table.finished"])) - {"reason"}
        if record.event == "run.finished":
            names |= {"done", "idle", "waiting", "locked", "failed"}
        assert set(record.fields) - {"run", "table"} == names, record.event
