"""Why a file as a whole cannot be used. Caught by the reader and told in the file's summary."""

from __future__ import annotations


class UnusableFileError(Exception):
    """The file cannot be read as what it should be; the message says what is wrong."""


class MismatchedFileError(Exception):
    """The columns the file names do not fit the table's schema."""
