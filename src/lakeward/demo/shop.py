"""The shop's rows: stores, products and their orders; and the people of a second database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

Row = dict[str, Any]

STORES, PRODUCTS, ORDERS, PERSONS = 8, 25, 8_425, 101
NEW_ORDERS = 1_345
FIRST_ID = 1001
LOADED = datetime(2024, 4, 5, 0, 30, 0, tzinfo=UTC)
CHANGED = datetime(2024, 4, 6, 9, 15, 0, tzinfo=UTC)

_CITIES = ("Boston", "Chicago", "Denver", "Houston", "Miami", "Portland", "Seattle", "Tucson", "Omaha")
_STATES = ("MA", "IL", "CO", "TX", "FL", "OR", "WA", "AZ", "NE")
_DEPARTMENTS = ("Garden", "Kitchen", "Office", "Sports", "Toys")
_THINGS = ("Basket", "Bottle", "Chair", "Lamp", "Notebook")
_FIRST_NAMES = ("Ann", "Ben", "Chloé", "Dora", "Emil", "Fatma", "Goran", "Hana", "Iván", "José")
_LAST_NAMES = ("Adams", "Brown", "Costa", "Diaz", "Evans", "Fischer", "García", "Hill", "Ito", "Jones", "Kim")


def stores() -> list[Row]:
    """Give the stores of the first load."""
    return [_store(number) for number in range(STORES)]


def new_store() -> Row:
    """Give the store that opens later: 1009."""
    return _store(STORES)


def _store(number: int) -> Row:
    return {
        "id": FIRST_ID + number,
        "address1": f"{100 + 7 * number} Main Street",
        "city": _CITIES[number],
        "state": _STATES[number],
        "countrycode": "USA",
        "postcode": f"{2000 + 371 * number:05}",
    }


def products() -> list[Row]:
    """Give the products of the first load."""
    return [
        {
            "id": FIRST_ID + number,
            "name": f"{_DEPARTMENTS[number % 5]} {_THINGS[number // 5]}",
            "dept": _DEPARTMENTS[number % 5],
            "category": _THINGS[number // 5],
            "price": Decimal(999 + 350 * number) / 100,
            "cost": Decimal(555 + 200 * number) / 100,
        }
        for number in range(PRODUCTS)
    ]


def changed_product() -> Row:
    """Give product 1001 after its price rose."""
    return {**products()[0], "price": Decimal("12.49"), "name": "Garden Basket XL"}


def orders() -> list[Row]:
    """Give the orders of the first load."""
    return _orders(0, ORDERS, LOADED - timedelta(days=90))


def new_orders() -> list[Row]:
    """Give the orders that come in later."""
    return _orders(ORDERS, NEW_ORDERS, LOADED)


def _orders(first: int, count: int, since: datetime) -> list[Row]:
    random = Random(first)
    catalogue = products()
    # The product that is deleted later is no longer ordered then.
    sold = catalogue if first == 0 else [one for one in catalogue if one["id"] != FIRST_ID + 1]
    return [
        {
            "id": first + number + 1,
            "productid": (product := random.choice(sold))["id"],
            "storeid": FIRST_ID + random.randrange(STORES),
            "qty": random.randint(1, 9),
            "soldprice": product["price"],
            "create_dt": since + timedelta(minutes=15 * number),
        }
        for number in range(count)
    ]


def persons() -> list[Row]:
    """Give the persons of the first load: 1 to 101."""
    return [person(number) for number in range(1, PERSONS + 1)]


def person(number: int) -> Row:
    """Give one person; some have no city."""
    name = f"{_FIRST_NAMES[number % len(_FIRST_NAMES)]} {_LAST_NAMES[number % len(_LAST_NAMES)]}"
    city = None if number % 17 == 0 else _CITIES[number % len(_CITIES)]
    return {"PersonID": number, "FullName": name, "City": city}
