"""YAML that cannot exhaust the machine: nesting, and what aliases repeat, have a bound.

A few lines in which every alias repeats the one before it ten times stand for more values than any machine holds, and
an alias inside its own anchor for infinitely many. What a person writes by hand stays far below these bounds.
"""

from __future__ import annotations

from typing import Any

import yaml

MAX_DEPTH = 50
MAX_NODES = 200_000
_ENDLESS = "it is nested too deeply, or an alias in it holds itself"


def read_yaml(text: str) -> Any:
    """Read one YAML document, with the types that YAML itself has.

    Raises:
        yaml.YAMLError: the text is no YAML, is nested too deeply, or stands for too many values.
    """
    loader = _BoundedLoader(text)
    try:
        return loader.get_single_data()
    except yaml.YAMLError:
        raise
    except Exception as error:  # the library lets out what a bad date, number or tagged value makes Python raise
        msg = str(error) or type(error).__name__
        raise yaml.YAMLError(msg) from error
    finally:
        loader.dispose()


class _BoundedLoader(yaml.SafeLoader):
    """Counts values as they are composed, those behind an alias as often as it stands."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0
        self._nodes = 0
        self._sizes: dict[int, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        if self.check_event(yaml.AliasEvent):
            node = super().compose_node(parent, index)
            if id(node) not in self._sizes:
                raise yaml.composer.ComposerError(None, None, _ENDLESS, mark)
            self._count(self._sizes[id(node)], mark)
            return node
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise yaml.composer.ComposerError(None, None, _ENDLESS, mark)
        before = self._nodes
        self._count(1, mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        self._sizes[id(node)] = self._nodes - before
        return node

    def _count(self, nodes: int, mark: yaml.Mark) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            msg = f"found more than {MAX_NODES:,} values, aliases written out"
            raise yaml.composer.ComposerError(None, None, msg, mark)
