"""Who may read the files of the state store and of a local catalog, and whether links may leave landing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pathlib import Path

FileAccess = Literal["private", "umask"]
LinkPolicy = Literal["refuse", "allow"]


def create_folder(folder: Path, access: FileAccess) -> None:
    """Create a folder and those above it where they are missing; what exists keeps its permissions."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    for one in reversed(missing):
        one.mkdir(mode=0o700 if access == "private" else 0o777, exist_ok=True)
    # Refuses a path at which something other than a folder is.
    folder.mkdir(exist_ok=True)


def create_file(file: Path, access: FileAccess) -> None:
    """Create an empty file, which is a database to SQLite, where there is none; it gives its mode to its journals."""
    if not file.exists():
        file.touch(mode=0o600 if access == "private" else 0o666)
