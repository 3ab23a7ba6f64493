"""The contract of every state store: subclass it with a ``store`` fixture, and pytest runs the suite on the store.

For a store that several processes share, subclass :class:`SharedStoreContract` with an ``address`` fixture.
"""

from lakeward.testing.state_contract.ledger import LedgerContract
from lakeward.testing.state_contract.processes import ProcessContract
from lakeward.testing.state_contract.shared import (
    CUSTOMER,
    ELSEWHERE,
    NOON,
    PRODUCT,
    PROGRESS,
    HistoryContract,
    LeaseContract,
    RegistryContract,
    dead_owner,
    make_entry,
    make_run,
)

__all__ = [
    "CUSTOMER",
    "ELSEWHERE",
    "NOON",
    "PRODUCT",
    "PROGRESS",
    "SharedStoreContract",
    "StateStoreContract",
    "dead_owner",
    "make_entry",
    "make_run",
]


class StateStoreContract(LeaseContract, LedgerContract, RegistryContract, HistoryContract):
    """The suite for a store of one process; a subclass overrides ``store``."""


class SharedStoreContract(StateStoreContract, ProcessContract):
    """The suite for a store that processes share; a subclass overrides ``address`` and ``wipe``."""
