"""The hazards that S3 shares, with landing and lake on a disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.spark.hazards import HAZARDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.spark.scene import Scene


@pytest.mark.parametrize("hazard", HAZARDS, ids=lambda hazard: hazard.__name__)
def test_hazard(scene: Scene, hazard: Callable[[Scene], None]) -> None:
    hazard(scene)
