"""The registry: tables, their settings, and what stopped them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from lakeward.model import TableId
from lakeward.testing.state_contract.samples import CUSTOMER, PRODUCT
from lakeward.testing.state_contract.stores import WithStore

if TYPE_CHECKING:
    from lakeward.state.base import StateStore


class RegistryContract(WithStore):
    """What is known of tables."""

    def test_a_table_is_registered_once(self, store: StateStore) -> None:
        assert store.register(PRODUCT, active=False)
        assert not store.register(PRODUCT, active=True)
        found = store.find_table(PRODUCT)
        assert found is not None
        assert (found.active, found.settings, found.error) == (False, {}, None)
        assert store.find_table(CUSTOMER) is None

    def test_settings_are_laid_over_and_none_unsets(self, store: StateStore) -> None:
        store.set_table(PRODUCT, settings={"primary_key": ["id"], "path": "a/ö", "csv": {"header": True}})
        changed = store.set_table(PRODUCT, active=True, settings={"path": None, "partition_by": ["dept"]})
        assert changed.active
        assert changed.settings == {"primary_key": ["id"], "partition_by": ["dept"], "csv": {"header": True}}
        assert store.find_table(PRODUCT) == changed
        assert store.set_table(PRODUCT) == changed

    def test_a_table_set_for_the_first_time_is_inactive_unless_told(self, store: StateStore) -> None:
        assert not store.set_table(PRODUCT, settings={"primary_key": ["id"]}).active
        assert store.set_table(CUSTOMER, active=True).active

    def test_changing_what_was_returned_changes_nothing_stored(self, store: StateStore) -> None:
        store.set_table(PRODUCT, settings={"primary_key": ["id"]}).settings["primary_key"].append("x")
        next(store.registered()).settings.clear()
        found = store.find_table(PRODUCT)
        assert found is not None
        assert found.settings == {"primary_key": ["id"]}

    def test_an_error_is_kept_until_cleared(self, store: StateStore) -> None:
        store.set_error(CUSTOMER, None)
        assert store.find_table(CUSTOMER) is None
        store.set_error(PRODUCT, "bad row")
        found = store.find_table(PRODUCT)
        assert found is not None
        assert (found.active, found.error) == (False, "bad row")
        assert store.set_table(PRODUCT, active=True).error == "bad row"
        store.set_error(PRODUCT, None)
        cleared = store.find_table(PRODUCT)
        assert cleared is not None
        assert (cleared.active, cleared.error) == (True, None)

    def test_registered_tables_come_by_name(self, store: StateStore) -> None:
        names = ["b.a", "a.ä", "B.z", "a.z", "a.Z"]
        for name in names:
            store.register(TableId.parse(name), active=True)
        assert [found.table for found in store.registered()] == sorted(TableId.parse(name) for name in names)

    def test_an_error_is_kept_readable_whatever_it_holds(self, store: StateStore) -> None:
        store.set_error(PRODUCT, "value 'a\0b\ud800' of größe ".ljust(1_000_000, "x"))
        found = store.find_table(PRODUCT)
        assert found is not None
        assert found.error is not None
        assert found.error.startswith("value 'a\N{REPLACEMENT CHARACTER}b?' of größe xxx")
        assert found.error.endswith("… (shortened from 1,000,000 characters)")
        assert len(found.error) < 25_000

    def test_the_same_name_in_two_schemas_is_two_tables(self, store: StateStore) -> None:
        twins = [TableId("a", "b.c"), TableId("a.b", "c"), TableId("a", "b"), TableId("b", "a")]
        for number, table in enumerate(twins):
            store.set_table(table, settings={"path": str(number)})
        assert {found.table: found.settings["path"] for found in store.registered()} == {
            table: str(number) for number, table in enumerate(twins)
        }

    def test_settings_set_at_the_same_time_are_all_kept(self, store: StateStore) -> None:
        barrier = threading.Barrier(6)

        def set_one(number: int) -> None:
            barrier.wait()
            store.set_table(PRODUCT, settings={f"setting-{number}": number})

        threads = [threading.Thread(target=set_one, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = store.find_table(PRODUCT)
        assert found is not None
        assert found.settings == {f"setting-{number}": number for number in range(6)}
