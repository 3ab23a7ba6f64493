"""A small fuzzer: seeds are mutated, each result is given to a target, and what breaks the target's promise is kept.

The same seed number produces the same inputs, so that a failure of a test can be repeated.
"""

from __future__ import annotations

import hashlib
import random
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from lakeward.errors import BugError, LakewardError

CORPUS = Path(__file__).parent / "corpus"
MAX_INPUT = 1 << 16
# No input of 64 KiB may cost more than this, on a machine that is busy with other things.
MAX_SECONDS = 20.0
MAX_GROWTH = 768 << 20
_INTERESTING = (
    b"\0",
    b"\xff",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"\n",
    b"\r",
    b"\r\n",
    b'"',
    b",",
    b"-1",
    b"0",
)


@dataclass(frozen=True)
class Target:
    """Something that reads input from outside. ``run`` raises nothing but errors of Lakeward that are no bugs."""

    name: str
    run: Callable[[bytes], None]
    tokens: tuple[bytes, ...] = ()

    def corpus(self) -> list[bytes]:
        """Return the checked-in inputs: seeds, and what once broke the target."""
        return [path.read_bytes() for path in sorted((CORPUS / self.name).iterdir())]


@dataclass
class Outcome:
    """What a session did: how many inputs were tried, and which of them broke the promise, with the reason."""

    executions: int = 0
    failures: list[tuple[bytes, str]] = field(default_factory=list)


def fuzz(
    target: Target,
    *,
    executions: int | None = None,
    seconds: float | None = None,
    seed: int = 0,
    under_test: Path | None = None,
) -> Outcome:
    """Try the corpus, then mutations of it until a number of executions or a time is reached.

    Each input is written to ``under_test`` before it is tried: a library that ends the process leaves it there.
    """
    corpus, outcome, numbers = target.corpus(), Outcome(), random.Random(seed)
    for data in corpus:
        _try(target, data, outcome)
    deadline = None if seconds is None else time.monotonic() + seconds
    while (executions is None or outcome.executions < executions) and (deadline is None or time.monotonic() < deadline):
        data = mutated(numbers, corpus, target.tokens)
        if under_test is not None:
            under_test.write_bytes(data)
        _try(target, data, outcome)
    return outcome


def mutated(numbers: random.Random, corpus: list[bytes], tokens: tuple[bytes, ...]) -> bytes:
    """Return one of the inputs after a few random changes."""
    data = bytearray(numbers.choice(corpus))
    for _ in range(numbers.choice((1, 1, 2, 3, 5, 8, 20))):
        numbers.choice(_CHANGES)(numbers, data, corpus, tokens)
    return bytes(data[:MAX_INPUT])


def keep(target: Target, data: bytes) -> Path:
    """Add an input to the corpus, under a name that is its content's."""
    folder = CORPUS / target.name
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"found-{hashlib.blake2b(data, digest_size=6).hexdigest()}"
    path.write_bytes(data)
    return path


def _try(target: Target, data: bytes, outcome: Outcome) -> None:
    outcome.executions += 1
    began, before = time.process_time(), _peak()
    reason = None
    try:
        target.run(data)
    except BugError as error:
        reason = f"BugError: {error}"
    except LakewardError:
        pass
    except Exception as error:  # what is looked for
        reason = f"{type(error).__name__}: {error}"
    seconds, growth = time.process_time() - began, _peak() - before
    if reason is None and seconds > MAX_SECONDS:
        reason = f"took {seconds:.0f} s"
    if reason is None and growth > MAX_GROWTH:
        reason = f"took {growth >> 20} MiB"
    if reason is not None:
        outcome.failures.append((data, reason))


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


Numbers, Data, Corpus, Tokens = random.Random, bytearray, list[bytes], tuple[bytes, ...]


def _flip(numbers: Numbers, data: Data, corpus: Corpus, tokens: Tokens) -> None:
    if data:
        data[numbers.randrange(len(data))] ^= 1 << numbers.randrange(8)


def _replace(numbers: Numbers, data: Data, corpus: Corpus, tokens: Tokens) -> None:
    if data:
        data[numbers.randrange(len(data))] = numbers.randrange(256)


def _insert(numbers: Numbers, data: Data, corpus: Corpus, tokens: Tokens) -> None:
    position = numbers.randrange(len(data) + 1)
    data[position:position] = numbers.choice(tokens + _INTERESTING)


def _overwrite(numbers: Numbers, data: Data, corpus: Corpus, tokens: Tokens) -> None:
    token, position = numbers.choice(tokens + _INTERESTING), numbers.randrange(len(data) + 1)
    data[position : position + len(token)] = token


def _delete(numbers: Numbers, data: Data, corpus: Corpus, tokens: Tokens) -> None:
    start = numbers.randrange(len(data) + 1)
    del data[start : start + numbers.choice((1, 2, 4, 16, 64))]


def _repeat(numbers: Numbers, data: Data, corpus: Corpus, tokens: Tokens) -> None:
    start = numbers.randrange(len(data) + 1)
    piece = bytes(data[start : start + numbers.choice((1, 4, 16, 64))])
    data[start:start] = piece * numbers.choice((1, 2, 10, 300))


def _truncate(numbers: Numbers, data: Data, corpus: Corpus, tokens: Tokens) -> None:
    del data[numbers.randrange(len(data) + 1) :]


def _splice(numbers: Numbers, data: Data, corpus: Corpus, tokens: Tokens) -> None:
    other, position = numbers.choice(corpus), numbers.randrange(len(data) + 1)
    data[position:] = other[numbers.randrange(len(other) + 1) :]


_CHANGES = (_flip, _replace, _insert, _overwrite, _delete, _repeat, _truncate, _splice, _flip, _insert, _overwrite)
