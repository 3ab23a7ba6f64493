"""The registry in DynamoDB."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakeward.state import codec
from lakeward.state.dynamodb.faults import ConditionFailedError
from lakeward.state.dynamodb.values import table_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.model import TableId
    from lakeward.state.base import RegisteredTable
    from lakeward.state.dynamodb.rows import Rows

_PARTITION = "registry"
_NEW = "attribute_not_exists(#pk)"
_SET_TABLE = "SET #active = :active, #settings = :settings"
_SET_ERROR = (
    "SET #error = :error, #table_schema = :schema, #table_name = :name, "
    "#active = if_not_exists(#active, :inactive), #settings = if_not_exists(#settings, :nothing)"
)


class DynamoRegistry:
    """The part of the store that knows tables."""

    _rows: Rows

    def register(self, table: TableId, *, active: bool) -> bool:
        """Add a table to the registry if it is new."""
        pk, sk = _key(table)
        values = {"active": active, "settings": codec.dump_json({}), "error": None}
        try:
            self._rows.put({"pk": pk, "sk": sk, **codec.table_key(table), **values}, _NEW)
        except ConditionFailedError:
            return False
        return True

    def set_table(
        self, table: TableId, *, active: bool | None = None, settings: dict[str, Any] | None = None
    ) -> RegisteredTable:
        """Register if needed, lay ``settings`` over what is set, set the flag if given."""
        while True:
            self.register(table, active=False)
            item = self._rows.get(*_key(table))
            if item is None:
                continue
            changed = codec.changed_table(codec.registered_table(item), active, settings)
            values = {"active": changed.active, "settings": codec.dump_json(changed.settings)}
            seen = {"seen_active": item["active"], "seen_settings": item["settings"]}
            unchanged = "#active = :seen_active AND #settings = :seen_settings"
            try:
                self._rows.update(_key(table), _SET_TABLE, unchanged, **values, **seen)
            except ConditionFailedError:
                continue
            return changed

    def set_error(self, table: TableId, error: str | None) -> None:
        """Keep, or clear, the error that stopped the table last."""
        values = {"schema": table.schema, "name": table.name, "inactive": False, "nothing": codec.dump_json({})}
        condition = "" if error is not None else "attribute_exists(#pk)"
        try:
            self._rows.update(_key(table), _SET_ERROR, condition, error=codec.error_text(error), **values)
        except ConditionFailedError:
            # There is no such table, and so nothing to clear.
            return

    def registered(self) -> Iterator[RegisteredTable]:
        """All registered tables by name."""
        found = (codec.registered_table(item) for item in self._rows.query(_PARTITION))
        return iter(sorted(found, key=lambda one: one.table))

    def find_table(self, table: TableId) -> RegisteredTable | None:
        """One registered table."""
        item = self._rows.get(*_key(table))
        return codec.registered_table(item) if item is not None else None


def _key(table: TableId) -> tuple[str, str]:
    return _PARTITION, table_text(table)
