"""Walking over many things on the loop without holding it: a bounded number of them in each turn.

For requests that name, or mean, thousands of partitions or rules. Nothing is kept still meanwhile: whoever
walks looks each thing up anew when its turn has come.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

T = TypeVar("T")


async def in_turns(things: Iterable[T], at_a_time: int) -> AsyncIterator[T]:
    """The things in their order; after every ``at_a_time`` others may run."""
    for count, thing in enumerate(things):
        if count and count % at_a_time == 0:
            await asyncio.sleep(0)
        yield thing
