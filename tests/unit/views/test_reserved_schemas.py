"""Schemas under which the lake keeps what belongs to mirrors cannot be mirrored themselves."""

from __future__ import annotations

import pytest

from lakeward.errors import ConfigurationError
from lakeward.model import TableId


@pytest.mark.parametrize(("schema", "content"), [("sales_changes", "changelogs"), ("sales_history", "histories")])
def test_reserved_schemas_are_refused_by_name(schema: str, content: str) -> None:
    with pytest.raises(ConfigurationError, match=f"hold {content}"):
        TableId.parse(f"{schema}.product")
