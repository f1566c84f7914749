"""The session in which a follower fetches: what its requests name, and when it begins anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from tidelog.broker.cluster.peer_broker import PeerBroker
from tidelog.broker.cluster.remote_leader import RemoteLeader
from tidelog.client._network.connection import AnswerTaker
from tidelog.client.errors import ConnectionLostError
from tidelog.config.broker_config import BrokerConfig
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition, Uuid
from tidelog.replication.leader_endpoint import Answers, FollowerPosition, Positions
from tidelog.wire.fetch import FetchRequest, encode_fetch_response, parse_fetch_request

VERSION = 17
TOPIC = Uuid(b"t" * 16)
OTHER = Uuid(b"o" * 16)
A, B, C = (TopicPartition("t", index) for index in range(3))
SESSION = 77


def position(offset: int, *, epoch: int = 3, topic: Uuid = TOPIC) -> FollowerPosition:
    return FollowerPosition(topic, offset, 0, epoch, 2)


class Leader:
    """The other side: a connection that keeps requests, and answers them when told."""

    is_open = True

    def __init__(self) -> None:
        self.endpoint = RemoteLeader(1, lambda: 5, cast(PeerBroker, self), BrokerConfig({}))
        self.got: list[Answers | Exception] = []
        self.known_connection = self

    def version_of(self, api_key: int, lowest: int, highest: int) -> int:
        return VERSION

    def send_for(
        self, taker: AnswerTaker, api_key: int, version: int, parts: Sequence[bytes], timeout_s: float
    ) -> None:
        self.taker = taker
        self.request: FetchRequest = parse_fetch_request(memoryview(b"".join(parts)), 0, version)

    def ask(self, positions: Positions) -> tuple[int, int, list[tuple[int, int]]]:
        """Session, epoch and the partitions of the request that this comes to, with their offsets."""
        assert self.endpoint.begin_fetch(positions, self.got.append)
        named = [(each.partition, each.fetch_offset) for one in self.request.topics for each in one[2]]
        return self.request.session_id, self.request.session_epoch, named

    def answer(self, *, session_id: int = SESSION, error_code: int = 0) -> Answers | Exception:
        parts = encode_fetch_response(VERSION, 0, (), error_code=error_code, session_id=session_id)
        # Behind the size, the correlation id and the header's tagged fields.
        self.taker.set_result(b"".join(part for part in parts if isinstance(part, bytes))[9:])
        return self.got.pop()


@pytest.fixture
def leader() -> Leader:
    return Leader()


def begin(leader: Leader) -> None:
    assert leader.ask({A: position(1), B: position(2)}) == (0, 0, [(0, 1), (1, 2)])
    assert leader.answer() == {}


def test_a_request_names_what_the_leader_does_not_know(leader: Leader) -> None:
    begin(leader)
    assert leader.ask({A: position(1), B: position(3)}) == (SESSION, 1, [(1, 3)])
    leader.answer()
    assert leader.ask({A: position(1), B: position(3)}) == (SESSION, 2, [])
    leader.answer()
    added = {A: position(1), B: position(3), C: position(0)}
    assert leader.ask(added) == (SESSION, 3, [(2, 0)])


@pytest.mark.parametrize(
    "positions",
    [
        {A: position(1)},
        {A: position(1), C: position(2)},
        {A: position(1), B: position(2, epoch=4)},
        {A: position(1), B: position(2, topic=OTHER)},
    ],
    ids=["one has left", "another in its place", "another epoch", "another topic of the name"],
)
def test_a_session_begins_anew_where_partitions_are_others(leader: Leader, positions: Positions) -> None:
    begin(leader)
    _, epoch, named = leader.ask(positions)
    assert (epoch, len(named)) == (0, len(positions))
    # It names the old session, which ends with that.
    assert leader.request.session_id == SESSION
    leader.answer(session_id=78)
    assert leader.ask(positions) == (78, 1, [])


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ],
)
def test_a_session_that_the_leader_has_forgotten_begins_anew_at_once(leader: Leader, code: int) -> None:
    begin(leader)
    positions = {A: position(1), B: position(3)}
    leader.ask(positions)
    assert leader.answer(error_code=code, session_id=0) == {}
    assert leader.ask(positions)[1:] == (0, [(0, 1), (1, 3)])
    # Where there is no session to forget, it is an error as any other.
    assert isinstance(leader.answer(error_code=code, session_id=0), KafkaError)


def test_without_room_for_a_session_every_request_names_everything(leader: Leader) -> None:
    positions = {A: position(1), B: position(2)}
    for _ in range(2):
        assert leader.ask(positions)[1:] == (0, [(0, 1), (1, 2)])
        assert leader.answer(session_id=0) == {}


def test_after_a_lost_connection_everything_is_named(leader: Leader) -> None:
    begin(leader)
    positions = {A: position(1), B: position(3)}
    leader.ask(positions)
    leader.taker.set_exception(ConnectionLostError("gone"))
    assert isinstance(leader.got.pop(), ConnectionLostError)
    assert leader.ask(positions)[1:] == (0, [(0, 1), (1, 3)])


def test_what_cannot_be_read_ends_the_session(leader: Leader) -> None:
    begin(leader)
    positions = {A: position(1), B: position(3)}
    leader.ask(positions)
    leader.taker.set_result(b"\0")
    assert isinstance(leader.got.pop(), Exception)
    assert leader.ask(positions)[1] == 0
