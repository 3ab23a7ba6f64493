"""The description of a snapshot set, without any file."""

from __future__ import annotations

import pytest

from lakeward.errors import DataError
from lakeward.storage.checksum import Checksum, total
from lakeward.storage.sets import Bucket, SetLayout, bucket_count, is_usable_count


def _layout(count: int = 4) -> SetLayout:
    buckets = [
        Bucket(at, f"part-{at}", 10, at + 1, Checksum(at + 1, (1 << 64) - 1 - at, at).digits) for at in range(count)
    ]
    return SetLayout(("id",), count, "spark-murmur3", tuple(buckets))


@pytest.mark.parametrize(("rows", "expected"), [(0, 1), (250_000, 1), (250_001, 2), (3_000_000, 16), (10**12, 4096)])
def test_buckets_hold_up_to_250_000_rows(rows, expected):
    assert bucket_count(rows) == expected


def test_counts_are_powers_of_two():
    assert [count for count in range(-1, 5000) if is_usable_count(count)] == [1 << at for at in range(13)]


def test_checksums_add_up_whatever_the_order_and_wrap_around():
    parts = [bucket.content for bucket in _layout().buckets]

    assert total(parts) == total(reversed(parts)) == _layout().content
    assert total(parts).rows == 10 and total(parts).first < 1 << 64
    assert Checksum.of(10, total(parts).digits) == total(parts)
    assert total([]).text == f"0:{'0' * 32}"


def test_buckets_of_a_larger_set_are_grouped_as_those_of_a_smaller():
    grouped = _layout(8).grouped(2)

    assert {number: [entry.number for entry in found] for number, found in grouped.items()} == {
        0: [0, 2, 4, 6],
        1: [1, 3, 5, 7],
    }


def test_a_document_is_read_as_it_was_written_and_damage_is_reported():
    layout = _layout()
    document = layout.to_dict()

    assert SetLayout.from_dict(document) == layout
    document["buckets"][1]["rows"] = 7
    with pytest.raises(DataError, match="add up to 15:"):
        SetLayout.from_dict(document)
    del document["buckets"][1]["rows"]
    with pytest.raises(DataError, match="damaged"):
        SetLayout.from_dict(document)
