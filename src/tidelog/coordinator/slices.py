"""Work of the coordinators that may take long, given as generators: they yield wherever others may run.

Nothing stands still meanwhile. Who goes on after a yield looks each thing up anew. Handlers hand such work to
the broker's dispatcher, which runs it in slices; ``finished`` does it at once, for those without a loop.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar, cast

T = TypeVar("T")

Slices = Generator[None, None, T]
"""Yields often, returns its result."""


def finished(work: Slices[T]) -> T:
    """The result of work that is done at once."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            return cast(T, end.value)
