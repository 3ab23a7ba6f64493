"""A state store that a test asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.state.base import StateStore


class WithStore:
    """Tests that need a store; a subclass overrides :meth:`store`."""

    @pytest.fixture
    def store(self) -> Iterator[StateStore]:
        """An empty store, closed after the test."""
        raise NotImplementedError
