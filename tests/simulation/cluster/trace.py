"""What happened in a run, as a hash and as the last lines of a story.

Two runs of one seed have the same hash, in whatever process: it takes in every message that arrived, every
fault and everything that a client learnt, with the time.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque

_TOLD_LINES = 40


class Trace:
    """The events of one run."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._loop = asyncio.get_running_loop()
        self._began_s = self._loop.time()
        self.events = 0
        self.story: deque[str] = deque(maxlen=_TOLD_LINES)

    def note(self, *what: object) -> None:
        """Something happened."""
        self.events += 1
        self._hash.update(f"{self._loop.time():.6f}{what}".encode())

    def tell(self, *what: object) -> None:
        """Something happened that a person wants to read of."""
        self.note(*what)
        self.story.append(f"{self._loop.time() - self._began_s:7.3f} {' '.join(map(str, what))}")

    @property
    def digest(self) -> str:
        """The hash of all of it so far."""
        return self._hash.hexdigest()
