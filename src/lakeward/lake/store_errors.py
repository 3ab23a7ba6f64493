"""Stores whose methods raise errors that say what to do about them."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from lakeward.spark.errors import store_errors

if TYPE_CHECKING:
    from collections.abc import Callable

Kind = TypeVar("Kind", bound=type)
_METHODS = ("exists", "read_text", "write_text", "files", "folders", "move", "remove", "prune", "link", "point")


def telling_errors(store: Kind) -> Kind:
    """Translate the errors of a store's methods, whose first argument is a path."""
    for name in _METHODS:
        setattr(store, name, _translated(getattr(store, name)))
    return store


def _translated(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def called(store: object, path: Any, *rest: Any) -> Any:
        with store_errors(path if isinstance(path, str) else str(next(iter(path), ""))):
            return method(store, path, *rest)

    return called
