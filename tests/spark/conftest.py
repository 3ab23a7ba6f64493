"""Everything in this folder needs a JVM; the fixtures are in fixtures.py."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.fixtures import COMPILED

if TYPE_CHECKING:
    from tests.spark.scene import Scene

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.spark)


@pytest.fixture
def scene(scene: Scene) -> Scene:
    """A small pipeline whose plans are compiled: the steps of a batch run here as they do for a user."""
    return scene.configure(spark={"conf": COMPILED})
