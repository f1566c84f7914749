"""The client's half of an incremental fetch session (KIP-227): one per broker.

The broker remembers which partitions are asked for and from where; a request names only those that are new,
have moved on or are gone. Both sides count the requests of a session (its epoch), so that either notices
when the other has forgotten it; then the next request is a full one that begins a new session.

Invariant: ``partitions`` is what the broker holds once it has taken the last request built here. Used by
``consumer._fetch.fetcher``, which sends no second request before the first is answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tidelog.errors import ErrorCode
from tidelog.ids import ZERO_UUID, TopicPartition, Uuid

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1


class PartitionAsk(NamedTuple):
    """What is asked for of one partition."""

    topic_id: Uuid
    fetch_offset: int
    max_bytes: int
    leader_epoch: int


class SessionRequest(NamedTuple):
    """One request of a session: what it has to name."""

    session_id: int
    epoch: int
    to_send: Mapping[TopicPartition, PartitionAsk]
    to_forget: tuple[tuple[TopicPartition, Uuid], ...]
    has_topic_ids: bool
    """Whether topics can be named by id, in versions that do."""

    @property
    def is_full(self) -> bool:
        return self.epoch in (INITIAL_EPOCH, FINAL_EPOCH)


class FetchSession:
    """The session with one broker."""

    def __init__(self) -> None:
        self.session_id = NO_SESSION
        self.partitions: dict[TopicPartition, PartitionAsk] = {}
        self.topic_names: dict[Uuid, str] = {}
        """The topics of ``partitions`` by their ids, which is how answers name them since version 13."""
        self._epoch = INITIAL_EPOCH

    def build(self, wanted: Mapping[TopicPartition, PartitionAsk]) -> SessionRequest:
        """The request that makes the session be about exactly ``wanted``, in that order."""
        self.topic_names = {ask.topic_id: partition.topic for partition, ask in wanted.items()}
        has_ids = ZERO_UUID not in self.topic_names
        if self._epoch == INITIAL_EPOCH:
            self.partitions = dict(wanted)
            return SessionRequest(self.session_id, self._epoch, dict(wanted), (), has_ids)
        known = self.partitions
        to_send = {tp: ask for tp, ask in wanted.items() if known.get(tp) != ask}
        to_forget = tuple(
            (tp, before.topic_id)
            for tp, before in known.items()
            if (ask := wanted.get(tp)) is None or _is_recreated(before, ask)
        )
        has_ids = has_ids and all(topic_id != ZERO_UUID for _, topic_id in to_forget)
        self.partitions = dict(wanted)
        return SessionRequest(self.session_id, self._epoch, to_send, to_forget, has_ids)

    def build_once(self, wanted: Mapping[TopicPartition, PartitionAsk]) -> SessionRequest:
        """A request without a session: the broker remembers nothing."""
        self.topic_names = {ask.topic_id: partition.topic for partition, ask in wanted.items()}
        self.partitions = dict(wanted)
        return SessionRequest(NO_SESSION, FINAL_EPOCH, self.partitions, (), ZERO_UUID not in self.topic_names)

    def build_close(self) -> SessionRequest | None:
        """The request that ends the session, None where there is none."""
        if self.session_id == NO_SESSION:
            return None
        request = SessionRequest(self.session_id, FINAL_EPOCH, {}, (), True)
        self.reset()
        return request

    def accept(self, error_code: int, session_id: int) -> bool:
        """The broker has answered; whether the answer is one to the request."""
        if error_code:
            if error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self.session_id = NO_SESSION
            self._epoch = INITIAL_EPOCH
            return False
        if session_id == NO_SESSION:
            self.reset()
        elif self._epoch == INITIAL_EPOCH:
            self.session_id = session_id
            self._epoch = 1
        else:
            self._epoch = 1 if self._epoch == 0x7FFFFFFF else self._epoch + 1
        return True

    def failed(self) -> None:
        """Nobody knows what the broker holds now: the next full request ends the session, if there is one."""
        self._epoch = INITIAL_EPOCH

    def reset(self) -> None:
        """There is no session any more."""
        self.session_id = NO_SESSION
        self._epoch = INITIAL_EPOCH


def _is_recreated(before: PartitionAsk, now: PartitionAsk) -> bool:
    return before.topic_id != now.topic_id and ZERO_UUID not in (before.topic_id, now.topic_id)
