"""Types that tests of tasks send; they are at module level, where annotations find them."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pydantic


@dataclass
class Address:
    street: str
    number: int


class Item(msgspec.Struct):
    name: str
    price_cents: int


class Customer(pydantic.BaseModel):
    email: str
    age: int
