"""A key that comes twice on a side: the error it raises inside a query, and how it is found again outside."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakeward.errors import RefusedInputError
from lakeward.transforms.failing import failure

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import Column

DUPLICATE_KEY_MARK = "lakeward: duplicate key: "
ONE_ROW_A_KEY = (
    "name all columns of the key with --keys, or pair such rows by values without --to: --duplicate-keys report"
)


def duplicate_failure(side: str, keys: Sequence[tuple[str, Column]]) -> Column:
    """Give a boolean column that fails when it is evaluated, with the mark and then the side and the key as JSON."""
    key = F.to_json(
        F.struct(F.lit(side).alias("side"), F.struct(*[value.alias(name) for name, value in keys]).alias("key")),
        {"ignoreNullFields": "false"},
    )
    return failure(F.lit(DUPLICATE_KEY_MARK), key)


def duplicate_key_in(error: BaseException) -> str | None:
    """Find a duplicate key in an error of Spark: the side, then the key as JSON. None: it is about something else."""
    for text in _texts(error):
        _, mark, rest = text.partition(DUPLICATE_KEY_MARK)
        if not mark:
            continue
        try:
            found, _ = json.JSONDecoder().raw_decode(rest)
        except json.JSONDecodeError:
            return rest.splitlines()[0]
        return f"{found['side']} side: {json.dumps(found['key'], ensure_ascii=False)}"
    return None


def refused_duplicate(found: str) -> RefusedInputError:
    """Give the error to raise for what :func:`duplicate_key_in` found."""
    return RefusedInputError(f"A key comes more than once on the {found}", hint=ONE_ROW_A_KEY)


def _texts(error: BaseException) -> Iterator[str]:
    """Give the messages of an error and of those that caused it, in Python and in the JVM."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield str(current)
        java = getattr(current, "java_exception", None) or getattr(current, "_origin", None)
        while java is not None:
            yield str(java.toString())
            java = java.getCause()
        current = current.__cause__ or current.__context__
