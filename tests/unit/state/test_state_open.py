"""From ``state:`` to a store."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from lakeward.errors import ConfigurationError
from lakeward.state.base import open_state
from lakeward.state.memory import MemoryStateStore

if TYPE_CHECKING:
    from pathlib import Path


def test_a_file_is_relative_to_base_and_its_folder_is_created(tmp_path: Path) -> None:
    open_state("sqlite:///deep/er/lakeward.db", tmp_path).close()
    assert (tmp_path / "deep/er/lakeward.db").is_file()


def test_a_fourth_slash_makes_the_file_absolute(tmp_path: Path) -> None:
    open_state(f"sqlite:///{tmp_path}/with space #ä.db", tmp_path / "unused").close()
    assert (tmp_path / "with space #ä.db").is_file()
    assert not (tmp_path / "unused").exists()


def test_memory_is_a_new_store_each_time(tmp_path: Path) -> None:
    first, second = open_state("memory://", tmp_path), open_state("memory://", tmp_path)
    assert isinstance(first, MemoryStateStore)
    assert first is not second


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("mysql://me:secret@host/db", "unknown kind of store mysql://"),
        ("postgresql//me:secret@host/db", "'postgresql//me:***@host/db' is not a URI"),
        ("postgresql:/me:secret@host/db", "'***@host/db' is not a URI"),
        ("me:secret@host/db", "'***@host/db' is not a URI"),
        ("me:secret@host://db", "unknown kind of store ***@host://"),
        ("sqlite://me:secret@host/db", "sqlite://me:***@host/db names no file"),
        ("sqlite:////me:secret@host/db?x=1", "take none"),
        ("dynamodb://me:secret@lakeward", "not a name for a table"),
        ("dynamodb://lakeward?endpoint=me:secret@host", "http://"),
        ("postgresql+psycopg2://me:secret@host/db", "postgresql+psycopg2:// is not supported"),
        ("postgresql://me:secret@host", "names no database"),
        ("postgresql://me:secret@host:port/db", "cannot be read"),
        ("dynamodb://", "names no table"),
        ("dynamodb://my table?region=eu-west-1", "not a name for a table"),
        ("dynamodb://lakeward?regoin=eu-west-1", "regoin"),
        ("dynamodb://lakeward?endpoint=localhost:8000", "http://"),
        ("lakeward.db", "state: sqlite:///lakeward.db"),
        ("", "state: sqlite:///lakeward.db"),
        ("sqlite://", "names no file"),
        ("sqlite://lakeward.db", "names no file"),
        ("sqlite:///", "names no file"),
        ("sqlite:///folder/", "names no file"),
        ("sqlite:///:memory:", "memory://"),
        ("sqlite:///lakeward.db?timeout=5", "take none"),
    ],
)
def test_a_file_that_cannot_be_opened_is_explained(uri: str, expected: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as refused:
        open_state(uri, tmp_path)
    assert expected in str(refused.value)
    assert "secret" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("module", "uri", "remedy"),
    [
        ("psycopg", "postgresql://me@host/db", "pip install 'lakeward[postgres]'"),
        ("boto3", "dynamodb://lakeward?region=eu-west-1", "pip install 'lakeward[aws]'"),
    ],
)
def test_a_missing_driver_is_named_with_its_remedy(
    module: str, uri: str, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigurationError, match=module) as refused:
        open_state(uri, tmp_path)
    assert refused.value.hint == remedy
