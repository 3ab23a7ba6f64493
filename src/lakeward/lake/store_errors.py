"""What errors of a file system mean: settings and addresses that are wrong, or something that passes."""

from __future__ import annotations

from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from py4j.protocol import Py4JJavaError

from lakeward.errors import ConfigurationError, RetriableError
from lakeward.lake.iceberg.faults import classify_spark_error
from lakeward.system_errors import system_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Kind = TypeVar("Kind", bound=type)
_METHODS = ("exists", "read_text", "write_text", "files", "folders", "move", "remove", "prune", "link", "point")
_GONE = "java.io.FileNotFoundException"
_CHECK = "check the address, s3: in lakeward.yaml and the AWS_* variables"


def telling_errors(store: Kind) -> Kind:
    """Let the methods of a store, whose first argument is a path, raise errors that say what to do about them."""
    for name in _METHODS:
        setattr(store, name, _telling(getattr(store, name)))
    return store


def _telling(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def called(store: object, path: Any, *rest: Any) -> Any:
        with store_errors(path if isinstance(path, str) else str(next(iter(path), ""))):
            return method(store, path, *rest)

    return called


@contextmanager
def store_errors(path: str) -> Iterator[None]:
    """Turn errors of the disk and of Hadoop into those that say what to do; others of Hadoop are left as they are.

    Raises:
        ConfigurationError: there is no such bucket, no permission, or a file where a folder should be.
        RetriableError: the disk or the storage does not answer as it should.
    """
    try:
        yield
    except OSError as error:
        raise system_error(error, path) from error
    except Py4JJavaError as error:
        found = classify_spark_error(error, path)
        if found is None and _GONE in str(error):
            found = RetriableError(f"{path} is gone since it was listed", hint="run again")
        if found is None:
            raise
        hint = _CHECK if isinstance(found, ConfigurationError) else found.hint
        raise type(found)(found.message, hint=hint) from error
