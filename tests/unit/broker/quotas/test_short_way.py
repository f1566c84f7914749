"""Produce and fetch take their short way under quotas, too: all are charged and pause as on the long one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rigs.clock import ManualClock
from tests.rigs.raw_client import RawClient
from tests.rigs.raw_topic import RawTopic, batch

from tidelog.broker.handlers import fetch, produce
from tidelog.broker.quotas import request_time
from tidelog.broker.quotas.client_quotas import ClientQuotas
from tidelog.broker.quotas.payer import Payer, payer_of
from tidelog.broker.quotas.rate_quota import RateQuota
from tidelog.security.principal import Principal
from tidelog.security.session import Session
from tidelog.testing.broker_thread import BrokerThread
from tidelog.wire.api import ApiKey
from tidelog.wire.headers import RequestHeader, encode_request
from tidelog.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    EntityData,
    OpData,
)
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tidelog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

NewTopic = Callable[..., RawTopic]
Windows = list[tuple[float, float, float]]
PRODUCE, FETCH, TIME = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
KINDS = (PRODUCE, FETCH, TIME)
# A request of this long, which is exact in binary, is 25 % of a second.
REQUEST_S = 0.25


class Step(NamedTuple):
    """What a client does: it waits, and sends or asks for so many bytes."""

    wait_ms: int
    size: int


class Seen(NamedTuple):
    """What comes of it: the answer, and whether its connection is read from."""

    throttle_time_ms: int
    size: int
    is_muted: bool


class Used(NamedTuple):
    """What is recorded of a client: its windows, from the first on, and how often it had to pause."""

    windows: Windows
    throttled: int


class Scene:
    """A broker whose quotas go by a clock that stands still, and that counts who takes the short way."""

    def __init__(self, broker: BrokerThread, client: RawClient, monkeypatch: pytest.MonkeyPatch) -> None:
        self.broker = broker
        self.clock = ManualClock()
        self.short: list[bool] = []
        self.is_short = True
        self._client = client
        self._opened: list[RawClient] = []
        self._names: list[str] = []
        self._now_s = 1024.0
        monkeypatch.setattr(broker.call(lambda running: running.quotas), "_clock", self.clock)
        monkeypatch.setattr(request_time, "perf_counter", lambda: self._now_s)
        for module, parse in ((produce, "parse_short_produce"), (fetch, "parse_fetch_request")):
            monkeypatch.setattr(module, parse, self._slow(getattr(module, parse)))
        for within in ("produced_within", "fetched_within"):
            monkeypatch.setattr(ClientQuotas, within, self._counted(getattr(ClientQuotas, within)))

    def _slow(self, parse: Callable[..., Any]) -> Callable[..., Any]:
        def parsing(*args: Any) -> Any:
            self._now_s += REQUEST_S
            return parse(*args)

        return parsing

    def _counted(self, within: Callable[..., bool]) -> Callable[..., bool]:
        def counting(*args: Any) -> bool:
            self.short.append(self.is_short and within(*args))
            return self.short[-1]

        return counting

    def limit(self, name: str, **quotas: float) -> None:
        """The quotas of a client are these, and no others."""
        self._names.append(name)
        entry = AlterClientQuotasRequestEntryData(
            entity=[EntityData(entity_type="client-id", entity_name=name)],
            ops=[OpData(key=kind, value=quotas.get(kind, 0.0), remove=kind not in quotas) for kind in KINDS],
        )
        request = AlterClientQuotasRequest(entries=[entry])
        (result,) = self._client.ask(1, request, AlterClientQuotasResponse).entries
        assert result.error_code == 0

    def open(self, name: str) -> RawClient:
        """A connection that is closed with the scene."""
        self._opened.append(RawClient(self.broker.host, self.broker.port, client_id=name))
        return self._opened[-1]

    def close(self) -> None:
        """Leave the broker without quotas."""
        for each in self._opened:
            each.close()
        for name in set(self._names):
            self.limit(name)

    def is_muted(self, client: RawClient) -> bool:
        """Whether the broker has a client pause."""
        port = client.sock.getsockname()[1]
        return self.broker.call(
            lambda running: any(
                each.throttled for each in running.network.connections if each.peer[1] == port
            )
        )

    def produce(self, client: RawClient, topic: RawTopic, size: int, acks: int = -1) -> Seen:
        """Send a batch with a value of ``size`` bytes."""
        data = PartitionProduceData(index=0, records=batch(bytes(size)))
        named = [TopicProduceData(name=topic.name, partition_data=[data])]
        request = ProduceRequest(acks=acks, timeout_ms=5000, topic_data=named)
        answer = client.ask(9, request, ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == 0
        return Seen(answer.throttle_time_ms, size, self.is_muted(client))

    def fetch(self, client: RawClient, topic: RawTopic, size: int) -> Seen:
        """Ask for ``size`` bytes from the beginning on."""
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=size)
        named = [FetchTopic(topic=topic.name, partitions=[wanted])]
        answer = client.ask(
            12, FetchRequest(max_bytes=1 << 20, session_epoch=-1, topics=named), FetchResponse
        )
        got = sum(len(each.records or b"") for one in answer.responses for each in one.partitions)
        return Seen(answer.throttle_time_ms, got, self.is_muted(client))

    def used(self, name: str, kind: str) -> Used | None:
        """What is recorded of a client; None if nothing is."""

        def look(quotas: ClientQuotas) -> Used | None:
            quota: RateQuota | None = {
                PRODUCE: quotas.produce,
                FETCH: quotas.fetch,
                TIME: None if quotas.request is None else quotas.request.quota,
            }[kind]
            share = None if quota is None else quota.levels.shares.get(("", name))
            if share is None:
                return None
            share.meter.measure(self.clock.monotonic_ms())
            windows = share.meter._windows
            first_ms = windows[0].begun_ms if windows else 0.0
            found = [(each.begun_ms - first_ms, each.last_ms - first_ms, each.total) for each in windows]
            return Used(found, share.throttled)

        return self.broker.call(lambda running: look(running.quotas))

    def play(
        self, name: str, do: Callable[[RawClient, int], Seen], steps: list[Step], **quotas: float
    ) -> tuple[list[Seen], list[Used | None]]:
        """What a client sees that takes these steps, on a new connection while the other pauses."""
        self.limit(name, **quotas)
        client = self.open(name)
        seen: list[Seen] = []
        for wait_ms, size in steps:
            self.clock.advance(wait_ms)
            seen.append(do(client, size))
            if seen[-1].is_muted:
                client = self.open(name)
        used = [self.used(name, kind) for kind in KINDS]
        self.clock.advance(60_000)
        return seen, used


@pytest.fixture
def scene(broker: BrokerThread, client: RawClient, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    made = Scene(broker, client, monkeypatch)
    yield made
    made.close()


def compare(
    scene: Scene, do: Callable[[RawClient, int], Seen], steps: list[Step], **quotas: float
) -> list[Seen]:
    """Both ways see and leave the same; the short one is taken by some and not by all."""
    scene.short.clear()
    short = scene.play("short", do, steps, **quotas)
    assert any(scene.short)
    assert not all(scene.short)
    scene.short.clear()
    scene.is_short = False
    assert scene.play("long-", do, steps, **quotas) == short
    assert len(scene.short) == len(steps)
    assert not any(scene.short)
    return short[0]


# Within the quota, beyond it twice, within it again after the windows are over, in several of them.
PRODUCED = [
    Step(0, 3000),
    Step(400, 3000),
    Step(700, 3000),
    Step(0, 5000),
    Step(10, 100),
    Step(12_000, 100),
    *[Step(990, 700)] * 14,
    Step(1, 9000),
    Step(10_999, 100),
]


@pytest.mark.parametrize("acks", [1, -1])
def test_producers_are_charged_and_pause_for_bytes_as_on_the_long_way(
    scene: Scene, new_topic: NewTopic, acks: int
) -> None:
    topic = new_topic()
    seen = compare(
        scene,
        lambda client, size: scene.produce(client, topic, size, acks),
        PRODUCED,
        producer_byte_rate=1000,
    )
    assert [each.throttle_time_ms > 0 for each in seen[:6]] == [False] * 3 + [True] * 2 + [False]
    assert all(each.is_muted == (each.throttle_time_ms > 0) for each in seen)


# Room for it; then beyond; what a quota gives in ten windows, and a little more; a batch that is more.
FETCHED = [
    Step(0, 2500),
    Step(0, 2500),
    Step(900, 100),
    Step(11_500, 1500),
    *[Step(990, 1100)] * 12,
    Step(12_000, 40_000),
    Step(0, 1500),
    Step(0, 1500),
    Step(12_000, 1500),
]


@pytest.mark.parametrize("rate", [300, 150, 100])
def test_consumers_are_charged_and_pause_for_bytes_as_on_the_long_way(
    scene: Scene, new_topic: NewTopic, rate: int
) -> None:
    topic = new_topic()
    for _ in range(6):
        topic.produce(batch(bytes(1000)))
    small = new_topic()
    small.produce(batch(bytes(10)))

    def ask(client: RawClient, size: int) -> Seen:
        return scene.fetch(client, topic if size > 100 else small, size)

    steps = [Step(0, 100), Step(12_000, 100), *FETCHED]
    seen = compare(scene, ask, steps, consumer_byte_rate=rate)
    assert any(each.throttle_time_ms for each in seen)
    assert all(each.is_muted == (each.throttle_time_ms > 0) == (not each.size) for each in seen)


# A quarter of a second each, of ten seconds' worth of a tenth; the last after all of it is forgotten.
TIMED = [*[Step(100, 100)] * 6, Step(3000, 100), Step(12_000, 100), *[Step(990, 100)] * 12, Step(12_000, 100)]


def test_the_time_of_producers_is_charged_as_on_the_long_way(scene: Scene, new_topic: NewTopic) -> None:
    topic = new_topic()
    seen = compare(
        scene, lambda client, size: scene.produce(client, topic, size), TIMED, request_percentage=10
    )
    assert [each.throttle_time_ms for each in seen[:6]] == [0] * 4 + [1000] * 2


def test_the_time_of_consumers_is_charged_as_on_the_long_way(scene: Scene, new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.produce(batch(bytes(10)))
    seen = compare(scene, lambda client, size: scene.fetch(client, topic, size), TIMED, request_percentage=10)
    assert [each.throttle_time_ms for each in seen[:6]] == [0] * 4 + [1000] * 2


@pytest.mark.parametrize("percentage", [10, 1000])
@pytest.mark.parametrize("rate", [100, 10**9])
def test_whoever_has_quotas_of_both_is_charged_for_both(
    scene: Scene, new_topic: NewTopic, percentage: int, rate: int
) -> None:
    topic = new_topic()
    topic.produce(batch(bytes(200)))
    both = {TIME: percentage, PRODUCE: rate, FETCH: rate}
    for do in (scene.produce, scene.fetch):
        scene.is_short = True
        compare(
            scene,
            lambda client, size, do=do: do(client, topic, size),  # type: ignore[misc]
            [Step(0, 1), *TIMED],
            **both,
        )


def test_a_quota_holds_from_the_next_request_of_an_open_connection_on(
    scene: Scene, new_topic: NewTopic
) -> None:
    topic = new_topic()
    topic.produce(batch(bytes(1000)))
    first, second = scene.open("open"), scene.open("open")
    free = Seen(0, 500, False)
    assert scene.produce(first, topic, 500) == free
    assert scene.used("open", PRODUCE) is None
    scene.limit("open", **{PRODUCE: 10_000, FETCH: 10_000})
    for _ in range(3):
        assert scene.produce(first, topic, 500) == free
        assert scene.fetch(first, topic, 2000).throttle_time_ms == 0
    assert scene.short[-2:] == [True, True]
    produced, fetched = scene.used("open", PRODUCE), scene.used("open", FETCH)
    assert produced is not None
    assert fetched is not None
    ((_, _, bytes_in),) = produced.windows
    ((_, _, bytes_out),) = fetched.windows
    assert bytes_in > 1500
    assert bytes_out > 3000
    # What was used stays used: a smaller quota is beyond it at once.
    scene.limit("open", **{PRODUCE: 10, FETCH: 10})
    paused = scene.produce(first, topic, 500)
    assert paused.throttle_time_ms > 100_000
    assert paused.is_muted
    nothing = scene.fetch(second, topic, 2000)
    assert (nothing.size, nothing.is_muted) == (0, True)
    third = scene.open("open")
    scene.limit("open", **{PRODUCE: 10**9})
    assert scene.produce(third, topic, 500) == free
    assert scene.fetch(third, topic, 2000).size > 0
    scene.limit("open")
    assert scene.produce(third, topic, 500) == free
    assert scene.fetch(third, topic, 2000).size > 0


def test_who_calls_itself_otherwise_on_one_connection_pays_by_its_new_name(
    scene: Scene, new_topic: NewTopic
) -> None:
    topic = new_topic()
    scene.limit("one", **{PRODUCE: 10_000})
    scene.limit("other", **{PRODUCE: 10_000})
    client = scene.open("one")
    for name in ("one", "other", "one", "one", "nobody"):
        client.client_id = name
        scene.produce(client, topic, 500)
    one, other = scene.used("one", PRODUCE), scene.used("other", PRODUCE)
    assert one is not None
    assert other is not None
    # Its frames are longer by two bytes, of its name.
    assert one.windows[0][2] + 3 * 2 == 3 * other.windows[0][2]


@given(
    st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 5000)), max_size=60),
    st.integers(1, 12),
    st.floats(0, 2000),
)
def test_whoever_is_charged_at_once_if_there_is_room_pauses_as_whoever_is_judged_each_time(
    steps: list[tuple[int, int]], windows: int, limit: float
) -> None:
    clock = ManualClock()
    quick, judged = RateQuota(windows, 1000.0, clock), RateQuota(windows, 1000.0, clock)
    payer = Payer("alice", "app")
    for each in (quick, judged):
        each.set_limits({(("user", "alice"),): limit})
    for wait_ms, value in steps:
        clock.advance(wait_ms)
        pause_ms = 0 if quick.charge_within(payer, value) else quick.charge(payer, value)
        assert pause_ms == judged.charge(payer, value)
        assert quick.rate_of(*payer) == judged.rate_of(*payer)
    assert [each.throttled for each in quick.levels.shares.values()] == [
        each.throttled for each in judged.levels.shares.values()
    ]


def test_a_request_is_paid_for_by_whom_it_names_whoever_sent_the_one_before() -> None:
    peer: Any = SimpleNamespace(session=Session("10.0.0.7"))

    def paid_by(name: bytes | None, behind: bytes = b"") -> Payer:
        length = -1 if name is None else len(name)
        header = b"\x00\x00\x00\x09\x00\x00\x00\x01" + length.to_bytes(2, "big", signed=True)
        return payer_of(peer, memoryview(header + (name or b"") + behind))

    anybody = "ANONYMOUS"
    for _ in range(2):
        assert paid_by(b"app", b"and more") == (anybody, "app")
        assert paid_by(b"app") == (anybody, "app")
        assert paid_by(b"application") == (anybody, "application")
        assert paid_by(None) == paid_by(b"") == (anybody, "")
        assert paid_by(b"n" * 3000) == (anybody, "n" * 1024)
        assert payer_of(peer, memoryview(b"\x00\x00")) == (anybody, "")
        assert payer_of(peer, memoryview(b"\x00\x00\x00\x09\x00\x00\x00\x01\x00\x09app")) == (anybody, "app")
    assert paid_by(b"app") is paid_by(b"app", b"another request")
    peer.session.principal = Principal("alice")
    assert paid_by(b"app") == ("alice", "app")


def test_requests_of_several_clients_that_come_together_are_charged_to_each(
    scene: Scene, new_topic: NewTopic
) -> None:
    topic = new_topic()
    for name in ("one", "other"):
        scene.limit(name, **{TIME: 1000})
    client = scene.open("one")
    data = PartitionProduceData(index=0, records=batch(b"x"))
    request = ProduceRequest(
        acks=1, timeout_ms=5000, topic_data=[TopicProduceData(name=topic.name, partition_data=[data])]
    )
    names = ("one", "other", "other", "one", "other")
    client.sock.sendall(
        b"".join(
            encode_request(RequestHeader(ApiKey.PRODUCE, 9, number, name), request)
            for number, name in enumerate(names)
        )
    )
    for _ in names:
        client.receive()
    for name in ("one", "other"):
        used = scene.used(name, TIME)
        assert used is not None
        assert sum(total for _, _, total in used.windows) == 100 * REQUEST_S * names.count(name)


def test_short_requests_are_charged_as_they_come_and_pause_where_long_ones_would(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 1024.0
    monkeypatch.setattr(request_time, "perf_counter", lambda: now_s)
    clock = ManualClock()
    timed = request_time.RequestTime(11, 1000.0, clock)
    # One percent of ten seconds.
    timed.quota.set_limits({(("client-id", None),): 1.0})
    peers: list[Any] = [SimpleNamespace(session=Session("10.0.0.7")) for _ in range(2)]
    frame = memoryview(b"\x00\x00\x00\x09\x00\x00\x00\x01\x00\x03app and more")
    payer = Payer("ANONYMOUS", "app")
    step_s = 1 / 1024
    assert timed.pause_ms(payer) == 0
    within: list[bool] = []
    for number in range(200):
        timed.turn_to(peers[number % 2], frame)
        now_s += step_s
        within.append(timed.is_within())
        timed.leave(peers[number % 2])
        assert timed.quota.rate_of(*payer) == pytest.approx((number + 1) * step_s * 100 / 10)
    # A request that ends when exactly all is used up does not pause, and which one that is depends on it.
    assert within == [(number + 1) * step_s < 0.1 for number in range(200)]
    timed.turn_to(peers[0], frame)
    assert timed.pause_ms(payer) > 0
    timed.leave(peers[0])
    # Another wake-up in the midst of one does not count for it.
    timed.turn_to(peers[0], frame)
    now_s += step_s
    timed.turn_to(peers[1], memoryview(b"\x00\x00\x00\x09\x00\x00\x00\x01\x00\x05other"))
    now_s += 10 * step_s
    timed.leave(peers[1])
    timed.leave(peers[0])
    assert timed.quota.rate_of("ANONYMOUS", "other") == pytest.approx(10 * step_s * 100 / 10)
    assert timed.quota.rate_of(*payer) == pytest.approx(201 * step_s * 100 / 10)
