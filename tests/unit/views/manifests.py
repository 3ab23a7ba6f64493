"""Manifests for tests."""

from __future__ import annotations

from lakeward.columns import Column
from lakeward.views.versions.manifest import Lineage, Manifest


def manifest_of(content: str, files: dict[str, int], version: str = "v1") -> Manifest:
    return Manifest(
        id=content,
        table="sales.product",
        version=version,
        as_of="op:1",
        rows=1,
        content_hash="1:a:1",
        columns=(Column("id", "int"), Column("hire date", "date")),
        primary_key=("id",),
        format="parquet",
        layout="flat",
        date_column="",
        folder_column="",
        timezone="UTC",
        lineage=Lineage("uuid", 1, 1, 10, 20),
        created="2024-01-01T00:00:00.000000+00:00",
        lakeward="0",
        files=files,
    )
