"""Text from outside: JSON that Lakeward once wrote and that may be damaged since, and addresses that people write.

Neither is a bug when it cannot be read, whatever exception its reader raises.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

from lakeward.errors import ConfigurationError, DataError, LakewardError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

# What taking an unexpected document apart can raise.
MALFORMED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


@contextmanager
def refusing_damage(what: str, *, hint: str, kind: type[LakewardError] = DataError) -> Iterator[None]:
    """Turn whatever reading a document raises into an error that names it.

    Raises:
        LakewardError: of the given kind; the document is not what was once written.
    """
    try:
        yield
    except MALFORMED as error:
        found = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        msg = f"{what} is damaged: {found}"
        raise kind(msg, hint=hint) from error


def reading_property(name: str, *, of: str) -> AbstractContextManager[None]:
    """Refuse a table property that is not as it was written.

    Raises:
        DataError: inside the context.
    """
    earlier = (
        f"set {name} back to what an earlier metadata file of the {of} says (its table metadata_log_entries names them)"
    )
    return refusing_damage(f"the property {name} of the {of}", hint=earlier)


def json_object(text: str) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        ValueError: the text is no JSON, or another value than an object.
    """
    found = json.loads(text)
    if not isinstance(found, dict):
        msg = f"expected a JSON object, found {text[:40]!r}"
        raise ValueError(msg)  # noqa: TRY004 - one type for all that is wrong with the text
    return found


def split_address(text: str, what: str) -> SplitResult:
    """Take an address apart.

    Raises:
        ConfigurationError: it cannot be; the message does not repeat it, because it may hold a password.
    """
    try:
        return urlsplit(text)
    except ValueError as error:
        msg = f"{what} is no address: {error}"
        raise ConfigurationError(msg, hint="an address of IPv6 is written in brackets: http://[::1]:8080/") from None
