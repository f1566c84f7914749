"""Goes over many things in slices, because nobody may hold the loop for as long as all of them take.

Between two slices some of the things may go or change and others come: what gives them must bear that (a list
that was made at the beginning does), and who looks at one asks whether it is still there.

Used by what the coordinators do by themselves: expiry, deletion, timeouts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from tidelog.clock import Clock

T = TypeVar("T")

SLICE_MS = 4.0
"""After so long others have their turn."""
_LOOKED_AT_BETWEEN_CLOCKS = 32


class Sweep(Generic[T]):
    """One round after the other over the same kind of things."""

    def __init__(self, clock: Clock, things: Callable[[], Iterable[T]]) -> None:
        self._clock = clock
        self._things = things
        self._left: Iterator[T] | None = None

    @property
    def is_done(self) -> bool:
        """Whether the round is over, so that the next slice begins another."""
        return self._left is None

    def abandon(self) -> None:
        """What is left of this round is not gone over."""
        self._left = None

    def slice(self) -> Iterator[T]:
        """The next of them, for as long as a slice lasts; who stops earlier goes on there the next time."""
        if self._left is None:
            self._left = iter(self._things())
        until_ms = self._clock.monotonic_ms() + SLICE_MS
        for count, thing in enumerate(self._left, 1):
            yield thing
            if not count % _LOOKED_AT_BETWEEN_CLOCKS and self._clock.monotonic_ms() >= until_ms:
                return
        self._left = None
