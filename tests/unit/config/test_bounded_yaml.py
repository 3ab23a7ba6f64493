"""YAML that expands to more than it contains."""

import time

import pytest
import yaml

from lakeward.config.loading import read_config, read_yaml
from lakeward.errors import ConfigurationError

BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 10)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGES = "a: &a {k: 1}\n" + "".join(
    f"{name}: &{name} {{x: *{before}, y: *{before}, <<: *{before}}}\n"
    for before, name in zip("abcdefghijklmnopqrstuvwx", "bcdefghijklmnopqrstuvwxy", strict=True)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "more than 200,000 values, aliases written out"),
        (MERGES, "more than 200,000 values, aliases written out"),
        ("a: &a [*a]", "an alias in it contains itself"),
        ("a: &a {b: *a}", "an alias in it contains itself"),
        ("[" * 5_000, "nested too deeply"),
        ("- " * 5_000, "nested too deeply"),
        ("a: 2024-02-30", "day is out of range for month"),
        ("a: !!timestamp x", "has no attribute"),
        ("a: !!bool x", "x"),
    ],
)
def test_yaml_aliases_that_expand_without_end_are_refused_immediately(text, message, tmp_path):
    began = time.process_time()
    with pytest.raises(yaml.YAMLError, match=message):
        read_yaml(text)
    with pytest.raises(ConfigurationError, match="is not valid YAML"):
        read_config(text, base=tmp_path, environment={}, source="lakeward.yaml")
    assert time.process_time() - began < 20


def test_ordinary_aliases_are_written_out():
    text = "base: &base {primary_key: [id]}\ntables: {a.b: *base, a.c: {<<: *base, priority: 1}}"
    assert read_yaml(text) == {
        "base": {"primary_key": ["id"]},
        "tables": {"a.b": {"primary_key": ["id"]}, "a.c": {"primary_key": ["id"], "priority": 1}},
    }
    assert read_yaml("") is None
