"""The options and the report of a verification."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from lakeward.documents import Document, Record
from lakeward.errors import ConfigurationError

if TYPE_CHECKING:
    from lakeward.mirror.op.checkpoints import Moment
    from lakeward.mirror.op.report import OpReport

USER_VARIABLE, PASSWORD_VARIABLE = "LAKEWARD_AGAINST_USER", "LAKEWARD_AGAINST_PASSWORD"
# Options of a JDBC address: names and e-mail addresses in them are not a login.
_OPTION = re.compile(r"[?;&][\w.-]+=[^?;&]*")
_SECRET_OPTION = re.compile(r"(?i)(password|passwd|passphrase|pwd|secret|secretaccesskey|token)\s*=")
# user:password@host in most addresses, user/password@ in those of Oracle.
_LOGIN = re.compile(r"(?i)(//|,)[^@/:,]*:[^@]*@|^jdbc:oracle:[^:]*:[^@/]+/.*@")


class Basis(StrEnum):
    """The basis with which a mirror is compared."""

    AUTO = "auto"
    FILES = "files"
    CHANGELOG = "changelog"
    AGAINST = "against"


class Verdict(StrEnum):
    """The result of verifying a table."""

    CLEAN = "clean"
    DIFFERENT = "different"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True)
class KeyRange:
    """A range of a key column, both ends included and given as text; None where there is no limit."""

    column: str
    low: str | None
    high: str | None

    def __str__(self) -> str:
        return f"{self.column}={self.low or ''}..{self.high or ''}"

    @classmethod
    def parse(cls, text: str) -> KeyRange:
        """Read ``id=1..1000``, ``id=..1000`` or ``id=5..``."""
        name, equals, span = text.partition("=")
        low, dots, high = span.partition("..")
        if not (name and equals and dots and (low or high)):
            msg = f"{text!r} is not a key range; expected COLUMN=LOW..HIGH, of which one end may be left out"
            raise ConfigurationError(msg)
        return cls(name, low or None, high or None)


@dataclass(frozen=True)
class Against:
    """Another copy of a table to compare with: a JDBC address or a folder.

    ``table`` is its name in the database. Keys that changed after ``cut_off`` are left out, according to the changelog
    and to the column ``changed_at`` of the other side. ``asked_us`` is the commit time of a repair without a cut-off,
    in microseconds since 1970.

    Raises:
        ConfigurationError: the address holds a password; logs, reports and the changelog name the other copy by it.
    """

    location: str
    table: str | None = None
    cut_off: Moment | None = None
    changed_at: str | None = None
    asked_us: int = field(default_factory=lambda: time.time_ns() // 1000)

    def __post_init__(self) -> None:
        if self.is_jdbc and (_SECRET_OPTION.search(self.location) or _LOGIN.search(_OPTION.sub("", self.location))):
            msg = "--against holds a password, which would be seen in logs and lists of processes"
            raise ConfigurationError(msg, hint=f"leave it out and set {USER_VARIABLE} and {PASSWORD_VARIABLE}")

    @property
    def is_jdbc(self) -> bool:
        """Whether the other side is a database."""
        return self.location.startswith("jdbc:")


@dataclass(frozen=True)
class VerifyOptions:
    """How to verify. ``sample`` (a share of the keys) and ``ranges`` of key columns select a part of the rows."""

    basis: Basis = Basis.AUTO
    sample: float | None = None
    ranges: tuple[KeyRange, ...] = ()
    against: Against | None = None
    limit: int = 20

    @property
    def part(self) -> str | None:
        """A description of the part of the rows that is verified, None for all."""
        parts = [f"a sample of {self.sample:.4%} of the keys"] if self.sample is not None else []
        parts += [f"keys with {key_range}" for key_range in self.ranges]
        return ", ".join(parts) or None


@dataclass(frozen=True)
class RowFinding(Document):
    """One difference. A missing or extra row is included as a whole, a different row one column at a time.

    Values are texts, binary ones in hexadecimal; those of more than 500 characters are truncated.
    """

    kind: str
    key: dict[str, str | None]
    column: str | None = None
    expected: str | None = None
    found: str | None = None
    row: dict[str, str | None] | None = None
    times: int = 1


@dataclass(frozen=True)
class Verified(Record):
    """The last complete verification that found nothing: up to which op, when, on which basis, with which content."""

    op: int
    at: str
    basis: str
    rows: int
    content_hash: str


@dataclass(frozen=True)
class TableVerification(Document):
    """The verification of one table.

    ``reason`` is why this basis was chosen. ``columns`` counts in how many rows each column differs. ``part``
    describes what was verified if not everything. ``only_here`` and ``only_there`` are columns that one side lacks,
    ``not_compared`` those whose types cannot be compared without loss; ``left_out`` counts keys that changed after the
    cut-off. ``repair`` is the op that repaired the findings, and ``verified`` the record of the last clean
    verification. ``landing`` are faults in how files in landing were used.
    """

    table: str
    verdict: Verdict
    op: int | None = None
    generation: int | None = None
    mirror_snapshot: int | None = None
    basis: str | None = None
    reason: str | None = None
    part: str | None = None
    rows_expected: int | None = None
    rows_found: int | None = None
    missing: int = 0
    extra: int = 0
    different: int = 0
    columns: dict[str, int] = field(default_factory=dict)
    findings: tuple[RowFinding, ...] = ()
    only_here: tuple[str, ...] = ()
    only_there: tuple[str, ...] = ()
    not_compared: tuple[str, ...] = ()
    left_out: int = 0
    content_hash: str | None = None
    repair: OpReport | None = None
    verified: Verified | None = None
    notes: tuple[str, ...] = ()
    landing: tuple[str, ...] = ()
    message: str | None = None
    hint: str | None = None
    error_kind: str | None = None
    exit_code: int = 0
    seconds: float = 0.0

    @property
    def differences(self) -> int:
        """Rows that are missing, extra or different."""
        return self.missing + self.extra + self.different


@dataclass(frozen=True)
class VerifyReport(Document, keys=("exit_code", "tables")):
    """A verification of tables."""

    tables: tuple[TableVerification, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 when nothing was found; 1 when something was; 2 or 3 when a table could not be verified."""
        return max((table.exit_code for table in self.tables), default=0)

    def table(self, name: str) -> TableVerification:
        """Return the verification of one table by name."""
        return next(table for table in self.tables if table.table == name)
