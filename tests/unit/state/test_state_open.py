"""From ``state:`` to a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward.errors import ConfigurationError
from lakeward.state.memory import MemoryStateStore
from lakeward.state.open import open_state

if TYPE_CHECKING:
    from pathlib import Path


def test_a_relative_file_counts_from_base_and_its_folder_is_created(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("uri", ["postgresql://me:secret@host/db", "postgresql+psycopg://x", "dynamodb://t?region=x"])
def test_planned_stores_are_refused_with_what_is_supported(uri: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="not supported by this version; supported: sqlite:///") as refused:
        open_state(uri, tmp_path)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("mysql://me:secret@host/db", "unknown kind of store mysql://"),
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
def test_what_cannot_be_opened_is_explained(uri: str, expected: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as refused:
        open_state(uri, tmp_path)
    assert expected in str(refused.value)
    assert "secret" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []
