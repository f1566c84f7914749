"""Work that may take long, written as a generator that yields wherever other code may run.

Other code runs between two slices, so the work must look up again what it used before. Handlers return such
work to the dispatcher, which runs it in the ``slow_lane``; ``run_to_end`` runs it at once, for short work and
for callers without a loop.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar, cast

T = TypeVar("T")

Slices = Generator[None, None, T]
"""Yields often, returns its result."""

_CLEARED_AT_ONCE = 256


def run_to_end(work: Slices[T]) -> T:
    """Run the work without a pause and return its result."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            return cast(T, end.value)


def clear_in_slices(entries: dict[Any, Any]) -> Slices[None]:
    """Remove all entries of a large dict, which takes as long as adding them did."""
    while entries:
        for _ in range(min(len(entries), _CLEARED_AT_ONCE)):
            entries.popitem()
        yield
