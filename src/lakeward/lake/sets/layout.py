"""What a snapshot set says of its files: one per bucket of the key, with the number of its rows and their checksum."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from lakeward.errors import DataError
from lakeward.storage.checksum import Checksum, total

if TYPE_CHECKING:
    from collections.abc import Mapping

# Spark's own: the Murmur3 hash of the key columns, seed 42, modulo the number of buckets.
FUNCTION = "spark-murmur3"
ROWS_PER_BUCKET = 250_000
MOST_BUCKETS = 4096


@dataclass(frozen=True)
class Bucket:
    """One file: ``path`` counts from the set's folder, ``checksum`` is 32 hexadecimal digits."""

    number: int
    path: str
    size: int
    rows: int
    checksum: str

    @property
    def content(self) -> Checksum:
        """Rows and checksum as one value."""
        return Checksum.of(self.rows, self.checksum)


@dataclass(frozen=True)
class SetLayout:
    """A set: the key, the number of buckets (a power of two), and a file for each bucket that holds rows.

    Rows whose key has the hash ``h`` are in the bucket ``h mod count``, sorted by key, and no key comes twice. With a
    set of twice as many buckets, each bucket is two of that set: ``b`` and ``b + count``.
    """

    keys: tuple[str, ...]
    count: int
    function: str
    buckets: tuple[Bucket, ...]

    @property
    def content(self) -> Checksum:
        """Rows and checksum of the whole set."""
        return total(one.content for one in self.buckets)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.content.rows

    @property
    def checksum(self) -> str:
        """The checksum of all rows, as text."""
        return self.content.text

    def grouped(self, count: int) -> dict[int, tuple[Bucket, ...]]:
        """Give the buckets as those of a set of fewer buckets, by their number there."""
        found: dict[int, tuple[Bucket, ...]] = {}
        for one in self.buckets:
            found[one.number % count] = (*found.get(one.number % count, ()), one)
        return found

    def to_document(self) -> dict[str, Any]:
        """Give the set as its manifest has it."""
        return {
            "keys": list(self.keys),
            "count": self.count,
            "function": self.function,
            "checksum": self.checksum,
            "buckets": [asdict(one) for one in self.buckets],
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> SetLayout:
        """Read what :meth:`to_document` gave.

        Raises:
            DataError: a part is missing, or its checksums do not add up.
        """
        try:
            buckets = tuple(Bucket(**one) for one in document["buckets"])
            found = cls(tuple(document["keys"]), int(document["count"]), str(document["function"]), buckets)
            expected = str(document["checksum"])
            if found.checksum != expected:
                msg = f"the set's buckets add up to {found.checksum}, its checksum is {expected}"
                raise DataError(msg, hint="make the snapshot anew: its manifest is damaged")
        except (KeyError, TypeError, ValueError) as error:
            msg = f"the description of the set's buckets is damaged: {error!r}"
            raise DataError(msg, hint="make the snapshot anew") from error
        return found


def bucket_count(rows: int) -> int:
    """Give the number of buckets for so many rows: a power of two with up to 250,000 rows in each."""
    count = 1
    while count < MOST_BUCKETS and count * ROWS_PER_BUCKET < rows:
        count *= 2
    return count


def is_usable_count(count: int) -> bool:
    """Tell whether a set can have so many buckets: sets of other numbers could not be held against each other."""
    return 1 <= count <= MOST_BUCKETS and count & (count - 1) == 0
