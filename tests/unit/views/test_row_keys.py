"""Keys as people write them become values of exactly the column's type."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from lakeward.columns import parse_ddl
from lakeward.errors import ConfigurationError
from lakeward.views.history.keys import read_assignments, row_key

COLUMNS = parse_ddl("id int, code string, day date, at timestamp, local timestamp_ntz, price decimal(10,2), raw binary")


def shown(**given: Any) -> dict[str, Any]:
    return row_key("sales.product", COLUMNS, tuple(given), given).shown()


def test_assignments_are_read_as_written() -> None:
    assert read_assignments(["id=7", "code=a=b"]) == {"id": "7", "code": "a=b"}
    assert read_assignments(["id=NULL", "code='NULL'", "c=''", "d="]) == {"id": None, "code": "NULL", "c": "", "d": ""}
    for wrong in (["id"], ["=7"], ["id=1", "id=2"]):
        with pytest.raises(ConfigurationError, match="--key"):
            read_assignments(wrong)


def test_texts_and_values_are_the_same_key() -> None:
    assert shown(id="7", code="007") == shown(id=7, code="007") == {"id": 7, "code": "007"}
    assert shown(day="2024-01-05", price="7.00") == shown(day=date(2024, 1, 5), price=Decimal("7.00"))
    assert shown(at="2024-01-05 10:00:00") == {"at": "2024-01-05T10:00:00.000000Z"}
    assert shown(at=datetime(2024, 1, 5, 10, tzinfo=UTC)) == shown(at="2024-01-05 10:00:00")
    assert shown(local="2024-01-05 10:00:00") == {"local": "2024-01-05T10:00:00.000000"}
    assert shown(raw="00ff") == {"raw": b"\x00\xff"}
    assert shown(id=None, code=None) == {"id": None, "code": None}


@pytest.mark.parametrize("given", [{"id": "seven"}, {"id": 2**40}, {"id": "7.5"}, {"day": "2024-13-01"}])
def test_a_value_that_does_not_fit_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="is not a value of the key column"):
        shown(**given)


def test_exactly_the_key_columns_are_required() -> None:
    for given in ({"id": 7}, {"id": 7, "code": "a", "day": "2024-01-01"}, {}):
        with pytest.raises(ConfigurationError, match=r"the key of sales\.product is id, code"):
            row_key("sales.product", COLUMNS, ("id", "code"), given)
    with pytest.raises(ConfigurationError, match="has no primary key"):
        row_key("sales.product", COLUMNS, (), {})


def test_texts_of_a_file_are_compared_with_the_key() -> None:
    key = row_key("sales.product", COLUMNS, ("id", "code"), {"id": 7, "code": None})
    assert key.is_text({"id": "007", "code": None, "day": "broken"}, "hex")
    assert not key.is_text({"id": "8", "code": None}, "hex")
    assert not key.is_text({"id": "7", "code": "x"}, "hex")
    assert not key.is_text({"id": "broken", "code": None}, "hex")
    assert not key.is_text({"id": "7"}, "hex"), "a key of which the text is only a part is another key"
