"""The controller's one thread of work: events run one after the other, in the order in which they came.

Nothing else touches the controller's context, so no event sees another one half done. Events that concern a
term of office (:meth:`EventQueue.post`) are dropped when the term is over; requests
(:meth:`EventQueue.run`) are answered with NOT_CONTROLLER then. An event that fails is logged with its name;
:class:`ControllerMoved` is passed to ``on_moved``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, TypeVar

from tidelog.controller.cluster.leadership_nodes import ControllerMoved
from tidelog.errors import ErrorCode, KafkaError
from tidelog.metadata.store import SessionExpired, StoreClosed
from tidelog.metrics.controller_counts import ControllerCounts

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(slots=True)
class _Event:
    name: str
    work: Callable[[], Awaitable[Any]]
    term: int | None
    answer: asyncio.Future[Any] | None
    posted_s: float = field(default_factory=monotonic)


class EventQueue:
    """Runs events; ``term`` is the term of office that events belong to, 0 while there is none."""

    def __init__(self, on_moved: Callable[[], None]) -> None:
        self.term = 0
        self.counts = ControllerCounts()
        self._on_moved = on_moved
        self._queue: asyncio.Queue[_Event] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._waiting: set[tuple[str, int]] = set()

    def __len__(self) -> int:
        """How many events wait."""
        return self._queue.qsize()

    def start(self) -> None:
        """Begin to run events."""
        self._task = asyncio.get_running_loop().create_task(self._run_all())

    async def close(self) -> None:
        """Stop; what waits is refused."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        while not self._queue.empty():
            self._refuse(self._queue.get_nowait())

    def post(self, name: str, work: Callable[[], Awaitable[None]], *, once: bool = False) -> None:
        """Run ``work`` in this term; with ``once`` an event of that name that waits already is enough."""
        if once:
            if (name, self.term) in self._waiting:
                return
            self._waiting.add((name, self.term))
        self._queue.put_nowait(_Event(name, work, self.term, None))

    def post_always(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run ``work`` whoever is the controller."""
        self._queue.put_nowait(_Event(name, work, None, None))

    async def run(self, name: str, work: Callable[[], Awaitable[T]]) -> T:
        """Run ``work`` in its turn and give its result; raises NOT_CONTROLLER if this is not the
        controller."""
        if not self.term:
            raise not_controller()
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait(_Event(name, work, self.term, answer))
        return await answer

    async def _run_all(self) -> None:
        while True:
            event = await self._queue.get()
            if event.term is not None:
                self._waiting.discard((event.name, event.term))
            if event.term is not None and event.term != self.term:
                self._refuse(event)
                continue
            began_s = monotonic()
            self.counts.waited_us.add((began_s - event.posted_s) * 1_000_000)
            await self._run_one(event)
            self.counts.worked_us.add((monotonic() - began_s) * 1_000_000)

    async def _run_one(self, event: _Event) -> None:
        try:
            result = await event.work()
        except asyncio.CancelledError:
            self._refuse(event)
            raise
        except (ControllerMoved, SessionExpired, StoreClosed) as error:
            logger.info("The controller stops in the middle of %s: %s", event.name, error)
            self._refuse(event)
            self._on_moved()
        except KafkaError as error:
            if event.answer is None or event.answer.done():
                logger.warning("The controller's event %s is refused: %s", event.name, error)
            else:
                event.answer.set_exception(error)
        except Exception as error:
            logger.exception("The controller's event %s failed", event.name)
            if event.answer is not None and not event.answer.done():
                event.answer.set_exception(error)
        else:
            if event.answer is not None and not event.answer.done():
                event.answer.set_result(result)

    def _refuse(self, event: _Event) -> None:
        if event.answer is not None and not event.answer.done():
            event.answer.set_exception(not_controller())


def not_controller() -> KafkaError:
    """The refusal of requests that only the controller can serve."""
    return KafkaError(ErrorCode.NOT_CONTROLLER, "This is not the correct controller for this cluster.")
