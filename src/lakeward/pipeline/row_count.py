"""The cheap check before every op: the mirror has as many rows as the last op left in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.errors import DataError

if TYPE_CHECKING:
    from lakeward.pipeline.context import TableContext
    from lakeward.pipeline.effect import Bases


def require_expected_rows(context: TableContext, bases: Bases) -> None:
    """Stop a table whose mirror was changed by something else; told from metadata alone.

    Raises:
        DataError: the mirror's metadata counts other rows than Lakeward's last commit left.
    """
    if bases.mirror is None or bases.expected_rows is None or bases.mirror.rows == bases.expected_rows:
        return
    msg = (
        f"{context.table}: the mirror has {bases.mirror.rows:,} rows, but op {bases.applied} left "
        f"{bases.expected_rows:,}: something else than Lakeward wrote to {context.mirror.identifier}"
    )
    raise DataError(msg, hint=f"lakeward verify {context.table}   (and with --repair to put it right)")
