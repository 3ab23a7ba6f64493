"""One budget for a whole job: kept by the driver process, asked by every task before it works.

Tasks come and go; none of them has a share of its own. Each asks for what it needs next, gets a small part of it at a
time in turn with the others, and hands back what it did not use. So the cluster sees the rate that was asked for,
whatever the number of tasks.
"""

from __future__ import annotations

from lakeward.cassandra.budget.amounts import RateLimits, Totals
from lakeward.cassandra.budget.client import BudgetClient, budget_client
from lakeward.cassandra.budget.server import BudgetServer
from lakeward.cassandra.budget.wire import BudgetAddress

__all__ = ["BudgetAddress", "BudgetClient", "BudgetServer", "RateLimits", "Totals", "budget_client"]
