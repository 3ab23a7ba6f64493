"""Addresses of sides, taken apart."""

from datetime import UTC, datetime

import pytest

from lakeward.diffing.stored.addresses import AddressKind, parse_address, span_of
from lakeward.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "root", "location", "chosen"),
    [
        ("/data/a", None, "/data/a", None),
        ("/data/a/", None, "/data/a", None),
        ("s3://bucket/a/", None, "s3://bucket/a", None),
        ("/data/latest", None, "/data", "latest"),
        ("s3://bucket/a/previous", None, "s3://bucket/a", "previous"),
        ("/data/2026-11-15", None, "/data", "2026-11-15"),
        ("/data/2026-11-15T10:30", None, "/data", "2026-11-15T10:30"),
        ("latest", "/data", "/data", "latest"),
        ("2026-11-15", "/data", "/data", "2026-11-15"),
        ("/other/a", "/data", "/other/a", None),
        ("/data/day=2026-11-15", None, "/data/day=2026-11-15", None),
    ],
)
def test_paths(text, root, location, chosen):
    found = parse_address(text, root)
    assert (found.kind, found.location, found.chosen, found.needs_lake) == (AddressKind.FILES, location, chosen, False)


def test_a_path_is_relative_to_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert parse_address("a/b").location == str(tmp_path / "a/b")
    assert parse_address("latest").location == str(tmp_path / "latest")
    assert parse_address("a/latest").location == str(tmp_path / "a")


@pytest.mark.parametrize(
    ("text", "kind", "at"),
    [
        ("iceberg:sales.product", AddressKind.ICEBERG, None),
        ("iceberg:sales.product@snapshot:123", AddressKind.ICEBERG, "snapshot:123"),
        ("iceberg:sales.product@tag:a@b", AddressKind.ICEBERG, "tag:a@b"),
        ("mirror:sales.product@2020-11-14", AddressKind.MIRROR, "2020-11-14"),
        ("mirror:sales.product@op:4", AddressKind.MIRROR, "op:4"),
    ],
)
def test_tables_of_the_lake(text, kind, at):
    found = parse_address(text)
    assert (found.kind, found.table, found.at, found.needs_lake) == (kind, "sales.product", at, True)


@pytest.mark.parametrize(
    "text", ["", " ", "iceberg:product", "iceberg:a.b.c", "mirror:sales.product", "mirror:.x@op:1"]
)
def test_texts_that_are_not_addresses(text):
    with pytest.raises(ConfigurationError):
        parse_address(text)


def test_days_minutes_and_seconds():
    def span(text):
        start, end = span_of(text)
        return start, (end - start).total_seconds()

    assert span("2026-11-15") == (datetime(2026, 11, 15, tzinfo=UTC), 86_400)
    assert span("2026-11-15T10:30") == (datetime(2026, 11, 15, 10, 30, tzinfo=UTC), 60)
    assert span("2026-11-15T1030Z") == (datetime(2026, 11, 15, 10, 30, tzinfo=UTC), 60)
    assert span("2026-11-15T10:30:05") == (datetime(2026, 11, 15, 10, 30, 5, tzinfo=UTC), 1)
    with pytest.raises(ConfigurationError, match="is not a date"):
        span_of("2026-13-45")
