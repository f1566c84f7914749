"""Incremental fetch sessions (KIP-227): what a client fetches, remembered between its requests.

A session is a map of partitions with, for each, what the client asked last and what it was told last. An
incremental request carries only what changed; its answer carries only partitions with news. Answered
partitions move to the end of the map, so that a client whose ``max_bytes`` is always used up gets round all
of its partitions.

Sessions live in a cache of ``max.incremental.fetch.session.cache.slots``. A newcomer may push out one that
was not used for two minutes; failing that, the smallest that is smaller than itself and older than two
minutes; followers' sessions push out those of consumers and not the other way round. A client that finds no
room is served without one.

``FetchSessions.open`` is called by ``handlers/fetch`` when a request arrives and gives the context for it;
the context's ``select`` is called when the answers are known, and says which of them to send. In between
other requests of the same session may have come: ``select`` then says INVALID_FETCH_SESSION_EPOCH. Sessions
may have very many partitions (``MAX_PARTITIONS`` at most), so all of it works in slices; to a request that
comes while an earlier one is taken in its session is at another epoch.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Generator, Sequence
from typing import TYPE_CHECKING, Protocol

from tidelog.clock import Clock
from tidelog.errors import ErrorCode
from tidelog.wire.fetch import FetchPartition, FetchRequest, FileRange, PartitionAnswer
from tidelog.wire.fetch_request import MAX_PARTITIONS
from tidelog.wire.fetch_response import HIGH_WATERMARK_AT, LOG_START_OFFSET_AT, RECORDS_AT

if TYPE_CHECKING:
    from tidelog.broker.network.answer import Answer, PromisedAnswer
    from tidelog.broker.network.connection import Connection

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EVICTION_MS = 120_000
_REFUSED_MS = 1_000
_MAX_EPOCH = 2**31 - 1
_TOPIC_IDS_SINCE = 13
_SLICE = 256
_LONG_SESSION = 4096

# A topic's name or, since version 13, its id; and the partition.
PartitionKey = tuple[str | bytes | None, int]
Wanted = dict[PartitionKey, FetchPartition]
Answers = dict[PartitionKey, PartitionAnswer]
Selection = tuple[ErrorCode, int, Collection[PartitionKey]]
Selecting = Generator[None, None, Selection]
"""Yields wherever others may have their turn."""
Opening = Generator[None, None, "FetchContext"]
Listed = Collection[tuple[PartitionKey, FetchPartition]]
TopicNames = Callable[[str | bytes | None], str | None]


def records_size(answer: PartitionAnswer) -> int:
    """How many bytes of records an answer for one partition carries."""
    records = answer[RECORDS_AT]
    if isinstance(records, FileRange):
        return records.length
    return len(records) if records is not None else 0


class _Cached:
    """What the client wants of a partition, and what it was told of it last."""

    __slots__ = ("high_watermark", "log_start_offset", "topic", "wanted")

    def __init__(
        self, wanted: FetchPartition, topic: str | None, high_watermark: int = -1, log_start_offset: int = -1
    ) -> None:
        self.wanted = wanted
        self.topic = topic
        self.high_watermark = high_watermark
        self.log_start_offset = log_start_offset

    def is_news(self, answer: PartitionAnswer, size: int) -> bool:
        """Whether the partition belongs into the response; remembers what it says."""
        _, error_code, high_watermark, _, log_start_offset, _, preferred_replica, _, diverging_epoch, _, _ = (
            answer
        )
        news = size > 0 or preferred_replica >= 0 or diverging_epoch is not None
        if self.high_watermark != high_watermark:
            self.high_watermark = high_watermark
            news = True
        if self.log_start_offset != log_start_offset:
            self.log_start_offset = log_start_offset
            news = True
        if error_code:
            # So that the partition is sent again as soon as the error has gone.
            self.high_watermark = -1
            news = True
        return news


class Poll(Protocol):
    """Who serves a session's fetches the short way (``follower_poll``)."""

    def close(self) -> None:
        """The session is over."""

    def fetch(
        self,
        connection: Connection,
        version: int,
        correlation_id: int,
        request: FetchRequest,
        context: IncrementalFetch,
    ) -> Answer | PromisedAnswer | None:
        """Answer a request of the session, now or later; None if it is to go the long way."""


class FetchSession:
    """One client's session; ``partitions`` is in the order in which they are served."""

    __slots__ = (
        "created_ms",
        "epoch",
        "id",
        "is_changing",
        "last_used_ms",
        "partitions",
        "poll",
        "privileged",
        "uses_topic_ids",
    )

    def __init__(
        self,
        id: int,
        partitions: dict[PartitionKey, _Cached],
        *,
        privileged: bool,
        uses_topic_ids: bool,
        now_ms: float,
    ) -> None:
        self.id = id
        self.partitions = partitions
        self.privileged = privileged
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.is_changing = False
        """While a request that changes it is taken in."""
        self.poll: Poll | None = None


def next_epoch(epoch: int) -> int:
    """The epoch of the request after the one with ``epoch``."""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == _MAX_EPOCH else epoch + 1


class FetchContext:
    """A fetch outside any session, where all that was asked is answered; the other kinds build upon it."""

    __slots__ = ("_wanted",)

    def __init__(self, wanted: Wanted) -> None:
        self._wanted: Listed | None = wanted.items()

    @property
    def partition_count(self) -> int:
        """How many partitions are to be read."""
        return len(self._wanted) if self._wanted is not None else 0

    def partitions(self) -> Generator[None, None, Listed]:
        """What is to be read, in the order in which it is; always the same."""
        wanted = self._wanted
        if wanted is None:
            wanted = self._wanted = yield from self._list()
        return wanted

    def _list(self) -> Generator[None, None, Listed]:
        return ()
        yield

    def select(self, answers: Answers) -> Selecting:
        """Error, session id and the partitions to send."""
        return ErrorCode.NONE, NO_SESSION, answers
        yield

    def throttled(self) -> tuple[ErrorCode, int]:
        """Error and session id of an answer without partitions, because a quota is used up; no session has
        begun by it, and one that there is does not move."""
        return ErrorCode.NONE, NO_SESSION

    def topic_of(self, key: PartitionKey) -> str | None:
        """The name of a topic as the session remembers it."""
        return None


class SessionError(FetchContext):
    """A fetch that names a session which is not there, or not at that point."""

    __slots__ = ("_error",)

    def __init__(self, error: ErrorCode) -> None:
        super().__init__({})
        self._error = error

    def select(self, answers: Answers) -> Selecting:
        """Error, session id and the partitions to send."""
        return self._error, NO_SESSION, ()
        yield

    def throttled(self) -> tuple[ErrorCode, int]:
        """Error and session id of an answer without partitions."""
        return self._error, NO_SESSION


class FullFetch(FetchContext):
    """A fetch that lists everything and would like a session for the next ones."""

    __slots__ = ("_create",)

    def __init__(self, wanted: Wanted, create: Callable[[Answers], Generator[None, None, int]]) -> None:
        super().__init__(wanted)
        self._create = create

    def select(self, answers: Answers) -> Selecting:
        """Error, session id and the partitions to send."""
        session_id = yield from self._create(answers)
        return ErrorCode.NONE, session_id, answers


class IncrementalFetch(FetchContext):
    """A fetch within a session."""

    __slots__ = ("_epoch", "session")

    def __init__(self, session: FetchSession) -> None:
        # Listed when somebody asks: nobody does if the fetch goes the short way.
        self._wanted = None
        self.session = session
        self._epoch = session.epoch

    @property
    def partition_count(self) -> int:
        """How many partitions are to be read."""
        return len(self.session.partitions) if self._wanted is None else len(self._wanted)

    def _list(self) -> Generator[None, None, Listed]:
        # Other requests of the session may change it between two slices.
        partitions = self.session.partitions
        keys, cached = list(partitions), list(partitions.values())
        listed: list[tuple[PartitionKey, FetchPartition]] = []
        for start in range(0, len(keys), _SLICE):
            if start:
                yield
            end = start + _SLICE
            listed += [
                (key, each.wanted) for key, each in zip(keys[start:end], cached[start:end], strict=True)
            ]
        return listed

    @property
    def is_latest(self) -> bool:
        """Whether no other request of the session has come since."""
        return self.session.epoch == self._epoch

    def select(self, answers: Answers) -> Selecting:
        """Error, session id and the partitions to send."""
        session = self.session
        if session.epoch != self._epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.id, ()
        partitions = session.partitions
        selected: list[PartitionKey] = []
        for number, (key, answer) in enumerate(answers.items(), 1):
            if not number % _SLICE:
                yield
                if session.epoch != self._epoch:
                    return ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.id, ()
            cached = partitions.get(key)
            size = records_size(answer)
            if cached is not None and cached.is_news(answer, size):
                selected.append(key)
                if size > 0:
                    del partitions[key]
                    partitions[key] = cached
        return ErrorCode.NONE, session.id, selected

    def throttled(self) -> tuple[ErrorCode, int]:
        """Error and session id of an answer without partitions."""
        error = ErrorCode.NONE if self.is_latest else ErrorCode.INVALID_FETCH_SESSION_EPOCH
        return error, self.session.id

    def topic_of(self, key: PartitionKey) -> str | None:
        """The name of a topic as the session remembers it."""
        cached = self.session.partitions.get(key)
        return cached.topic if cached is not None else None


class FetchSessions:
    """The cache of sessions."""

    def __init__(
        self, slots: int, clock: Clock, topic_names: TopicNames, rng: random.Random | None = None
    ) -> None:
        self._slots = slots
        self._clock = clock
        self._topic_name = topic_names
        self._random = rng or random.Random()
        self._sessions: dict[int, FetchSession] = {}
        self.evictions = 0
        """How many sessions gave way to others."""
        self.on_long_ended: Callable[[dict[PartitionKey, _Cached]], None] | None = None
        """Gets what sessions with very many partitions have remembered, to let go of it in slices."""
        # Who found no room lately; those who ask for less soon after need not be compared with every session.
        self._refused: tuple[float, bool, int] = (0.0, False, -1)

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def cached_partitions(self) -> int:
        """How many partitions all sessions together remember."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def open(
        self,
        version: int,
        session_id: int,
        epoch: int,
        wanted: Wanted,
        forgotten: Sequence[PartitionKey],
        *,
        from_follower: bool = False,
    ) -> Opening:
        """The context for one fetch request."""
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            # A full request ends the session that it names.
            self._remove(session_id)
            if epoch == FINAL_EPOCH:
                return FetchContext(wanted)
            uses_topic_ids = version >= _TOPIC_IDS_SINCE
            return FullFetch(
                wanted, lambda answers: self._create(wanted, answers, from_follower, uses_topic_ids)
            )
        session = self._sessions.get(session_id)
        if session is None:
            return SessionError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch or session.is_changing:
            return SessionError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != (version >= _TOPIC_IDS_SINCE):
            return SessionError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.is_changing = True
        try:
            yield from self._change(session, wanted, forgotten)
        finally:
            session.is_changing = False
        return self._continue(session, wanted)

    def _change(
        self, session: FetchSession, wanted: Wanted, forgotten: Sequence[PartitionKey]
    ) -> Generator[None, None, None]:
        partitions = session.partitions
        if forgotten and session.poll is not None:
            # It would look up, between two slices, what is no longer there.
            session.poll.close()
        for number, (key, wish) in enumerate(wanted.items(), 1):
            cached = partitions.get(key)
            if cached is None:
                topic, _ = key
                partitions[key] = _Cached(wish, self._topic_name(topic))
            else:
                cached.wanted = wish
            if not number % _SLICE:
                yield
        for number, key in enumerate(forgotten, 1):
            partitions.pop(key, None)
            if not number % _SLICE:
                yield

    def _continue(self, session: FetchSession, wanted: Wanted) -> FetchContext:
        if self._sessions.get(session.id) is not session:
            # It has ended, or given way to another, while it was changed.
            return SessionError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if len(session.partitions) > MAX_PARTITIONS:
            # The client lists all of them in its next request, which is refused for that.
            self._remove(session.id)
            return SessionError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if not session.partitions:
            self._remove(session.id)
            return FetchContext(wanted)
        session.last_used_ms = self._clock.monotonic_ms()
        session.epoch = next_epoch(session.epoch)
        # Dicts keep their order, so the cache itself is in order of last use.
        del self._sessions[session.id]
        self._sessions[session.id] = session
        return IncrementalFetch(session)

    def _create(
        self, wanted: Wanted, answers: Answers, privileged: bool, uses_topic_ids: bool
    ) -> Generator[None, None, int]:
        now = self._clock.monotonic_ms()
        if len(self._sessions) >= self._slots and self._was_refused(len(answers), privileged, now):
            return NO_SESSION
        partitions: dict[PartitionKey, _Cached] = {}
        for key, answer in answers.items():
            topic, _ = key
            partitions[key] = _Cached(
                wanted[key], self._topic_name(topic), answer[HIGH_WATERMARK_AT], answer[LOG_START_OFFSET_AT]
            )
            if not len(partitions) % _SLICE:
                yield
        if len(self._sessions) >= self._slots and not self._evict_for(len(answers), privileged, now):
            return NO_SESSION
        session_id = self._new_id()
        self._sessions[session_id] = FetchSession(
            session_id, partitions, privileged=privileged, uses_topic_ids=uses_topic_ids, now_ms=now
        )
        return session_id

    def _new_id(self) -> int:
        while True:
            session_id = self._random.randint(1, _MAX_EPOCH)
            if session_id not in self._sessions:
                return session_id

    def _remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._refused = (0.0, False, -1)
            if session.poll is not None:
                session.poll.close()
            if self.on_long_ended is not None and len(session.partitions) > _LONG_SESSION:
                partitions, session.partitions = session.partitions, {}
                self.on_long_ended(partitions)

    def _was_refused(self, size: int, privileged: bool, now: float) -> bool:
        until_ms, refused_privilege, refused_size = self._refused
        return now < until_ms and privileged == refused_privilege and size <= refused_size

    def _evict_for(self, size: int, privileged: bool, now: float) -> bool:
        if self._was_refused(size, privileged, now):
            return False
        victim = self._victim(size, privileged, now)
        if victim is None:
            self._refused = (now + _REFUSED_MS, privileged, size)
            return False
        self._remove(victim.id)
        self.evictions += 1
        return True

    def _victim(self, size: int, privileged: bool, now: float) -> FetchSession | None:
        longest_unused = next(iter(self._sessions.values()), None)
        if longest_unused is None or now - longest_unused.last_used_ms > EVICTION_MS:
            return longest_unused
        least = min(
            (session for session in self._sessions.values() if _may_go(session, privileged)),
            key=_value,
            default=None,
        )
        return least if least is not None and (privileged, size, 0) >= _value(least) else None


def _may_go(session: FetchSession, by_privileged: bool) -> bool:
    if session.last_used_ms - session.created_ms > EVICTION_MS:
        return True
    return by_privileged and not session.privileged


def _value(session: FetchSession) -> tuple[bool, int, int]:
    return session.privileged, len(session.partitions), session.id
