"""Why a file as a whole cannot be used. Caught by the reader and told in the file's summary."""

from __future__ import annotations


class UnusableFileError(Exception):
    """The file cannot be read as what it should be; the message says what is wrong."""


class MismatchedFileError(Exception):
    """The columns the file names do not fit the table's schema."""


# How a problem begins that the reader did not foresee; tests look for it.
READER_FAULT = "reading it failed in a way that is a bug in Lakeward"


def unforeseen(error: Exception) -> str:
    """Return the problem of a file whose content made a reader fail: the file stops its table, not the others."""
    return f"{READER_FAULT}: {type(error).__name__}: {error}"
