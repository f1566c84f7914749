"""Keeps a client's metadata fresh: on demand, when it is too old, and for the topics in use only.

Owns the current :class:`ClusterMetadata` and its version, which grows by one with every successful update.
``client._network.cluster`` gives it the function that asks a broker. One task asks at a time; between two
attempts there is at least the retry back-off, which grows while attempts fail or topics stay without
leaders (KIP-580).

Producers and consumers say which topics they use (``add_topics``, ``retain_topics``, ``use_all_topics``),
ask for an update when a broker says that something has moved (``request_update``), and wait for it or
subscribe to it. An answer that came with a produce or fetch response (KIP-951) goes in by ``note_leaders``.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Protocol

from tidelog.client._network.ongoing_errors import PATIENCE_S, OngoingErrors
from tidelog.client._network.retry import Backoff, Deadline
from tidelog.client._network.settings import NetworkSettings
from tidelog.client.errors import AuthenticationError, ClientClosedError, RequestTimeoutError
from tidelog.client.metadata import (
    NO_METADATA,
    ClusterMetadata,
    LeaderHint,
    Node,
    TopicMetadata,
    check_place,
    merge,
    topic_problem,
    with_leaders,
)
from tidelog.errors import ErrorCode, KafkaError, TidelogError
from tidelog.ids import TopicPartition

logger = logging.getLogger(__name__)

_UPDATING = "updating metadata"
# Brokers create a topic, and a broker restarts, in less time than this.
_SHORT_PATIENCE_S = 2.0
# Topics in use that brokers refuse are asked for again: a name or a permission may be corrected. The longer
# they have been refused, the less often.
_REFUSED_TOPICS_S = 2.0
_REFUSED_TOPICS_MAX_S = 30.0
_LIKELY_TO_LAST = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)

UpdateListener = Callable[[ClusterMetadata], None]


class MetadataSource(Protocol):
    """What asks a broker."""

    def __call__(
        self, topics: Collection[str] | None, allow_auto_create: bool, deadline: Deadline
    ) -> Awaitable[ClusterMetadata]:
        """Metadata of ``topics``, None for all, from whichever broker answers; one attempt."""


class MetadataUpdater:
    """The metadata of one client and the task that renews it."""

    def __init__(
        self, settings: NetworkSettings, ask: MetadataSource, ongoing_errors: OngoingErrors | None = None
    ) -> None:
        self.metadata: ClusterMetadata = NO_METADATA
        self.version = 0
        self.last_error: Exception | None = None
        """Why the last update failed; None after one that has not."""
        self.on_refused: Callable[[], None] = lambda: None
        """Called when a broker has refused this client's login or certificate: waiting does not help."""
        self._refusal: AuthenticationError | None = None
        self._ongoing_errors = ongoing_errors or OngoingErrors()
        self._troubled_topics: frozenset[str] = frozenset()
        self._troubled_since = 0.0
        """When an update first found exactly these topics in trouble."""
        self._updated_at: float | None = None
        self._settings = settings
        self._ask = ask
        self._topics: dict[str, float] = {}
        self._all_topics = False
        self._listeners: list[UpdateListener] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._wanted = asyncio.Event()
        self._urgent = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def start(self) -> None:
        """Renew metadata in the background from now on."""
        if self._task is None:
            self._wanted.set()
            self._task = asyncio.get_running_loop().create_task(self._run(), name="metadata updates")

    async def close(self) -> None:
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._wake()

    @property
    def age_s(self) -> float:
        """Seconds since the last update; without end before the first."""
        return float("inf") if self._updated_at is None else time.monotonic() - self._updated_at

    @property
    def topics(self) -> Collection[str]:
        """The topics in use."""
        return self._topics.keys()

    def add_topics(self, names: Iterable[str]) -> None:
        """Topics are in use (again); asks for an update where one of them is new."""
        now = asyncio.get_running_loop().time()
        new = False
        for name in names:
            new = new or name not in self._topics
            self._topics[name] = now
        if new and not self._all_topics:
            self.request_update()
            self._urgent.set()

    def retain_topics(self, names: Collection[str]) -> None:
        """These topics are in use and no others."""
        self._topics = {name: used for name, used in self._topics.items() if name in names}
        self.add_topics(names)

    def use_all_topics(self, wanted: bool) -> None:
        """Whether updates are about every topic there is (subscriptions by pattern)."""
        if wanted and not self._all_topics:
            self.request_update()
        self._all_topics = wanted

    def request_update(self) -> int:
        """Ask for an update soon; the version that it will be newer than."""
        self._wanted.set()
        return self.version

    def subscribe(self, listener: UpdateListener) -> Callable[[], None]:
        """Have ``listener`` called with every new snapshot; the result unsubscribes it."""
        self._listeners.append(listener)

        def unsubscribe() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return unsubscribe

    def note_leaders(self, hints: Mapping[TopicPartition, LeaderHint], nodes: Iterable[Node] = ()) -> bool:
        """Take newer leaders over from a response (KIP-951); whether there was any."""
        metadata = with_leaders(self.metadata, hints, nodes)
        if metadata is self.metadata:
            return False
        self.metadata = metadata
        self._tell()
        return True

    def take(self, fresh: ClusterMetadata, *, keep_other_topics: bool) -> None:
        """An answer has come."""
        self.metadata = merge(self.metadata, fresh, keep_other_topics=keep_other_topics)
        self.version += 1
        self.last_error = self._refusal = None
        self._ongoing_errors.over(_UPDATING)
        self._updated_at = time.monotonic()
        self._tell()

    def forget_nodes(self) -> None:
        """Start again from the bootstrap servers (KIP-899, KIP-1102); what is known of topics stays."""
        known = self.metadata
        self.metadata = ClusterMetadata(known.cluster_id, known.controller_id, {}, known.topics)

    def take_refusal(self) -> AuthenticationError | None:
        """The refusal of this client's login or certificate by the last update; once for each."""
        refusal, self._refusal = self._refusal, None
        return refusal

    async def wait_for_update(self, version: int, deadline: Deadline, what: str) -> ClusterMetadata:
        """Wait for metadata newer than ``version``; ``what`` it is needed for is named when time is up."""
        while self.version <= version:
            await self._wait_for_news(deadline, what)
        return self.metadata

    async def wait_for_topic(
        self, name: str, deadline: Deadline, partition: int | None = None
    ) -> TopicMetadata:
        """The metadata of a topic (which has ``partition``), waiting for one that is about to exist."""
        check_place(name, partition)
        self.add_topics([name])
        while True:
            topic = self.metadata.topics.get(name)
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
            if topic is not None and not error and (partition is None or partition in topic.partitions):
                return topic
            if not error.retriable and error:
                self._topics.pop(name, None)  # the caller hears of it: no topic that is waited for any more
                raise topic_problem(name, error)
            self.request_update()
            try:
                await self._wait_for_news(deadline, f"topic {name!r}")
            except RequestTimeoutError:
                if topic is None:
                    raise
                if error:
                    raise topic_problem(name, error) from None
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"topic {name!r} has no partition {partition}, it has {len(topic.partitions)}",
                ) from None

    async def _wait_for_news(self, deadline: Deadline, what: str) -> None:
        if self._closed:
            raise ClientClosedError(f"the client was closed while metadata of {what} was waited for")
        if isinstance(self.last_error, AuthenticationError):
            raise self.last_error
        news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(news)
        try:
            async with asyncio.timeout(deadline.remaining):
                await news
        except TimeoutError:
            why = "no broker has answered" if self.last_error is None else str(self.last_error)
            raise RequestTimeoutError(
                f"no metadata of {what} within {deadline.timeout_ms / 1000:.3g} s: {why}"
            ) from self.last_error
        finally:
            if news in self._waiting:
                self._waiting.remove(news)

    async def _run(self) -> None:
        backoff = self._backoff()
        while True:
            await _wait(self._wanted, self._due_in())
            self._wanted.clear()
            self._urgent.clear()
            unsettled = not await self._update()
            if unsettled:
                self._wanted.set()
            else:
                backoff = self._backoff()
            # Topics that nobody has asked for yet need not wait until a broker may have changed its mind.
            await _wait(self._urgent, backoff.next_ms() / 1000)

    def _due_in(self) -> float:
        limit_s = self._settings.metadata_max_age_ms / 1000
        if self._troubled_topics and self._updated_at is not None:
            refused_for_s = self._updated_at - self._troubled_since
            limit_s = min(limit_s, max(refused_for_s, _REFUSED_TOPICS_S), _REFUSED_TOPICS_MAX_S)
        return max(limit_s - self.age_s, 0)

    async def _update(self) -> bool:
        """One attempt; whether it has answered all questions."""
        self._drop_idle_topics()
        settings = self._settings
        names = None if self._all_topics else list(self._topics)
        try:
            fresh = await self._ask(
                names, settings.allow_auto_create_topics, Deadline(settings.request_timeout_ms)
            )
        except Exception as error:
            self.last_error = error
            if isinstance(error, AuthenticationError):
                self._ongoing_errors.note(_UPDATING, error, patience_s=0.0)
                self._refusal = error
                self.on_refused()
            else:
                self._ongoing_errors.note(_UPDATING, error, patience_s=_SHORT_PATIENCE_S)
            expected = isinstance(error, TidelogError)
            level = logging.DEBUG if expected else logging.ERROR
            logger.log(level, "metadata update failed: %s", error, exc_info=None if expected else error)
            self._wake()
            return False
        self.take(fresh, keep_other_topics=False)
        self._note_topics(fresh.topics.values() if names else ())
        return all(_is_settled(topic) for topic in fresh.topics.values())

    def _note_topics(self, topics: Iterable[TopicMetadata]) -> None:
        """Note which topics in use cannot be used, and forget those that now can, or are not in use now."""
        problems = {topic.name: topic_problem(topic.name, topic.error) for topic in topics if topic.error}
        for name in self._troubled_topics - problems.keys():
            self._ongoing_errors.over(_waiting_for(name))
        for name, problem in problems.items():
            patience_s = _SHORT_PATIENCE_S if problem.code in _LIKELY_TO_LAST else PATIENCE_S
            self._ongoing_errors.note(_waiting_for(name), problem, patience_s=patience_s)
        if self._troubled_topics != problems.keys():
            self._troubled_topics = frozenset(problems)
            self._troubled_since = time.monotonic()

    def _drop_idle_topics(self) -> None:
        idle_ms = self._settings.metadata_max_idle_ms
        if idle_ms is not None:
            oldest = asyncio.get_running_loop().time() - idle_ms / 1000
            self._topics = {name: used for name, used in self._topics.items() if used >= oldest}

    def _backoff(self) -> Backoff:
        return Backoff(self._settings.retry_backoff_ms, self._settings.retry_backoff_max_ms)

    def _tell(self) -> None:
        for listener in list(self._listeners):
            try:
                listener(self.metadata)
            except Exception:
                # One that fails must not keep the others, and all later updates, from happening.
                logger.exception("a listener for metadata failed")
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for news in waiting:
            if not news.done():
                news.set_result(None)


def _waiting_for(topic: str) -> str:
    return f"waiting for topic {topic!r}"


def _is_settled(topic: TopicMetadata) -> bool:
    if topic.error:
        return not topic.error.retriable
    return all(partition.leader is not None for partition in topic.partitions.values())


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
