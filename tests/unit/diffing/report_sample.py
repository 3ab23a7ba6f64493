"""A report with everything that a report can have."""

from __future__ import annotations

from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from lakeward.diffing.examples import Example
from lakeward.diffing.frames.alignment import align
from lakeward.diffing.frames.options import DiffOptions
from lakeward.diffing.frames.pairs import Summary
from lakeward.diffing.report import render_report

NAMES = ["title", "price", "stock", "description", "tags", "loaded_at"]


def sample_report(*, evil: str = "Lamp", empty: bool = False) -> str:
    """Render a comparison; ``evil`` is wherever a user's text can be."""
    key = StructField("id", IntegerType())
    texts = [StructField(name, StringType()) for name in (*NAMES, evil)]
    left, right = StructType([key, *texts]), StructType([key, *texts, StructField("supplier", StringType())])
    options = DiffOptions(ignore_columns=("loaded_at",))
    alignment = align(left, right, ["id"], options, evolve=True)
    summary = Summary(3_000_000, 3_000_000, 3_000, 30_000, 3_000, 2_967_000, _columns(evil))
    shown = _examples(evil)
    if empty:
        summary, shown = Summary(0, 0, 0, 0, 0, 0, {}), []
    return render_report(
        summary, alignment, shown, past=f"/exports/{evil}/day=14", current="s3://bucket/" + "long-" * 30,
        plan="buckets", reason=f"both are sets {evil}", options=options,
    )  # fmt: skip


def _columns(evil: str) -> dict[str, int]:
    return {"price": 30_000, "stock": 12_000, "title": 2, evil: 1, "supplier": 0}


def _examples(evil: str) -> list[Example]:
    def row(**changed: str | None) -> dict[str, str | None]:
        values = {"title": evil, "price": "12.50", "stock": "4", "description": "A lamp. " * 20, "tags": '["a"]'}
        return {**values, "loaded_at": "2026-11-15 10:00:00", evil: evil, "supplier": None, **changed}

    return [
        Example("C", {"id": "17"}, row(), row(price="13.00", title=""), ("price", "title")),
        Example("C", {"id": "x" * 90}, row(stock="9"), row(stock=None, tags="word" * 40), ("stock", "tags")),
        Example("I", {"id": "900"}, None, row(supplier="ACME"), ()),
        Example("I", {"id": "901"}, None, row(description=evil * 40), ()),
        Example("D", {"id": "3"}, row(), None, ()),
    ]  # fmt: skip
