from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

from tidelog.broker.metrics.client_pages import client_page, throttle_page
from tidelog.broker.metrics.observed import ObservedBroker
from tidelog.broker.network.answer_times import AnswerTimes
from tidelog.broker.quotas.client_quotas import ClientQuotas
from tidelog.clock import SystemClock
from tidelog.config.client_quotas import CLIENT_ID, PRODUCER_BYTE_RATE
from tidelog.metrics.request_times import RequestTimes
from tidelog.security.session import Session


class Peer:
    """One of very many connections."""

    closed = False
    client_software = ("librdkafka", "2.8.0")
    listener = "PLAINTEXT"
    is_follower = False
    producer_ids = (4, 7)
    last_active = 0.0
    sent_bytes = 7
    pause_left_s = 0.0

    def __init__(self, port: int) -> None:
        self.peer = ("10.0.0.7", port)
        self.session = Session("10.0.0.7")
        self.times = AnswerTimes(self, RequestTimes())
        self.times.client_id = 'a"\n' + "x" * 250


def broker_with(connections: list[Any], quotas: ClientQuotas | None = None) -> ObservedBroker:
    network = SimpleNamespace(
        all_connections=lambda: connections, loop=SimpleNamespace(time=lambda: 1.5), connections=connections
    )
    fake = SimpleNamespace(
        broker_id=3,
        image=SimpleNamespace(cluster_id="here"),
        network=network,
        quotas=quotas or ClientQuotas(),
        clock=SystemClock(),
    )
    return cast(ObservedBroker, fake)


def read(pieces: Iterator[str]) -> tuple[list[str], Any]:
    found = list(pieces)
    return found, json.loads("".join(found))


def test_ten_thousand_connections_come_one_by_one_and_more_are_counted() -> None:
    peers: list[Any] = [Peer(port) for port in range(10_100)]
    peers[5].closed = True
    pieces, page = read(client_page(broker_with(peers)))
    assert (page["broker"], page["cluster"]) == (3, "here")
    assert len(page["connections"]) == 10_000
    assert page["left_out"] == 99
    # Between any two of them others have their turn.
    assert max(map(len, pieces)) < 1000
    assert len(pieces) > 10_000


def test_a_connection_that_has_asked_for_nothing_is_there_too() -> None:
    peer: Any = Peer(1)
    peer.times = None
    _, page = read(client_page(broker_with([peer])))
    assert page["connections"][0]["client_id"] is None
    assert page["connections"][0]["requests"] == 0
    assert page["connections"][0]["idle_ms"] == 1500
    assert page["connections"][0]["producer_ids"] == [4, 7]


def test_software_with_an_endless_name_is_cut() -> None:
    peer: Any = Peer(1)
    peer.client_software = "s" * 32_000, "v" * 32_000
    _, page = read(client_page(broker_with([peer])))
    (told,) = page["connections"]
    assert (told["software"], told["software_version"]) == ("s" * 256, "v" * 256)


def test_who_had_to_pause_is_told_of_and_nobody_else_and_not_too_many() -> None:
    clock = SystemClock()
    quotas = ClientQuotas(clock=clock)
    quotas.apply({((CLIENT_ID, None),): {PRODUCER_BYTE_RATE: 1000.0}})
    assert quotas.produce is not None
    for number in range(1200):
        quotas.produce.record("alice", f"greedy-{number}", 100_000)
        quotas.produce.record("alice", f"modest-{number}", 1)
    pieces, page = read(throttle_page(broker_with([], quotas)))
    assert len(page["throttled"]) == 1000
    assert page["left_out"] == 200
    first = page["throttled"][0]
    assert first["client_id"] == "greedy-1199", "who came last is told of first"
    assert first["user"] is None
    assert first["quota"] == "producer_byte_rate"
    assert first["limit"] == 1000
    assert first["pauses"] == 1
    assert max(map(len, pieces)) < 1000
