"""Walk over many things on the event loop without holding it.

For requests that list, or select, thousands of partitions or rules. Other code runs between two steps, so the
caller must look up each thing again when it gets it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

T = TypeVar("T")


async def yielding_every(count: int, things: Iterable[T]) -> AsyncIterator[T]:
    """The things in their order; other code may run after every ``count`` of them."""
    for index, thing in enumerate(things):
        if index and index % count == 0:
            await asyncio.sleep(0)
        yield thing
