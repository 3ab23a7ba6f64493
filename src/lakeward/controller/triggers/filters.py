"""Which landing paths may wake a run."""

from __future__ import annotations

from dataclasses import dataclass

from lakeward.sources.storage import is_hidden


@dataclass(frozen=True)
class PathFilter:
    """Lets through visible paths with one of the prefixes and one of the suffixes; none given lets all through."""

    prefixes: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = ()

    def accepts_file(self, path: str) -> bool:
        """Tell whether a new file, by its path under landing, is worth a run."""
        return (
            _is_visible(path)
            and (not self.prefixes or path.startswith(self.prefixes))
            and (not self.suffixes or path.endswith(self.suffixes))
        )

    def accepts_tree(self, folder: str) -> bool:
        """Tell whether a file that would be accepted may lie below a new folder."""
        below = f"{folder}/"
        overlaps = any(below.startswith(one) or one.startswith(below) for one in self.prefixes)
        return _is_visible(folder) and (not self.prefixes or overlaps)


def parent(path: str) -> str:
    """Give the folder of a landing path, empty for landing itself."""
    return path.rpartition("/")[0]


def _is_visible(path: str) -> bool:
    return bool(path) and not any(is_hidden(part) for part in path.split("/"))
