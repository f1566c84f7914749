"""One standing watch on a node of ZooKeeper, made of its one-shot ones.

After each event the watch is set anew, and only then is the owner told: a change before that is one that
the owner sees when it looks, a change after it is another event. An event may stand for several changes, or
for none (the connection was away): owners look at the node, whatever they are told.

Invariant: at most one read is under way that sets the watch, and an event during it leads to another. Owned
by ``metadata.zookeeper``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from tidelog.metadata.store import StoreError

logger = logging.getLogger(__name__)

Setter = Callable[[str, bool, Callable[[Any], None]], Awaitable[None]]


class Watch:
    """A path, whether its children are meant, and whom to tell."""

    def __init__(
        self,
        path: str,
        on_change: Callable[[], None],
        of_children: bool,
        loop: asyncio.AbstractEventLoop,
        set_watch: Setter,
    ) -> None:
        self._path = path
        self._on_change = on_change
        self._of_children = of_children
        self._loop = loop
        self._set_watch = set_watch
        self._task: asyncio.Task[None] | None = None
        self._again = False
        self._stopped = False
        self._generation = 0

    def begin(self) -> None:
        """Set the watch, for the first time or because the connection is back, and have the owner look."""
        self._changed()

    def stop(self) -> None:
        """Tell the owner no more."""
        self._stopped = True
        if self._task is not None:
            self._task.cancel()

    def _on_event(self, generation: int, event: Any) -> None:
        """Runs in a thread of kazoo's."""
        # NONE is about the connection; the store sets all watches again when it is back.
        if event.type != "NONE":
            self._loop.call_soon_threadsafe(self._fired, generation)

    def _fired(self, generation: int) -> None:
        if generation == self._generation:
            self._changed()

    def _changed(self) -> None:
        if self._stopped:
            return
        if self._task is not None and not self._task.done():
            self._again = True
        else:
            self._task = self._loop.create_task(self._arm())

    async def _arm(self) -> None:
        while True:
            self._again = False
            self._generation += 1
            try:
                await self._set_watch(
                    self._path, self._of_children, partial(self._on_event, self._generation)
                )
            except StoreError as error:
                # The next session sets it again; if that has begun meanwhile, `begin` has been called.
                logger.debug("The watch of %s is not set: %s", self._path, error)
            else:
                if not self._stopped:
                    self._on_change()
            if not self._again:
                return
